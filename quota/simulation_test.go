package quota

import (
	"cmp"
	"flag"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// checkSome is rapid.Check with fewer checks by default, simulations of seconds with many sharers, which the race detector slows down twentyfold; and always the same
// ones, since bounds that hold for nearly everything that can be drawn would fail once in some thousand. -rapid.checks and -rapid.seed draw others.
func checkSome(t *testing.T, property func(*rapid.T)) {
	t.Helper()
	checks, seed := flag.Lookup("rapid.checks"), flag.Lookup("rapid.seed")
	if checks.Value.String() == checks.DefValue && seed.Value.String() == seed.DefValue {
		_ = checks.Value.Set("15")
		_ = seed.Value.Set("1")
		defer func() {
			_ = checks.Value.Set(checks.DefValue)
			_ = seed.Value.Set(seed.DefValue)
		}()
	}
	rapid.Check(t, property)
}

// sharer is one of those who share a limiter in a simulation: between from and to it always asks, as a fetch loop does.
type sharer struct {
	weight   int
	want     int64
	rtt      time.Duration             // from a reservation to its settlement
	jitter   time.Duration             // by how much longer it is now and then
	batch    int64                     // what comes is whole batches, at least one; 0: exactly what was reserved
	supply   func(granted int64) int64 // what comes, if it is set
	from, to time.Duration             // to 0: for ever
	lost     bool                      // at its end it does not settle what is out

	at      time.Duration // when it acts next
	granted int64         // outstanding
	used    int64         // of what was granted last
	landed  []int64       // per tenth of a second
}

// sum is what came from one second to another.
func (s *sharer) sum(from, to float64) (n int64) {
	for _, b := range s.landed[int(from*10):int(to*10)] {
		n += b
	}
	return n
}

func (s *sharer) comes() int64 {
	switch {
	case s.supply != nil:
		return s.supply(s.granted)
	case s.batch > 0:
		return max(s.granted/s.batch, 1) * s.batch
	}
	return s.granted
}

// simulation is several sharers of a limiter. Its clock is its own, and so is its chance.
type simulation struct {
	l      *Limiter
	start  time.Time     // when the clock was 0
	late   time.Duration // timers are late by up to so much
	random *rand.Rand
	all    []*sharer
	most   int // users that the limiter knew at once
}

func newSimulation(rate int64, all ...*sharer) *simulation {
	start := time.Unix(1000, 0)
	return &simulation{l: NewLimiter(start, rate), start: start, random: rand.New(rand.NewPCG(1, 2)), all: all}
}

func (s *simulation) upTo(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return time.Duration(s.random.Int64N(int64(d)))
}

// run lets the clock go from 0 to so many seconds.
func (s *simulation) run(seconds int) {
	for _, u := range s.all {
		u.at = u.from
	}
	s.resume(seconds)
}

// resume goes on for so many seconds, which are counted from 0 again.
func (s *simulation) resume(seconds int) {
	end := time.Duration(seconds) * time.Second
	for _, u := range s.all {
		u.landed = make([]int64, 10*seconds)
	}
	for {
		u := slices.MinFunc(s.all, func(a, b *sharer) int { return cmp.Compare(a.at, b.at) })
		if u.at >= end {
			break
		}
		s.act(u)
		s.most = max(s.most, len(s.l.users))
	}
	s.start = s.start.Add(end)
	for _, u := range s.all {
		u.at -= end
	}
}

func (s *simulation) act(u *sharer) {
	now, leaves := s.start.Add(u.at), u.to > 0 && u.at >= u.to
	if u.granted > 0 && !(leaves && u.lost) {
		u.used = u.comes()
		s.l.SettleFor(now, u, u.granted, u.used)
		u.landed[u.at/(time.Second/10)] += u.used
		u.granted = 0
	}
	if leaves {
		u.at = math.MaxInt64 / 2 // and granted is what was not settled
		return
	}
	var retry time.Duration
	want := u.want
	if u.supply != nil && u.used == 0 {
		want = 1 // as a loop does after an answer without anything
	}
	if u.granted, retry = s.l.ReserveFor(now, u, u.weight, min(leastFetched, want), want); u.granted > 0 {
		u.at += u.rtt + s.upTo(u.jitter) + 50*time.Microsecond
	} else {
		u.at += max(retry, time.Microsecond) + s.upTo(s.late)
	}
}

// total is what all together got from one second to another.
func (s *simulation) total(from, to float64) (n int64) {
	for _, u := range s.all {
		n += u.sum(from, to)
	}
	return n
}

// worst is the second of the clock in which most came. The first one has what was saved up.
func (s *simulation) worst(from, seconds int) (n int64) {
	for i := from; i < seconds; i++ {
		n = max(n, s.total(float64(i), float64(i+1)))
	}
	return n
}

// demand is how many bytes per second somebody can use, told to come back after each of its turns or never.
func (u *sharer) demand(toldToWait time.Duration) float64 {
	return float64(u.want) / (u.rtt + u.jitter/2 + 50*time.Microsecond + toldToWait).Seconds()
}

// fair is what each gets of a rate: its part by weight, or what it can use if that is less, and then the others get the rest by weight.
func fair(rate float64, all []*sharer) []float64 {
	parts := make([]float64, len(all))
	for {
		left, weights := rate, 0.0
		for i, u := range all {
			if left -= parts[i]; parts[i] == 0 {
				weights += float64(u.weight)
			}
		}
		some := false
		for i, u := range all {
			if d := u.demand(0); parts[i] == 0 && d <= left*float64(u.weight)/weights {
				parts[i], some = d, true
			}
		}
		if !some {
			for i, u := range all {
				if parts[i] == 0 {
					parts[i] = left * float64(u.weight) / weights
				}
			}
			return parts
		}
	}
}
