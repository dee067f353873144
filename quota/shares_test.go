package quota

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// drawRate draws a rate, all orders of magnitude alike.
func drawRate(t *rapid.T) int64 {
	return int64(math.Exp(rapid.Float64Range(math.Log(500_000), math.Log(200_000_000)).Draw(t, "log of the rate")))
}

// drawSharers draws some who want any amount, with weights, and round trips up to one that is drawn.
func drawSharers(t *rapid.T, most int) (all []*sharer) {
	rtt := rapid.SampledFrom([]int{0, 1, 5, 40, 200}).Draw(t, "longest round trip in ms")
	jitter := rapid.Bool().Draw(t, "jitter")
	for range rapid.IntRange(1, most).Draw(t, "sharers") {
		u := &sharer{
			weight: rapid.SampledFrom([]int{1, 2, 5}).Draw(t, "weight"), want: 1 << 30,
			rtt: time.Duration(rapid.IntRange(0, rtt).Draw(t, "round trip")) * time.Millisecond,
		}
		if jitter {
			u.rtt /= 2
			u.jitter = u.rtt
		}
		all = append(all, u)
	}
	return all
}

func weights(all []*sharer) (sum float64) {
	for _, u := range all {
		sum += float64(u.weight)
	}
	return sum
}

// turn is what somebody takes in a turn while others wait.
func turn(rate int64, u *sharer, all []*sharer) float64 {
	r := float64(rate)
	return min(max(min(leastFetched, r/20), r/10*float64(u.weight)/weights(all)), float64(u.want))
}

// checkRate fails when a second after the first one has more than so many times the rate, beyond a batch.
func (s *simulation) checkRate(t *rapid.T, rate int64, from, seconds int, times float64, batch int64) {
	if n := s.worst(from, seconds); float64(n-batch) > times*float64(rate) {
		t.Errorf("%d bytes in a second at a rate of %d, batches up to %d", n, rate, batch)
	}
}

// TestSharesAreFair: up to 32 who always want more, with weights 1, 2 and 5, round trips of 0 to 0.2 s and timers that are late, get in ten seconds at least 0.95 of
// their part by weight, up to two turns, whatever the others do; together they get the rate, and no second exceeds it by more than a fifth.
func TestSharesAreFair(t *testing.T) {
	checkSome(t, func(t *rapid.T) {
		const seconds = 12
		rate, all := drawRate(t), drawSharers(t, 32)
		batches := 0.0
		var largest int64
		if rapid.Bool().Draw(t, "whole batches") {
			for _, u := range all {
				u.batch = rapid.Int64Range(200, 64<<10).Draw(t, "batch")
				batches += float64(u.batch)
				largest = max(largest, u.batch)
			}
		}
		s := newSimulation(rate, all...)
		s.late = time.Duration(rapid.SampledFrom([]int{0, 1, 20}).Draw(t, "timers late by up to ms")) * time.Millisecond
		s.run(seconds)
		s.checkRate(t, rate, 1, seconds, 1.2, largest)
		if n := s.total(2, seconds); math.Abs(float64(n-10*rate)) > float64(rate/4+largest) { // 2 %, and what is on its way at the begin or the end
			t.Errorf("%d bytes in ten seconds at a rate of %d", n, rate)
		}
		for i, part := range fair(float64(rate), all) {
			u := all[i]
			slack := 2*max(turn(rate, u, all), float64(u.batch)) + batches*float64(u.weight)/weights(all)
			if got := float64(u.sum(2, seconds)); got < 0.95*10*part-slack {
				t.Errorf("weight %d of %.0f, %s away, got %.0f bytes of %.0f", u.weight, weights(all), u.rtt, got, 10*part)
			}
		}
	})
}

// TestSharesOfSmallRequests: some want little per request, so that they may not be able to use their part. Those who want much have theirs, those
// who want little what they can use of it, and nothing of the rate is lost that somebody can use.
func TestSharesOfSmallRequests(t *testing.T) {
	checkSome(t, func(t *rapid.T) {
		const seconds = 12
		rate, all := drawRate(t), drawSharers(t, 16)
		for _, u := range all[1:] {
			u.rtt += time.Millisecond
			u.want = rapid.SampledFrom([]int64{4 << 10, 16 << 10, 256 << 10, 1 << 20, 1 << 30}).Draw(t, "want")
		}
		s := newSimulation(rate, all...)
		s.late = time.Duration(rapid.SampledFrom([]int{0, 1, 20}).Draw(t, "timers late by up to ms")) * time.Millisecond
		s.run(seconds)
		s.checkRate(t, rate, 1, seconds, 1.2, 0)
		if n := s.total(2, seconds); math.Abs(float64(n-10*rate)) > 0.25*float64(rate) { // 2 %, and what is on its way at the begin or the end
			t.Errorf("%d bytes in ten seconds at a rate of %d", n, rate)
		}
		for _, u := range all {
			part := 10 * min(float64(rate)*float64(u.weight)/weights(all), u.demand(s.late+lookAgain))
			if got := float64(u.sum(2, seconds)); got < 0.95*part-2*turn(rate, u, all) {
				t.Errorf("weight %d of %.0f, %s away, wants %d, got %.0f bytes of %.0f", u.weight, weights(all), u.rtt, u.want, got, part)
			}
		}
	})
}

// TestNearAndFar: the shares of few who seldom meet: who is near, and asks much more often, gets no more than its part.
func TestNearAndFar(t *testing.T) {
	for _, rate := range []int64{1_000_000, 20_000_000, 200_000_000} {
		for _, ms := range [][]int{{1, 4}, {0, 200}, {0, 40, 200}, {200, 200}, {150, 170, 190}} {
			for _, w := range [][]int{{1, 1, 1}, {1, 2, 5}, {5, 2, 1}} {
				t.Run(fmt.Sprintf("%d bytes per second, round trips %v ms, weights %v", rate, ms, w), func(t *testing.T) {
					s := newSimulation(rate)
					for i, rtt := range ms {
						s.all = append(s.all, &sharer{weight: w[i], want: 1 << 30, rtt: time.Duration(rtt) * time.Millisecond})
					}
					s.late = time.Millisecond
					s.run(22)
					if n := s.total(2, 22); n < 20*rate*98/100 || n > 20*rate*102/100 {
						t.Errorf("%d bytes in 20 seconds", n)
					}
					for i, part := range fair(float64(rate), s.all) {
						if got := float64(s.all[i].sum(2, 22)); math.Abs(got-20*part) > 0.03*20*part+turn(rate, s.all[i], s.all) {
							t.Errorf("weight %d, %d ms away: %.0f bytes of %.0f", w[i], ms[i], got, 20*part)
						}
					}
				})
			}
		}
	}
}

// TestTailsLeaveTheRestToOthers: beside some who always want more are loops at the end of their partitions, whose requests bring nothing or a little after up to
// half a second. What they leave the others share by weight: nothing is lost as long as what the tails' answers may bring at once is no more than a second may have
// beyond the rate. If it is more, the others get less: what may come is kept free for it.
func TestTailsLeaveTheRestToOthers(t *testing.T) {
	checkSome(t, func(t *rapid.T) {
		const seconds = 22
		rate, busy := drawRate(t), drawSharers(t, 6)
		all := append([]*sharer(nil), busy...)
		tails := rapid.IntRange(1, 26).Draw(t, "tails")
		most := min(50_000, rate/20)
		if rapid.Bool().Draw(t, "light") {
			most = min(most, rate/20/int64(tails))
		}
		var largest, out int64 // out is what they reserve, all together
		for range tails {
			n := rapid.Int64Range(0, most).Draw(t, "bytes per response")
			largest = max(largest, n)
			out += max(2*n, leastTurn)
			u := &sharer{weight: rapid.SampledFrom([]int{1, 2, 5}).Draw(t, "weight"), want: 1 << 30, jitter: 500 * time.Millisecond, supply: func(int64) int64 { return n }}
			all = append(all, u)
		}
		s := newSimulation(rate, all...)
		s.late = time.Duration(rapid.SampledFrom([]int{0, 1, 20}).Draw(t, "timers late by up to ms")) * time.Millisecond
		s.run(seconds)
		s.checkRate(t, rate, 1, seconds, 1.2, largest)
		if n := float64(s.total(2, seconds)); n < 0.9*20*float64(rate) {
			t.Errorf("%.3f of the rate came, %.2f is out for tails", n/20/float64(rate), float64(out)/float64(rate))
		}
		least, left := 0.9, float64(20*rate)
		if out > rate/10 {
			least = 0.5
		}
		for _, u := range all[len(busy):] {
			left -= float64(u.sum(2, seconds))
		}
		for i, part := range fair(max(left, 0), busy) {
			u := busy[i]
			if got := float64(u.sum(2, seconds)); got < least*part-3*turn(rate, u, busy) {
				t.Errorf("weight %d of %.0f, %s away, got %.0f bytes of %.0f", u.weight, weights(busy), u.rtt, got, part)
			}
		}
	})
}

// TestLargeAndSmallBatches: batches that are ten times what the bucket can hold take no more of the rate than small ones.
func TestLargeAndSmallBatches(t *testing.T) {
	const rate, seconds = 1_000_000, 122
	large := &sharer{weight: 1, want: 10 << 20, rtt: 10 * time.Millisecond, batch: 1 << 20}
	small := &sharer{weight: 1, want: 10 << 20, rtt: 10 * time.Millisecond, batch: 10_000}
	heavy := &sharer{weight: 2, want: 10 << 20, rtt: time.Millisecond, batch: 1 << 20}
	s := newSimulation(rate, large, small, heavy)
	s.run(seconds)
	for _, u := range s.all {
		part := int64(u.weight) * rate * 120 / 4
		if got := u.sum(2, seconds); got < part-2<<20 || got > part+2<<20 {
			t.Errorf("weight %d, batches of %d: %d bytes of %d", u.weight, u.batch, got, part)
		}
	}
	if n := s.worst(1, seconds); n > rate*12/10+1<<20 {
		t.Errorf("%d bytes in a second", n)
	}
}
