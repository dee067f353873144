package quota

import "time"

const (
	// mostPerSecond is how many times the rate's bytes of a second any second may have (SPEC section 12), a little less for roundings.
	mostPerSecond = 1.199
	// spare is the part of it that is left to those who use little, so that who is far away and uses all of it does not keep them waiting.
	spare = 0.02
	// slot is how exactly the limiter knows when bytes came. slots of them are a second or a little more.
	slot  = 10 * time.Millisecond
	slots = int64(time.Second/slot) + 1 // the last one has only begun
	// flightsKept is over how many flights, at least, the shortest is remembered.
	flightsKept = 32
	// overdue is after which time the answer to a request is not expected to come together with others'.
	overdue = 2 * time.Second
)

// arrivals is how many bytes came in each of the last slots of the clock.
//
// What is reserved now comes later, so a bucket of tokens alone bounds the seconds in which bytes are asked for and not those in which they come: what was
// reserved long ago by somebody far away comes together with what somebody near has just reserved. So a reservation also needs room in the second in which it
// may come. Proof that no second has more than the limit: of all that comes in a second let R be what was reserved last. What else comes in it had come
// already when R was reserved, not longer ago than a second before R can come at the earliest, or was reserved then. Both were counted for R. It holds as long as
// nobody is nearer than its last flights say or brings more than is expected of it (users.go), and what is out for longer than overdue does not come together.
type arrivals struct {
	bytes [slots]int64
	all   int64 // the sum of bytes
	last  int64 // the slot of the clock up to which bytes is true
}

// at brings the slots up to a time; those that begin are empty.
func (a *arrivals) at(now time.Duration) {
	to := int64(now / slot)
	for n := max(a.last, to-slots) + 1; n <= to; n++ {
		a.all -= a.bytes[n%slots]
		a.bytes[n%slots] = 0
	}
	a.last = max(a.last, to)
}

func (a *arrivals) add(bytes int64) {
	a.all += bytes
	a.bytes[a.last%slots] += bytes
}

// since is what came in the last second up to so long after now.
func (a *arrivals) since(ahead time.Duration) (sum int64) {
	sum = a.all
	for n := a.last + 1; n < a.last+1+min(int64(ahead/slot), slots); n++ { // the oldest ones
		sum -= a.bytes[n%slots]
	}
	return sum
}

// until is after which time so many bytes of since are a second ago.
func (a *arrivals) until(now, ahead time.Duration, bytes float64) time.Duration {
	n := a.last + 1 + int64(ahead/slot)
	for ; n < a.last+slots && bytes > 0; n++ {
		bytes -= float64(a.bytes[n%slots])
	}
	return max(time.Duration(n)*slot-ahead-now, leastWait)
}

// shortest is the shortest of some durations that came last, at least flightsKept and at most twice as many.
type shortest struct {
	this, before time.Duration // of the last ones, and of the flightsKept before; 0: none yet
	n            int
}

func (s *shortest) add(d time.Duration) {
	if s.n == flightsKept {
		s.before, s.this, s.n = s.this, 0, 0
	}
	if s.this == 0 || d < s.this {
		s.this = d
	}
	s.n++
}

// few says that there are too few to believe them.
func (s *shortest) few() bool { return s.before == 0 && s.n < flightsKept/4 }

// get is a little less than the shortest, less while there are few, and 0 at first.
func (s *shortest) get() time.Duration {
	switch {
	case s.few():
		return 0
	case s.before == 0:
		return s.this * 3 / 4
	case s.n == 0:
		return s.before * 7 / 8
	}
	return min(s.this, s.before) * 7 / 8
}
