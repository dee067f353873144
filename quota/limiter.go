package quota

import (
	"math"
	"sync"
	"time"

	"go.uber.org/atomic"
)

// Unlimited is a rate that limits nothing.
const Unlimited = math.MaxInt64

// burst is how much of a second's bytes may be saved up: no second exceeds the
// rate by more than this (SPEC section 12 allows 1.2 times).
const burst = 0.1

// longestWait is when to ask again at the latest: a rate of 0, or a debt at a low one, would be days.
const longestWait = time.Minute

// longestDebt is how far bytes that nobody may hold back can push others away: the time over which a rate is judged.
const longestDebt = 10 // seconds

// Limiter bounds bytes per second. Bytes are reserved before they are asked for,
// and what was reserved and did not come is given back, so bytes that were read
// are never delayed. Only a single batch that is larger than what was reserved
// makes a debt, which later reservations wait for. It is safe for concurrent use.
type Limiter struct {
	rate   atomic.Float64 // bytes per second, +Inf: unlimited; changed under mu
	mu     sync.Mutex
	tokens float64
	last   time.Time
}

// NewLimiter starts with a rate and what a burst allows.
func NewLimiter(now time.Time, bytesPerSecond int64) *Limiter {
	l := &Limiter{last: now}
	l.SetRate(now, bytesPerSecond)
	l.tokens = l.capacity()
	return l
}

// SetRate changes the rate. A debt stays, what was saved up beyond the new burst is lost.
func (l *Limiter) SetRate(now time.Time, bytesPerSecond int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fill(now)
	r := float64(bytesPerSecond)
	if bytesPerSecond == Unlimited {
		r = math.Inf(1)
	}
	was := l.rate.Swap(r)
	if math.IsInf(was, 1) { // nothing was counted
		l.tokens = 0
	}
	if !math.IsInf(r, 1) {
		l.tokens = min(l.tokens, l.capacity())
	}
}

// Limited says whether there is a rate at all.
func (l *Limiter) Limited() bool { return !math.IsInf(l.rate.Load(), 1) }

func (l *Limiter) capacity() float64 {
	if r := l.rate.Load(); r > 0 && !math.IsInf(r, 1) {
		return max(r*burst, 1)
	}
	return 0
}

func (l *Limiter) fill(now time.Time) {
	if since := now.Sub(l.last); since > 0 {
		if r := l.rate.Load(); !math.IsInf(r, 1) {
			l.tokens = min(l.tokens+r*since.Seconds(), l.capacity())
		}
		l.last = now
	}
}

// Reserve takes up to want bytes, and at least least (or half of what a burst can
// hold, if that is less). 0 bytes: ask again after the returned time.
func (l *Limiter) Reserve(now time.Time, least, want int64) (granted int64, retry time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.rate.Load()
	if math.IsInf(r, 1) {
		return want, 0
	}
	l.fill(now)
	if r <= 0 {
		return 0, longestWait
	}
	// Not the whole bucket: what flows in until somebody asks who was told to come back would be lost.
	need := min(float64(min(least, want)), max(l.capacity()/2, 1))
	if l.tokens < need-0.5 || l.tokens < 0.5 { // half a byte of rounding
		missing := max(need, 1) - l.tokens
		return 0, time.Duration(math.Ceil(min(missing/r, longestWait.Seconds()) * float64(time.Second)))
	}
	granted = max(int64(min(float64(want), l.tokens)), 1)
	l.tokens -= float64(granted)
	return granted, 0
}

// Settle says how many bytes of a reservation were used: fewer are given back,
// more become a debt.
func (l *Limiter) Settle(now time.Time, granted, used int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.Limited() {
		return
	}
	l.fill(now)
	l.tokens = min(l.tokens+float64(granted-used), l.capacity())
}

// charge counts bytes that passed without having been reserved, since they may not be held back.
func (l *Limiter) charge(now time.Time, used int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if used <= 0 || !l.Limited() {
		return
	}
	l.fill(now)
	if floor := -longestDebt * l.rate.Load(); l.tokens > floor {
		l.tokens = max(l.tokens-float64(used), floor)
	}
}
