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

const (
	// burst is how much of a second's bytes may be saved up for whoever comes: no second exceeds the
	// rate by more than this while round trips are short (arrivals bounds it where they are not).
	burst = 0.1
	// longBurst is how much of them there may be at all: what those whose round trips are longer than a burst earn meanwhile.
	longBurst = 0.3
)

// longestWait is when to ask again at the latest: a rate of 0, or a debt at a low one, would be days.
const longestWait = time.Minute

// leastWait is when to look again, at the earliest, whether somebody ahead has taken the turn, lookAgain at the latest.
const leastWait, lookAgain = time.Millisecond, 25 * time.Millisecond

// leastTurn is what a turn of somebody who uses little may always take, in bytes: less is less than a batch.
const leastTurn = 4 << 10

// longestDebt is how far bytes that nobody may hold back can push others away: the time over which a rate is judged.
const longestDebt = 10 // seconds

// Limiter bounds bytes per second. Bytes are reserved before they are asked for,
// and what was reserved and did not come is given back, so bytes that were read
// are never delayed. Only a single batch that is larger than what was reserved
// makes a debt, which later reservations wait for. It is safe for concurrent use.
//
// Several who share it get the rate by their weights: what flows in is credited to those who use it (see user), and the bucket holds
// the sum of the credits and of free, which is nobody's.
type Limiter struct {
	rate  atomic.Float64 // bytes per second, +Inf: unlimited; changed under mu
	mu    sync.Mutex
	free  float64 // below 0: a debt of everybody
	begin time.Time
	last  time.Duration // since begin
	users []user        // those who asked lately
	came  arrivals
}

// NewLimiter starts with a rate and what a burst allows.
func NewLimiter(now time.Time, bytesPerSecond int64) *Limiter {
	l := &Limiter{begin: now}
	l.SetRate(now, bytesPerSecond)
	l.free = l.capacity(burst)
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
	l.came = arrivals{last: l.came.last}        // what came at another rate
	if math.IsInf(was, 1) || math.IsInf(r, 1) { // nothing was counted, or will be
		clear(l.users)
		l.users, l.free = l.users[:0], 0
		return
	}
	if r < was && was > 0 {
		l.slow(max(r, 0) / was)
	}
}

// Limited says whether there is a rate at all.
func (l *Limiter) Limited() bool { return !math.IsInf(l.rate.Load(), 1) }

// capacity is what so many seconds bring.
func (l *Limiter) capacity(seconds float64) float64 {
	if r := l.rate.Load(); r > 0 && !math.IsInf(r, 1) {
		return max(r*seconds, 1)
	}
	return 0
}

// Reserve takes up to want bytes, and at least least (or half of what a burst can
// hold, if that is less). 0 bytes: ask again after the returned time. It is for one who shares the limiter with nobody.
func (l *Limiter) Reserve(now time.Time, least, want int64) (granted int64, retry time.Duration) {
	return l.ReserveFor(now, nil, 1, least, want)
}

// ReserveFor is Reserve for one of several that share the rate by weight: over some seconds everyone gets the part of the rate that its weight
// says, or what it wants per round trip if that is less (round trips of up to 0.2 s are made up for), and what somebody does not use goes to the others by
// their weights. Who is refused has a place in a queue, at the head of which are those that would be least ahead of their share after their
// turn; while others wait a turn is a tenth of a second's share, at least least. For who is between two requests its share is kept, as long as those
// usually take, 0.2 s at most; who does not come back loses it to the others another 0.2 s later.
func (l *Limiter) ReserveFor(now time.Time, who any, weight int, least, want int64) (granted int64, retry time.Duration) {
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
	l.expire()
	u := l.join(who)
	u.ask(l.last, weight, float64(want))
	if over := u.credit - u.cap(); over > 0 {
		u.credit = u.cap()
		l.free += l.spread(over, toAll)
	}

	s := l.survey(u)
	// Not the whole bucket: what flows in until somebody asks who was told to come back would be lost.
	turn := max(l.capacity(burst)/2, 1)
	u.need = max(min(float64(least), u.most, turn), 1)
	if s.contended {
		u.need = max(u.need, min(u.most, turn, l.capacity(burst)*u.weight/s.weights))
	}
	left := s.tokens - s.kept
	ahead, near := l.before(u)
	if s.tokens < l.capacity(burst) { // one batch larger than a turn at a time
		left -= s.expected
	}
	room := l.room(near) - ahead
	if u.most > r*spare/4 {
		room -= r * spare
	}
	if left >= l.capacity(burst) { // those ahead are late
		ahead = min(ahead, max(left-u.need, 0))
	}
	if mine := min(max(left-ahead, s.own), room); mine >= u.need-0.5 { // half a byte of rounding
		granted = max(int64(min(u.most, mine, l.capacity(2*burst), max(u.need, max(l.free, 0)+u.credit))), 1)
		free := min(max(l.free, 0), float64(granted))
		l.free -= free
		u.credit -= float64(granted) - free
		u.take(l.last, float64(granted))
		return granted, 0
	}
	debt := max(-s.tokens, 0)
	seconds := debt/r + (ahead+u.need-max(left, 0))/(r*s.growth)
	if who != nil { // what others take or give back is not known; a debt is
		seconds = min(seconds, debt/r+lookAgain.Seconds())
	}
	retry = time.Duration(math.Ceil(min(seconds, longestWait.Seconds()) * float64(time.Second)))
	if more := u.need - room; more > 0 {
		retry = max(retry, min(l.came.until(l.last, near, more), lookAgain))
	}
	if ahead > 0 || s.kept > 0 {
		retry = max(retry, leastWait)
	}
	retry = max(retry, 1)
	u.wait(l.last, retry)
	return 0, retry
}

// Settle says how many bytes of a reservation were used: fewer are given back,
// more become a debt.
func (l *Limiter) Settle(now time.Time, granted, used int64) { l.SettleFor(now, nil, granted, used) }

// SettleFor is Settle for a reservation of ReserveFor. A debt counts as taken by who made it. What it gives back
// is not more than it has reserved at this rate.
func (l *Limiter) SettleFor(now time.Time, who any, granted, used int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.Limited() {
		return
	}
	l.fill(now)
	unused := float64(granted) - float64(used)
	i := slices.IndexFunc(l.users, func(u user) bool { return u.who == who })
	if i < 0 {
		l.free += min(unused, 0)
		return
	}
	u := &l.users[i]
	l.came.add(max(used-int64(u.foreign), 0))
	u.foreign = 0
	// What is given back counts in full, also beyond a burst: it was taken from it, and nothing flows in meanwhile.
	u.credit += u.settle(l.last, float64(granted), float64(used))
	if over := u.credit - u.cap(); over > 0 && unused > 0 {
		u.credit = u.cap()
		l.free += l.spread(over, toAll)
	}
}

// charge counts bytes that passed without having been reserved, since they may not be held back.
func (l *Limiter) charge(now time.Time, used int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if used <= 0 || !l.Limited() {
		return
	}
	l.fill(now)
	if above := l.tokens() + longestDebt*l.rate.Load(); above > 0 {
		l.free -= min(float64(used), above)
	}
}
