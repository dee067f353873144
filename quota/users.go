package quota

import (
	"math"
	"slices"
	"time"
)

const (
	// grace is how late somebody may come back and have earned all the while.
	grace = 50 * time.Millisecond
	// patience is how much later what it has earned is given to the others.
	patience = 200 * time.Millisecond
	// forget is when somebody is forgotten who has a reservation out that was never settled.
	forget = time.Minute
	// turnsKept is how many times what it wants at once somebody may have.
	turnsKept = 4
	// longestFlight is the longest time between two requests for which somebody earns.
	longestFlight = 200 * time.Millisecond
)

// user is one of those who share a Limiter.
//
// Everybody whose next request is expected earns: whoever waits, and whoever has a reservation out or has just settled one, until the time at which
// it usually asks again. Nobody earns more than it can use at once; what it does not earn the others do. So nobody loses its share to others
// because they ask more often, and nobody who has stopped asking keeps anything.
type user struct {
	who    any
	weight float64
	credit float64 // bytes of the bucket; below 0: it is ahead of its share, by a turn that others' credits have lent or by a batch larger than reserved
	most   float64 // bytes that it wants at once
	need   float64 // bytes that its turn takes, while it waits
	room   float64 // of spread

	waiting  bool
	since    time.Duration // on the limiter's clock: since when it waits, or when the last reservation was made
	until    time.Duration // until when it earns
	flight   time.Duration // about the longest of the last times from reservation to settlement; 0: none was yet
	near     shortest      // of the last flights
	reserved time.Duration // on the limiter's clock: when it reserved last
	out      float64       // bytes reserved and not settled: no more can be given back
	foreign  float64       // bytes that were out when the rate fell
	brings   float64       // about the most that the last responses had
	over     float64       // bytes by which the last response was larger than what was reserved for it
	ceiling  float64       // of most, after reservations of which little was used
}

// join finds a user, or takes a new one in.
func (l *Limiter) join(who any) *user {
	i := slices.IndexFunc(l.users, func(u user) bool { return u.who == who })
	if i < 0 {
		i = len(l.users)
		l.users = append(l.users, user{who: who, ceiling: math.Inf(1)})
	}
	return &l.users[i]
}

func (u *user) ask(now time.Duration, weight int, want float64) {
	u.weight, u.most = max(float64(weight), 1), min(want, u.ceiling)
	if !u.waiting {
		u.waiting, u.since = true, now
	}
	u.until = now + grace
}

// take notes a reservation.
func (u *user) take(now time.Duration, granted float64) {
	u.waiting, u.since, u.reserved = false, now, now
	u.out += granted
	wait := longestFlight
	if u.flight > 0 {
		wait = min(max(2*u.flight, grace), longestFlight)
	}
	u.until = now + wait
}

func (u *user) wait(now, retry time.Duration) { u.until = now + retry + grace }

// settle returns how many bytes are given back, or, below 0, are a debt.
func (u *user) settle(now time.Duration, granted, used float64) float64 {
	unused := min(granted-used, u.out)
	u.out = max(u.out-granted, 0)
	if u.who == nil { // of several who are not told apart
		return unused
	}
	if !u.waiting {
		d := max(now-u.since, 1)
		u.near.add(d)
		if d >= u.flight || u.flight == 0 {
			u.flight = d
		} else {
			u.flight -= (u.flight - d) / 8
		}
		u.until = now + grace // the next request is sent when a response is there
	}
	u.over = max(used-granted, 0)
	u.brings = max(used, u.brings*7/8)
	// Who uses little takes little the next time, and keeps little from the others meanwhile. Where whole batches fill it, more than half is used.
	switch {
	case granted > leastTurn && 2*used <= granted:
		u.ceiling = max(2*used, leastTurn)
	case granted >= u.ceiling:
		u.ceiling *= 2
	case 4*used >= 3*granted: // it would have used more
		u.ceiling = max(u.ceiling, 4*used)
	}
	u.most = min(u.most, u.ceiling)
	return unused
}

// those says to whom bytes go.
type those int

const (
	toAll   those = iota
	toAhead       // to who has had more than its share
)

// goal is the credit up to which somebody earns at the moment.
func (u *user) goal(at time.Duration, to those) float64 {
	switch {
	case to == toAhead || u.until <= at:
		return 0 // who is ahead of its share falls behind also while it does nothing
	case u.waiting:
		return u.cap()
	}
	return max(min(u.most, u.ceiling-u.out), 0) // much of what is out will be given back
}

// cap is the largest credit that is of use: some turns, since somebody who wants little each time may come late now and then.
func (u *user) cap() float64 { return min(turnsKept*u.most, u.ceiling) }

// spread gives bytes to those who can use them, by weight. It returns what is left.
func (l *Limiter) spread(bytes float64, to those) (left float64) {
	for bytes > 0 {
		weights, each := 0.0, math.Inf(1) // each is what all can take per weight
		for i := range l.users {
			u := &l.users[i]
			if u.room = u.goal(l.last, to) - u.credit; u.room > 0 {
				weights += u.weight
				each = min(each, u.room/u.weight)
			}
		}
		if weights == 0 {
			return bytes
		}
		each = min(each, bytes/weights)
		for i := range l.users {
			u := &l.users[i]
			switch {
			case u.room <= 0:
			case u.room <= each*u.weight*(1+1e-9):
				u.credit = u.goal(l.last, to) // exactly, so that every round ends with one less
			default:
				u.credit += each * u.weight
			}
		}
		if bytes -= each * weights; bytes < roundingError {
			return 0
		}
	}
	return 0
}

// roundingError is how many bytes do not matter.
const roundingError = 1e-6

// tokens is what the bucket holds; below 0: a debt.
func (l *Limiter) tokens() float64 {
	sum := l.free
	for i := range l.users {
		sum += l.users[i].credit
	}
	return sum
}

// fill brings what has flown in, in steps at the end of which somebody ceases to earn.
func (l *Limiter) fill(at time.Time) {
	now := at.Sub(l.begin)
	r := l.rate.Load()
	defer func() { l.came.at(l.last) }()
	if math.IsInf(r, 1) || r <= 0 {
		l.last = max(l.last, now)
		return
	}
	for l.last < now {
		to := now
		for i := range l.users {
			if until := l.users[i].until; until > l.last && until < to {
				to = until
			}
		}
		l.earn(r * (to - l.last).Seconds())
		l.last = to
	}
}

// earn pays off the debt of all first, then everybody earns, then up to a burst is saved up.
func (l *Limiter) earn(bytes float64) {
	if l.free < 0 {
		paid := min(bytes, -l.free)
		l.free += paid
		bytes -= paid
	}
	// What flows into a full bucket takes the place of what is nobody's and of what was kept for those who are away for longer; else it is lost, since
	// who waits then waits for room in a second: it would only make up for it later.
	fits := min(bytes, max(l.capacity(longBurst)-l.tokens(), 0))
	bytes = l.spread(fits, toAll) + bytes - fits
	if l.tokens() >= l.capacity(longBurst) {
		l.free += l.spread(l.displace(bytes), toAll)
		return
	}
	l.free += min(bytes, max(l.capacity(burst)-l.tokens(), 0))
}

// displace takes up to so many bytes from free and from those who are overdue.
func (l *Limiter) displace(bytes float64) (taken float64) {
	taken = min(max(l.free, 0), bytes)
	l.free -= taken
	for i := range l.users {
		if u := &l.users[i]; !u.waiting && u.until <= l.last {
			n := min(max(u.credit, 0), bytes-taken)
			u.credit -= n
			taken += n
		}
	}
	return taken
}

// expire gives what is kept for those who did not come to the others, and forgets them.
func (l *Limiter) expire() {
	released, n := 0.0, 0
	for i := range l.users {
		u := &l.users[i]
		late := l.last - u.until
		if late > patience && u.credit > 0 {
			released += u.credit
			u.credit = 0
		}
		if late > patience && u.out == 0 && u.credit >= 0 || late > forget {
			l.free += u.credit
			continue
		}
		if n != i {
			l.users[n] = *u
		}
		n++
	}
	clear(l.users[n:])
	l.users = l.users[:n]
	if released > 0 {
		released = l.spread(l.spread(released, toAhead), toAll) // first to those who took it meanwhile
		l.free += min(released, max(l.capacity(burst)-l.tokens(), 0))
	}
}

// slow takes away what the bucket holds beyond a burst of the new rate, which is so many times the old one. A debt stays; who is ahead of or behind its share is by as
// much time as before, not by as many bytes.
func (l *Limiter) slow(times float64) {
	held, burst := l.tokens(), l.capacity(burst)
	for i := range l.users {
		u := &l.users[i]
		u.credit *= times
		left := min(u.out*times, burst) // what was reserved at another rate is no burst at this one
		u.foreign += u.out - left
		u.out = left
	}
	l.free = 0
	l.free = min(held, burst) - l.tokens()
}

// situation is what somebody who asks finds.
type situation struct {
	tokens    float64 // in the bucket
	kept      float64 // for those between two requests
	own       float64 // of the tokens, of who asks, where they are less than all credits
	expected  float64 // bytes that will be a debt, from those whose batches are larger than what they reserve
	contended bool    // somebody else waits
	weights   float64 // of those who use the rate
	growth    float64 // the part of the rate by which what is not kept grows, at least
}

func (l *Limiter) survey(u *user) situation {
	s := situation{weights: u.weight}
	credits, flying, earning := max(u.credit, 0), 0.0, u.weight
	s.tokens = l.free + u.credit
	for i := range l.users {
		v := &l.users[i]
		if v == u {
			continue
		}
		s.tokens += v.credit
		credits += max(v.credit, 0)
		if !v.waiting {
			s.kept += max(v.credit, 0)
		}
		if v.most >= leastTurn && l.last-v.until <= patience {
			s.weights += v.weight
		}
		if v.until <= l.last {
			continue
		}
		s.contended = s.contended || v.waiting
		if v.goal(l.last, toAll) > v.credit {
			earning += v.weight
			if !v.waiting {
				flying += v.weight
			}
		}
		if !v.waiting {
			s.expected += v.over
		}
	}
	if credits > s.tokens && s.tokens > 0 { // while somebody is ahead of its share everyone has a part of what is there
		s.own = s.tokens * max(u.credit, 0) / credits
	}
	s.growth = 1 - flying/earning
	return s
}

// before is what the turns take of those who wait and come first: who is least ahead of its share after its turn; and how soon at the earliest what one of
// them or who asks reserves now can come.
func (l *Limiter) before(u *user) (bytes float64, near time.Duration) {
	near = u.near.get()
	for i := range l.users {
		v := &l.users[i]
		if v == u || !v.waiting || v.until <= l.last {
			continue
		}
		a, b := (v.credit-v.need)/v.weight, (u.credit-u.need)/u.weight
		if a > b || a == b && v.since < u.since {
			bytes += max(v.need, min(v.most, v.credit))
			near = min(near, v.near.get())
		}
	}
	return bytes, near
}

// room is what a second can still take of what comes not sooner than so long after now, if all that is expected of what is out comes in it.
func (l *Limiter) room(near time.Duration) float64 {
	room := mostPerSecond*l.rate.Load() - float64(l.came.since(near))
	for i := range l.users {
		if u := &l.users[i]; u.out > 0 && l.last-u.reserved <= overdue {
			room -= u.expected()
		}
	}
	return room
}

// expected is how many bytes may come of what is out. Who is at the end of its partitions reserves twice what came lately.
func (u *user) expected() float64 {
	if u.near.few() {
		return u.out + u.over
	}
	return min(u.out, u.brings) + u.over
}
