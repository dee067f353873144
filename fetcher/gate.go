package fetcher

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// Back-off between attempts to reach a source broker: jittered, doubling, one probe per second at
// most once it is clear that the broker is away (SPEC section 3).
const (
	firstBackoff = 50 * time.Millisecond
	maxBackoff   = time.Second
)

// gate lets the fetchers of one source broker through. While the broker is down only one of them
// tries at a time, and its success lets all the others go at once.
type gate struct {
	report func(error)

	mu       sync.Mutex
	err      error // of the last attempt; nil: up, or never tried
	failures int
	next     time.Time     // of the next attempt
	probing  bool          // somebody tries now
	changed  chan struct{} // closed and replaced at every change
}

func newGate(report func(error)) *gate {
	return &gate{report: report, changed: make(chan struct{})}
}

// enter waits until the caller may try to connect. Every enter without an error is followed by done.
func (g *gate) enter(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		g.mu.Lock()
		wait := time.Until(g.next)
		if g.err == nil || !g.probing && wait <= 0 {
			g.probing = g.err != nil
			g.mu.Unlock()
			return nil
		}
		if g.probing {
			wait = time.Hour // the one who tries wakes us
		}
		changed := g.changed
		g.mu.Unlock()
		if err := sleep(ctx, wait, changed); err != nil {
			return err
		}
	}
}

// done tells how the attempt, or a connection later on, ended, and reports whether that was news.
func (g *gate) done(err error) bool {
	g.mu.Lock()
	tell := (err == nil) != (g.err == nil) || err != nil && g.err != nil && err.Error() != g.err.Error()
	g.err = err
	g.probing = false
	if err == nil {
		g.failures = 0
	} else {
		d := min(firstBackoff<<min(g.failures, 10), maxBackoff)
		g.failures++
		g.next = time.Now().Add(d/2 + rand.N(d/2+1))
	}
	close(g.changed)
	g.changed = make(chan struct{})
	g.mu.Unlock()
	if tell {
		g.report(err)
	}
	return tell
}

func (g *gate) state() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// sleep waits for d, for the context's end, which is its error, or for wake.
func sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-wake:
		return nil
	case <-t.C:
		return nil
	}
}
