package clock

import (
	"sync/atomic"
	"time"
)

// Clock tells the time.
type Clock interface {
	Now() time.Time
}

// System is the machine's clock.
var System Clock = system{}

type system struct{}

func (system) Now() time.Time { return time.Now() }

// Manual is a clock that only moves when told to. It is safe for concurrent use.
type Manual struct{ ns atomic.Int64 }

// NewManual returns a manual clock that shows t.
func NewManual(t time.Time) *Manual {
	m := &Manual{}
	m.ns.Store(t.UnixNano())
	return m
}

// Now implements Clock.
func (m *Manual) Now() time.Time { return time.Unix(0, m.ns.Load()) }

// Advance moves the clock forward by d.
func (m *Manual) Advance(d time.Duration) { m.ns.Add(int64(d)) }
