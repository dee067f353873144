package quota

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestWhoComesAndGoes: some stop for ever, in the middle of a request or after one, others come. A second later everything is shared by those who are there,
// what was kept for the others is with them, and the limiter has forgotten those who settled.
func TestWhoComesAndGoes(t *testing.T) {
	checkSome(t, func(t *rapid.T) {
		const seconds = 18
		rate := drawRate(t)
		stay, gone := drawSharers(t, 8), drawSharers(t, 8)
		come := drawSharers(t, 8)
		lost := rapid.Bool().Draw(t, "in the middle of a request")
		for _, u := range gone {
			u.to, u.lost = 4*time.Second, lost
		}
		for _, u := range come {
			u.from = 11 * time.Second
		}
		all := append(append(append([]*sharer(nil), stay...), gone...), come...)
		s := newSimulation(rate, all...)
		s.late = time.Duration(rapid.SampledFrom([]int{0, 1, 20}).Draw(t, "timers late by up to ms")) * time.Millisecond
		s.run(seconds)
		s.checkRate(t, rate, 1, seconds, 1.2, 0)
		for _, phase := range []struct {
			from, to float64
			all      []*sharer
		}{{1, 4, append(append([]*sharer(nil), stay...), gone...)}, {5, 11, stay}, {12, seconds, append(append([]*sharer(nil), stay...), come...)}} {
			long := phase.to - phase.from
			if n := float64(s.total(phase.from, phase.to)); math.Abs(n-long*float64(rate)) > 0.3*float64(rate) { // what is on its way at the begin or the end
				t.Errorf("from %v to %v s: %.0f bytes at a rate of %d", phase.from, phase.to, n, rate)
			}
			for i, part := range fair(long*float64(rate), phase.all) {
				u := phase.all[i]
				if got := float64(u.sum(phase.from, phase.to)); got < 0.9*part-0.2*part/long-2*turn(rate, u, phase.all) {
					t.Errorf("from %v to %v s: weight %d of %.0f, %s away, got %.0f bytes of %.0f", phase.from, phase.to, u.weight, weights(phase.all), u.rtt, got, part)
				}
			}
		}
		var reserved int64
		for _, u := range gone {
			reserved += u.granted // what they had reserved is lost, no more
		}
		if n := float64(s.total(4, 5) + reserved); n < 0.5*float64(rate) { // somebody 0.2 s away does not make up for it at once
			t.Errorf("in the second after some have gone %.0f bytes came at a rate of %d", n, rate)
		}
		known := len(stay) + len(come)
		if lost {
			known += len(gone)
		}
		s.l.fill(s.start)
		s.l.expire()
		if s.most > len(all) || len(s.l.users) > known {
			t.Errorf("%d users are known of %d, %d at once", len(s.l.users), known, s.most)
		}
	})
}

// TestLostUsersAreForgotten: who never settles is forgotten in a minute, and so is a debt that nobody waits for.
func TestLostUsersAreForgotten(t *testing.T) {
	now := time.Unix(1000, 0)
	l := NewLimiter(now, 1_000_000)
	for i := range 100 {
		l.ReserveFor(now, i, 1, leastFetched, 1<<20)
		now = now.Add(10 * time.Millisecond)
	}
	l.SettleFor(now, 0, 0, 1<<40)
	now = now.Add(2 * forget)
	l.ReserveFor(now, "somebody", 1, leastFetched, 1<<20)
	if len(l.users) != 1 {
		t.Errorf("%d users are known", len(l.users))
	}
	if l.tokens() > -1e11 {
		t.Errorf("%.0f bytes in the bucket: a debt does not go with who made it", l.tokens())
	}
	l.SetRate(now, Unlimited)
	if l.ReserveFor(now, "somebody", 1, leastFetched, 1<<20); len(l.users) != 0 {
		t.Errorf("%d users are known without a limit", len(l.users))
	}
}

// TestWhoIsLeftGetsEverything: of 32 who asked all the time one goes on, 0.2 s away: half a second later it has the whole rate.
func TestWhoIsLeftGetsEverything(t *testing.T) {
	const rate = 20_000_000
	s := newSimulation(rate, &sharer{weight: 1, want: 10 << 20, rtt: 200 * time.Millisecond})
	for range 31 {
		s.all = append(s.all, &sharer{weight: 5, want: 10 << 20, rtt: time.Millisecond, to: 3 * time.Second})
	}
	s.run(12)
	if n := s.all[0].sum(3.5, 11.5); n < 8*rate*97/100 {
		t.Errorf("%d bytes of %d", n, 8*rate)
	}
	if n := s.total(3, 4); n < rate/2 { // not more than 0.2 s worth on its way at once
		t.Errorf("%d bytes in the second in which the others stopped", n)
	}
}

// TestRateOfManyIsChangedLive: the second that begins a second after a change obeys it, whoever shares the rate (SPEC section 12), also when what was reserved
// at a higher rate, or without a limit, is given back afterwards.
func TestRateOfManyIsChangedLive(t *testing.T) {
	checkSome(t, func(t *rapid.T) {
		all := drawSharers(t, 16)
		for _, u := range all {
			u.want = 10 << 20
		}
		if rapid.Bool().Draw(t, "given back") {
			all[0].rtt += 5 * time.Millisecond
			all[0].supply = func(granted int64) int64 { return granted / 100 }
		}
		s := newSimulation(drawRate(t), all...)
		s.run(3)
		for range 3 {
			rate := drawRate(t)
			now := s.start
			if rapid.Bool().Draw(t, "unlimited for a moment") {
				s.l.SetRate(now, Unlimited)
				for _, u := range all {
					u.granted, _ = s.l.ReserveFor(now, u, u.weight, leastFetched, u.want)
				}
			}
			s.l.SetRate(now, rate)
			s.resume(4)
			for second := 1.0; second < 4; second++ {
				if n := s.total(second, second+1); n > rate*12/10+16<<10 { // a batch
					t.Errorf("%d bytes in second %.0f at a rate of %d", n, second, rate)
				}
			}
		}
	})
}

// TestRateFallsTwiceInAFlight: what was reserved at the first rate and comes at the third one holds nobody up.
func TestRateFallsTwiceInAFlight(t *testing.T) {
	now := time.Unix(1000, 0)
	l := NewLimiter(now, 200_000_000)
	far, _ := l.ReserveFor(now, "far", 1, leastFetched, 20_000_000)
	l.SetRate(now, 50_000_000)
	l.SetRate(now, 2_000_000)
	now = now.Add(100 * time.Millisecond)
	l.SettleFor(now, "far", far, far)
	for waited := time.Duration(0); ; {
		granted, retry := l.ReserveFor(now, "near", 1, leastFetched, 1<<20)
		if granted > 0 {
			break
		}
		if waited += retry; waited > 300*time.Millisecond {
			t.Fatalf("somebody else waits for more than %s", waited)
		}
		now = now.Add(retry)
	}
}

// TestUsersAreNotAllocated: a loop that reserves and settles costs no allocation, however many others there are.
func TestUsersAreNotAllocated(t *testing.T) {
	now := time.Unix(1000, 0)
	l := NewLimiter(now, 20_000_000)
	users := make([]any, 32)
	for i := range users {
		users[i] = new(int)
		l.ReserveFor(now, users[i], 1, leastFetched, 1<<20)
	}
	if n := testing.AllocsPerRun(1000, func() {
		for _, u := range users {
			now = now.Add(time.Millisecond)
			if granted, _ := l.ReserveFor(now, u, 2, leastFetched, 1<<20); granted > 0 {
				l.SettleFor(now, u, granted, granted/2)
			}
		}
	}); n > 0 {
		t.Errorf("%.1f allocations per round", n)
	}
}
