package loadgen

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"stet/broker/mirrormsg"
)

// pause pauses the topics; takeBack or resume ends it. One that is paused already is refused: it would not stay so.
func (f *failover) pause(ctx context.Context) error {
	m, err := describeMirror(ctx, f.dst, f.o.Mirror)
	if err != nil {
		return err
	}
	for _, t := range m.Topics {
		for _, p := range t.Partitions {
			if slices.Contains(f.topics, t.TopicName) && (p.State == "PAUSED" || p.State == "PAUSING") {
				return fmt.Errorf("%s-%d of mirror %s is %s already; resume it first: %s", t.TopicName, p.PartitionIndex, f.o.Mirror, p.State,
					f.mirrorsCommand("--resume", []string{t.TopicName}))
			}
		}
	}
	f.paused = f.topics // until it is known better
	err = f.change(ctx, f.sendPause, undo{do: f.resume, left: func(failed error) string {
		return fmt.Sprintf("still paused: %s of mirror %s (%v); to resume: %s", some(f.paused), f.o.Mirror, failed, f.mirrorsCommand("--resume", f.paused))
	}})
	if err != nil {
		return err
	}
	return f.awaitPaused(ctx)
}

// awaitPaused waits until nothing is copied any more: the answer to a pause says that it is intended.
func (f *failover) awaitPaused(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, changePatience)
	defer cancel()
	for {
		m, err := describeMirror(ctx, f.dst, f.o.Mirror)
		if err != nil {
			return err
		}
		var moving string
		for _, t := range m.Topics {
			for _, p := range t.Partitions {
				if slices.Contains(f.topics, t.TopicName) && p.State != "PAUSED" && p.State != "FAILED" && p.State != "STOPPED" {
					moving = fmt.Sprintf("%s-%d of mirror %s is %s", t.TopicName, p.PartitionIndex, f.o.Mirror, p.State)
				}
			}
		}
		if moving == "" {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("pause: %s still: %w", moving, ctx.Err())
		}
	}
}

func (f *failover) sendPause(ctx context.Context) error {
	req := mirrormsg.NewPtrPauseMirrorTopicsRequest()
	req.MirrorName = f.o.Mirror
	for _, n := range f.topics {
		t := mirrormsg.NewPauseMirrorTopicsRequestTopic()
		t.TopicName = n
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, f.dst.cl)
	if err != nil {
		return fmt.Errorf("pause: %w", f.dst.failed(err))
	}
	if err := mirrormsg.ErrorForCode(resp.ErrorCode); err != nil {
		f.paused = nil
		return fmt.Errorf("pause: %w", err)
	}
	var errs []error
	f.paused = nil
	for i := range resp.Topics {
		if err := refusedTopic(&resp.Topics[i]); err != nil {
			errs = append(errs, err)
			continue
		}
		f.paused = append(f.paused, resp.Topics[i].Name)
	}
	return errors.Join(errs...)
}

// resume resumes what is paused, and forgets it.
func (f *failover) resume(ctx context.Context) error {
	if len(f.paused) == 0 {
		return nil
	}
	req := mirrormsg.NewPtrResumeMirrorTopicsRequest()
	req.MirrorName = f.o.Mirror
	for _, n := range f.paused {
		t := mirrormsg.NewResumeMirrorTopicsRequestTopic()
		t.TopicName = n
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, f.dst.cl)
	if err != nil {
		return fmt.Errorf("resume: %w", f.dst.failed(err))
	}
	if err := mirrormsg.ErrorForCode(resp.ErrorCode); err != nil {
		return fmt.Errorf("resume: %w", err)
	}
	var errs []error
	f.paused = nil
	for i := range resp.Topics {
		t := &resp.Topics[i]
		if t.ErrorCode == mirrormsg.MirrorTopicNotPaused.Code { // resumed by somebody, or never paused
			continue
		}
		if err := refusedTopic(t); err != nil {
			f.paused = append(f.paused, t.Name)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// some names a few of many.
func some(names []string) string {
	const few = 5
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
}
