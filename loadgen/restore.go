package loadgen

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

const (
	// changePatience bounds one change of the mirror. An interrupt does not cut it short: its outcome must be known.
	changePatience = 15 * time.Second
	// restorePatience bounds all that a scenario takes back at its end, and the question how it left the mirror.
	restorePatience = 15 * time.Second
)

// undo is a change of the destination that a scenario takes back, whatever ends it.
type undo struct {
	do   func(context.Context) error
	left func(failed error) string // what is so when do failed, and the commands that help
}

// lasting is a context that the end of ctx does not end, for what must be done all the same.
func lasting(ctx context.Context, patience time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), patience)
}

// change makes one change, and notes before how it is taken back.
func (f *failover) change(ctx context.Context, do func(context.Context) error, back undo) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	f.undos = append(f.undos, back)
	ctx, cancel := lasting(ctx, changePatience)
	defer cancel()
	return do(ctx)
}

// takeBack takes all changes back, the last one first, and says in the report what could not be.
func (f *failover) takeBack(ctx context.Context, r *Report) error {
	ctx, cancel := lasting(ctx, restorePatience)
	defer cancel()
	var errs []error
	for i := len(f.undos) - 1; i >= 0; i-- {
		if err := f.undos[i].do(ctx); err != nil {
			err = once(err)
			errs = append(errs, err)
			r.Left = append(r.Left, f.undos[i].left(err))
		}
	}
	f.undos = nil
	return once(errors.Join(errs...))
}

// once puts joined errors on one line, what says the same only once.
func once(err error) error {
	if err == nil {
		return nil
	}
	var lines []string
	for _, l := range strings.Split(err.Error(), "\n") {
		if !slices.Contains(lines, l) {
			lines = append(lines, l)
		}
	}
	return onceError{strings.Join(lines, "; "), err}
}

type onceError struct {
	text string
	err  error
}

func (e onceError) Error() string { return e.text }
func (e onceError) Unwrap() error { return e.err }

// mirrorsCommand is the command that does something with some of the topics.
func (f *failover) mirrorsCommand(action string, topics []string) string {
	pattern := f.o.Topics
	if len(topics) != len(f.topics) || strings.ContainsAny(pattern, ",'") { // a comma separates patterns there
		var quoted []string
		for _, t := range topics {
			quoted = append(quoted, regexp.QuoteMeta(t))
		}
		pattern = strings.Join(quoted, ",")
	}
	return fmt.Sprintf("stet mirrors --bootstrap-server %s %s --topics '%s' --mirror %s", f.o.Destination, action, pattern, f.o.Mirror)
}
