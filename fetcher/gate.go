package fetcher

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Back-off between attempts to reach a source broker: jittered, doubling, one probe per second at
// most once it is clear that the broker is away (SPEC section 3).
const (
	firstBackoff = 50 * time.Millisecond
	maxBackoff   = time.Second
)

// gate lets the fetchers of one source broker through. While the broker is away, or answers nonsense, only one of them tries at a
// time, and its first good answer lets all the others go at once. A connection alone proves nothing: it may be a proxy's.
type gate struct {
	report func(error)
	sick   atomic.Bool // err is not nil

	mu       sync.Mutex
	err      error         // why nothing can be fetched; nil: it can, or was never tried
	failures int           // since the last good answer
	next     time.Time     // of the next attempt
	probing  bool          // somebody tries now
	changed  chan struct{} // closed and replaced at every change
}

func newGate(report func(error)) *gate {
	return &gate{report: report, changed: make(chan struct{})}
}

// enter waits until the caller may try to connect. probe says that all others wait for it, until proven, failed or leave.
func (g *gate) enter(ctx context.Context) (probe bool, err error) {
	for {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		g.mu.Lock()
		wait := time.Until(g.next)
		if g.failures == 0 || !g.probing && wait <= 0 {
			g.probing = g.failures > 0
			probe = g.probing
			g.mu.Unlock()
			return probe, nil
		}
		if g.probing {
			wait = time.Hour // the one who tries wakes us
		}
		changed := g.changed
		g.mu.Unlock()
		if err := sleep(ctx, wait, changed); err != nil {
			return false, err
		}
	}
}

// failed tells that an attempt, or a connection later on, ended with err, and reports whether that was news.
func (g *gate) failed(err error) bool {
	g.mu.Lock()
	tell := g.err == nil || err.Error() != g.err.Error()
	g.err = err
	g.sick.Store(true)
	g.probing = false
	g.next = time.Now().Add(backoff(g.failures))
	g.failures++
	g.wake()
	g.mu.Unlock()
	if tell {
		g.report(err)
	}
	return tell
}

// proven is told a good answer of the broker, the first of a connection and any while the broker is sick: another one of its
// connections may have failed for a reason of its own.
func (g *gate) proven() {
	g.mu.Lock()
	tell := g.err != nil
	g.err = nil
	g.sick.Store(false)
	g.probing = false
	g.failures = 0
	g.wake()
	g.mu.Unlock()
	if tell {
		g.report(nil)
	}
}

// leave is what a probe does that has nothing to ask for: somebody else may try.
func (g *gate) leave() {
	g.mu.Lock()
	g.probing = false
	g.wake()
	g.mu.Unlock()
}

// wake is called with the lock held.
func (g *gate) wake() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// backoff is the pause after a failure that followed others.
func backoff(failures int) time.Duration {
	d := min(firstBackoff<<min(failures, 10), maxBackoff)
	return d/2 + rand.N(d/2+1)
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
