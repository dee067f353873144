package fetcher_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/fetcher"
	"stet/internal/invariant"
	"stet/internal/testkit/scripted"
	"stet/quota"
)

// The throttle of SPEC section 12 from the source to the log, in a bubble's time: real fetch loops, one limiter, bytes counted per second. The rates are
// those of C41 and C78 divided by 200 and 100, so that the test moves megabytes and not gigabytes.

type throttleRig struct {
	*rig
	limiter    *quota.Limiter
	slow, free *scripted.Topic
	sinks      map[*scripted.Topic][]*memSink
}

// newThrottleRig throttles topic "slow"; the way to the source and back takes rtt.
func newThrottleRig(t *testing.T, rate int64, rtt time.Duration, o fetcher.Options) *throttleRig {
	l := quota.NewLimiter(time.Now(), rate)
	o.Throttle, o.Throttled = l, func(_ string, id fetcher.ID) bool { return strings.HasPrefix(id.Topic, "slow") }
	r := &throttleRig{rig: newPipedRig(t, 2, o), limiter: l, sinks: map[*scripted.Topic][]*memSink{}}
	r.m.SetMirror("m", &farLeader{Leader: r.src, rtt: rtt, open: map[int]int{}}, r.config)
	r.cluster.SetHook(func(c *scripted.Call) {
		if _, ok := c.Response.(*kmsg.FetchResponse); ok {
			time.Sleep(rtt)
		}
	})
	r.slow, r.free = r.cluster.CreateTopic("slow", 8), r.cluster.CreateTopic("free", 2)
	for _, tp := range []*scripted.Topic{r.slow, r.free} {
		for p := range tp.Logs {
			s := newSink()
			r.sinks[tp] = append(r.sinks[tp], s)
			r.add(tp, int32(p), s)
		}
	}
	return r
}

func (r *throttleRig) copied(tp *scripted.Topic) (n int64) {
	for _, s := range r.sinks[tp] {
		s.mu.Lock()
		n += int64(len(s.bytes))
		s.mu.Unlock()
	}
	return n
}

// TestThrottleKeepsTheRate: 250 kB/s, 1 MB/s and 100 kB/s, set live (C41), near the source and on a long way with lanes, from two source brokers: per second and over ten as SPEC section 12 says;
// a free topic beside it (C40) has its records as soon as they
// are produced, and the throttled partitions get the same.
func TestThrottleKeepsTheRate(t *testing.T) {
	for _, tc := range []struct {
		rtt  time.Duration
		busy int // partitions: with 4 those of one source broker, while the loops of the other one wait at its end
	}{{time.Millisecond, 8}, {80 * time.Millisecond, 8}, {time.Millisecond, 4}, {80 * time.Millisecond, 4}} {
		if invariant.Race && (tc.rtt == time.Millisecond) == (tc.busy == 8) {
			continue // all four without the race detector
		}
		t.Run(fmt.Sprintf("%s, %d busy", tc.rtt, tc.busy), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newThrottleRig(t, 250_000, tc.rtt, fetcher.Options{Fetchers: 2})
				for p := range r.slow.Logs {
					if tc.busy == 8 || p%2 == 0 {
						for range 18_000_000 / tc.busy / 1500 { // 18 MB in all
							r.cluster.Produce(r.slow, int32(p), 1, 1400)
						}
					}
				}
				batch := int64(len(r.slow.Logs[0].Batches[0]))
				second := func() int64 {
					before := r.copied(r.slow)
					for p := range r.free.Logs {
						r.cluster.Produce(r.free, int32(p), 1, 5000)
					}
					time.Sleep(time.Second)
					for p := range r.free.Logs {
						if end := r.sinks[r.free][p].LogEndOffset(); end != r.free.Logs[p].End() {
							t.Errorf("the free topic is held up: log end %d of %d", end, r.free.Logs[p].End())
						}
					}
					return r.copied(r.slow) - before
				}
				for _, rate := range []int64{250_000, 1_000_000, 100_000} {
					r.limiter.SetRate(time.Now(), rate)
					r.m.Rethrottle()
					second()
					var ten int64
					for s := range 10 {
						n := second()
						if n > rate*12/10+batch {
							t.Errorf("rate %d, second %d after the change: %d bytes", rate, s+2, n)
						}
						ten += n
					}
					if off := max(ten-10*rate, 10*rate-ten); off > max(rate/5, batch) {
						t.Errorf("rate %d: %d bytes in ten seconds, %.1f %% off", rate, ten, float64(off)/float64(rate)*10)
					}
					var ends []int64
					for p, s := range r.sinks[r.slow] {
						if tc.busy == 8 || p%2 == 0 {
							ends = append(ends, s.LogEndOffset())
						}
					}
					if least, most := slices.Min(ends), slices.Max(ends); least < most*85/100 {
						t.Errorf("rate %d: the partitions are at %v", rate, ends)
					}
					if st, _ := r.m.Status("m", id(r.slow, 0)); !st.Throttled {
						t.Error("the status does not say that the partition is throttled")
					}
					if st, _ := r.m.Status("m", id(r.free, 0)); st.Throttled {
						t.Error("the status says that the free partition is throttled")
					}
				}
				r.limiter.SetRate(time.Now(), quota.Unlimited)
				r.m.Rethrottle()
				for _, tp := range []*scripted.Topic{r.slow, r.free} {
					for p, s := range r.sinks[tp] {
						s.untilEnd(t, tp.Logs[p].End())
						r.equal(tp, int32(p), s)
					}
				}
			})
		})
	}
}

// TestOneHugeBatchUnderAThrottle: a batch of four seconds' worth passes whole, is paid off before anything else comes, is shown as throttled all
// the while, and the wait is counted for as long as it was (C78).
func TestOneHugeBatchUnderAThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var held atomic.Int64
		r := newThrottleRig(t, 50_000, time.Millisecond, fetcher.Options{OnThrottle: func(_ string, own bool, d time.Duration) {
			if own {
				held.Add(int64(d))
			}
		}})
		r.cluster.Produce(r.slow, 0, 1, 200_000)
		s := r.sinks[r.slow][0]
		s.untilEnd(t, 1)
		begin := time.Now()
		r.cluster.Produce(r.slow, 0, 1, 100)
		for range 3 {
			time.Sleep(time.Second)
			if st, _ := r.m.Status("m", id(r.slow, 0)); !st.Throttled || s.LogEndOffset() != 1 {
				t.Errorf("%s after the batch: throttled %v, log end %d", time.Since(begin), st.Throttled, s.LogEndOffset())
			}
		}
		s.untilEnd(t, 2)
		if took := time.Since(begin); took < 3500*time.Millisecond || took > 4500*time.Millisecond {
			t.Errorf("the next batch came after %s", took)
		}
		if h := time.Duration(held.Load()); h < 3*time.Second {
			t.Errorf("%s were counted as held back", h)
		}
		r.equal(r.slow, 0, s)
	})
}
