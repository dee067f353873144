package log

import (
	"context"
	"sync"
	"time"
)

// ioLimit holds the bytes that all cleaners together read and write below a rate, which may
// change under those that wait.
type ioLimit struct {
	mu      sync.Mutex
	rate    float64 // bytes per second
	taken   float64 // all bytes so far
	paid    float64 // of them at time at; never more than taken: an idle time saves nothing up
	at      time.Time
	changed chan struct{} // closed when the rate changes
}

func newIOLimit(bytesPerSec float64) *ioLimit {
	return &ioLimit{rate: bytesPerSec, changed: make(chan struct{})}
}

// ioSlack is how much may be run up before a wait is worth it.
const ioSlack = 20 * time.Millisecond

func (t *ioLimit) unlimited() bool { return t.rate <= 0 || t.rate >= 1<<62 }

// settle pays for the time that has passed. t.mu is held.
func (t *ioLimit) settle(now time.Time) {
	if t.unlimited() {
		t.paid = t.taken
	} else if d := now.Sub(t.at); d > 0 {
		t.paid = min(t.paid+d.Seconds()*t.rate, t.taken)
	}
	t.at = now
}

func (t *ioLimit) setRate(bytesPerSec float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.settle(time.Now())
	t.rate = bytesPerSec
	close(t.changed)
	t.changed = make(chan struct{})
}

// wait takes n bytes, and waits until they fit into the rate or ctx ends.
func (t *ioLimit) wait(ctx context.Context, n int64) error {
	t.mu.Lock()
	t.settle(time.Now())
	t.taken += float64(n)
	mine := t.taken
	for {
		missing, changed := mine-t.paid, t.changed
		d := time.Duration(0)
		if !t.unlimited() && missing > 0 {
			d = time.Duration(min(missing/t.rate, maxIOWait) * float64(time.Second))
		}
		t.mu.Unlock()
		if d < ioSlack {
			return ctx.Err()
		}
		timer := time.NewTimer(d)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		case <-changed:
			timer.Stop()
		}
		t.mu.Lock()
		t.settle(time.Now())
	}
}

// maxIOWait keeps the longest wait in seconds within what a time.Duration can hold.
const maxIOWait = 1e9
