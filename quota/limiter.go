package quota

import (
	"math"
	"slices"
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

const (
	// leastWait is when to look again, at the earliest, whether somebody ahead has taken the turn, lookAgain at the latest.
	leastWait, lookAgain = time.Millisecond, 25 * time.Millisecond
	// nearlyFull is the part of what a burst can hold from which on the queue does not count.
	nearlyFull = 0.75
)

// leastTurn is the least that a turn gives in bytes, whatever the weight: less is less than a batch.
const leastTurn = 4 << 10

// longestDebt is how far bytes that nobody may hold back can push others away: the time over which a rate is judged.
const longestDebt = 10 // seconds

// Limiter bounds bytes per second. Bytes are reserved before they are asked for,
// and what was reserved and did not come is given back, so bytes that were read
// are never delayed. Only a single batch that is larger than what was reserved
// makes a debt, which later reservations wait for. It is safe for concurrent use.
type Limiter struct {
	rate    atomic.Float64 // bytes per second, +Inf: unlimited; changed under mu
	mu      sync.Mutex
	tokens  float64
	last    time.Time
	waiting []waiter // in the order of service
}

// waiter is somebody who was refused and told to come back.
type waiter struct {
	who    any
	weight int
	need   float64
	due    time.Time
}

// patience is how long after its time a waiter keeps its place.
const patience = 250 * time.Millisecond

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
			l.tokens = max(l.tokens, min(l.tokens+r*since.Seconds(), l.capacity()))
		}
		l.last = now
	}
}

// Reserve takes up to want bytes, and at least least (or half of what a burst can
// hold, if that is less). 0 bytes: ask again after the returned time. It is for one who shares the limiter with nobody.
func (l *Limiter) Reserve(now time.Time, least, want int64) (granted int64, retry time.Duration) {
	return l.ReserveFor(now, nil, 1, least, want)
}

// ReserveFor is Reserve for one of several that share the rate: who is refused has a place in a queue, and nobody who comes later
// is served before. While others wait, a turn gives at most half of what a burst can hold, times weight by the largest
// weight among those who wait, so the rate is shared roughly by weight; not so with few users whose turns never meet in the queue, where
// one may get several times the share of another. Who does not come back in time loses the place.
func (l *Limiter) ReserveFor(now time.Time, who any, weight int, least, want int64) (granted int64, retry time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.rate.Load()
	if math.IsInf(r, 1) {
		l.waiting = l.waiting[:0]
		return want, 0
	}
	l.fill(now)
	if r <= 0 {
		return 0, longestWait
	}
	l.waiting = slices.DeleteFunc(l.waiting, func(w waiter) bool { return w.who != who && now.Sub(w.due) > patience })
	at := slices.IndexFunc(l.waiting, func(w waiter) bool { return w.who == who })
	heaviest := weight
	for _, w := range l.waiting {
		heaviest = max(heaviest, w.weight)
	}
	// Not the whole bucket: what flows in until somebody asks who was told to come back would be lost.
	turn := max(l.capacity()/2, 1)
	need := min(float64(min(least, want)), turn)
	if alone := len(l.waiting) == 0 || at == 0 && len(l.waiting) == 1; !alone {
		share := max(turn*float64(weight)/float64(heaviest), min(leastTurn, turn))
		want = min(want, int64(math.Ceil(share)))
		need = min(float64(want), share)
	}
	ahead := 0.0
	for i, w := range l.waiting {
		if i == at {
			break
		}
		ahead += w.need
	}
	// Bytes that would soon be lost go to whoever asks: those ahead are late, or need less than they said.
	first := ahead == 0 || l.tokens >= nearlyFull*l.capacity()
	if first && l.tokens >= need-0.5 && l.tokens >= 0.5 { // half a byte of rounding
		granted = max(int64(min(float64(want), l.tokens)), 1)
		l.tokens -= float64(granted)
		if at >= 0 {
			l.waiting = slices.Delete(l.waiting, at, at+1)
		}
		return granted, 0
	}
	missing := max(ahead+max(need, 1)-l.tokens, 1)
	if who != nil { // what others take or give back is not known; a debt is
		missing = min(missing, max(-l.tokens, 0)+r*lookAgain.Seconds())
	}
	retry = time.Duration(math.Ceil(min(missing/r, longestWait.Seconds()) * float64(time.Second)))
	if ahead > 0 {
		retry = max(retry, leastWait)
	}
	w := waiter{who, weight, max(need, 1), now.Add(retry)}
	if at < 0 {
		l.waiting = append(l.waiting, w)
	} else {
		l.waiting[at] = w
	}
	return 0, retry
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
	// What is given back counts in full, also beyond a burst: it was taken from it, and nothing flows in meanwhile.
	l.tokens += float64(granted - used)
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
