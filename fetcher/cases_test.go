package fetcher_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/fetcher"
	"stet/internal/invariant"
	"stet/internal/testkit/scripted"
)

// Cases of CASES.md that are about the way from a source broker, in a bubble's time: only what is waited for takes any.

// wire makes an answer take what it would on a line of 1 GB/s with 100 us of work for each.
func wire(resp *kmsg.FetchResponse) {
	n := 0
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			n += len(resp.Topics[i].Partitions[j].RecordBatches)
		}
	}
	time.Sleep(100*time.Microsecond + time.Duration(n)*time.Nanosecond)
}

// C32: one busy partition among 100 idle ones, with fetch.min.bytes far above the limit per partition: no fetch waits, and the rate is at least half
// of that with 100 busy ones.
func TestC32OneBusyPartitionAmongIdleOnes(t *testing.T) {
	rate := func(busy int) (bytesPerSecond float64) {
		synctest.Test(t, func(t *testing.T) {
			r := newPipedRig(t, 1, fetcher.Options{})
			r.config = fetcher.DefaultConfig()
			r.config.MinBytes, r.config.PartitionMaxBytes = 4<<20, 256<<10
			r.m.SetMirror("m", r.leader, r.config)
			r.cluster.SetHook(func(c *scripted.Call) {
				if resp, ok := c.Response.(*kmsg.FetchResponse); ok {
					wire(resp)
				}
			})
			tp := r.cluster.CreateTopic("t", 101)
			const size = 64 << 10
			each := 400
			if invariant.Race { // all of them without the race detector
				each = 100
			}
			for i := range each {
				r.cluster.Produce(tp, int32(i%busy), 1, size)
			}
			sinks := make([]*memSink, len(tp.Logs))
			begin := time.Now()
			for p := range sinks {
				sinks[p] = newSink()
				sinks[p].discard = true
				r.add(tp, int32(p), sinks[p])
			}
			for p := range busy {
				// All but what is below the minimum that remains at the end of all, which is waited for rightly.
				sinks[p].untilEnd(t, max(tp.Logs[p].End()-4, 1))
			}
			bytesPerSecond = float64(each*size) / time.Since(begin).Seconds()
		})
		return bytesPerSecond
	}
	one, all := rate(1), rate(100)
	if one < all/2 {
		t.Errorf("%.0f MB/s with one busy partition, %.0f with 100", one/1e6, all/1e6)
	}
}

// C33: 10,000 partitions, of which one is busy. What a request names and a response holds is the busy one, whatever else there is; and the
// idle ones count as covered all the same.
func TestC33WorkFollowsWhatChanges(t *testing.T) {
	const rounds = 50
	partitions := 10_000
	if invariant.Race { // the race detector makes the first round of so many take minutes
		partitions = 2_000
	}
	r := newRig(t, 1)
	tp := r.cluster.CreateTopic("t", partitions)
	sinks := make([]*memSink, partitions)
	for p := range sinks {
		sinks[p] = newSink()
		r.add(tp, int32(p), sinks[p])
	}
	for p := range sinks {
		sinks[p].until(t, "every partition was answered once", func() bool { return len(sinks[p].obs) > 0 })
	}
	var counting atomic.Bool
	var requests, named, told, bytes atomic.Int64
	r.cluster.SetHook(func(c *scripted.Call) {
		req, ok := c.Request.(*kmsg.FetchRequest)
		if !ok || !counting.Load() {
			return
		}
		requests.Add(1)
		for _, t := range req.Topics {
			named.Add(int64(len(t.Partitions)))
		}
		for _, t := range req.ForgottenTopics {
			named.Add(int64(len(t.Partitions)))
		}
		for _, t := range c.Response.(*kmsg.FetchResponse).Topics {
			told.Add(int64(len(t.Partitions)))
		}
		bytes.Add(int64(len(req.AppendTo(nil)) + len(c.Frame())))
	})
	r.cluster.Produce(tp, 777, 1, 100) // ends the fetch that is under way
	sinks[777].untilEnd(t, 1)
	counting.Store(true)
	for i := range rounds {
		r.cluster.Produce(tp, 777, 1, 100)
		sinks[777].untilEnd(t, int64(i+2))
	}
	n := requests.Load()
	if n < rounds/2 {
		t.Fatalf("%d requests for %d batches", n, rounds)
	}
	if named.Load() > n+5 || told.Load() > n+5 || bytes.Load() > 600*(n+5) {
		t.Errorf("%d requests named %d partitions and brought %d of them in %d bytes: that is more than the busy one", n, named.Load(), told.Load(), bytes.Load())
	}
	before, ok := r.m.Status("m", id(tp, 1))
	r.cluster.Produce(tp, 777, 1, 100)
	sinks[777].untilEnd(t, rounds+2)
	if after, _ := r.m.Status("m", id(tp, 1)); !ok || !after.Covered.After(before.Covered) {
		t.Errorf("an idle partition was covered at %s and %s", before.Covered, after.Covered)
	}
}

// C34: the same bytes in batches of 200 B, 1 KiB and 64 KiB cost the same number of requests, responses, checks and appends (each one write of the
// log). That nothing is allocated per batch is TestNoAllocationPerBatch, whatever their size.
func TestC34SmallBatchesCostNoMore(t *testing.T) {
	type cost struct{ requests, appends, batches, checked, response int64 }
	const total = 4 << 20
	measure := func(size int) (c cost) {
		synctest.Test(t, func(t *testing.T) {
			r := newPipedRig(t, 1, fetcher.Options{})
			tp := r.cluster.CreateTopic("t", 4)
			var made int64
			for made < total {
				for p := range tp.Logs {
					made += int64(len(r.cluster.Produce(tp, int32(p), 1, size)))
				}
			}
			sinks := make([]*memSink, len(tp.Logs))
			for p := range sinks {
				sinks[p] = newSink()
				r.add(tp, int32(p), sinks[p])
			}
			for p, s := range sinks {
				s.untilEnd(t, tp.Logs[p].End())
				r.equal(tp, int32(p), s)
			}
			n := r.counters
			c = cost{n.Requests.Load(), n.Appends.Load(), n.AppendedBatches.Load(), n.CheckedBytes.Load(), n.ResponseBytes.Load()}
			if c.checked != made || n.AppendedBytes.Load() != made {
				t.Errorf("batches of %d bytes: %d bytes, %d checked, %d appended", size, made, c.checked, n.AppendedBytes.Load())
			}
		})
		return c
	}
	large := measure(64 << 10)
	for _, size := range []int{130, 950} { // 200 B and 1 KiB with the header
		small := measure(size)
		if small.batches < 50*large.batches/10 {
			t.Fatalf("%d batches of %d bytes, %d large ones: this test shows nothing", small.batches, size, large.batches)
		}
		if small.requests > large.requests+4 || small.appends > large.appends+8 || float64(small.response) > 1.05*float64(large.response) {
			t.Errorf("batches of %d bytes cost %+v, of 64 KiB %+v", size, small, large)
		}
	}
}

// C35: whatever the loads of the partitions, after a few rounds of balancing the busiest fetcher carries at most 1.3 times the mean: counted at the source, by the
// fetchers' client ids, while the copy runs.
func TestC35BusiestFetcher(t *testing.T) {
	for _, rtt := range []time.Duration{time.Millisecond, 80 * time.Millisecond} { // on a long way with lanes
		t.Run(rtt.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const fetchers = 4
				r := newPipedRig(t, 1, fetcher.Options{Fetchers: fetchers})
				r.m.SetMirror("m", &farLeader{Leader: r.src, rtt: rtt, open: map[int]int{}}, r.config)
				tp := r.cluster.CreateTopic("t", 48)
				sinks := make([]*memSink, len(tp.Logs))
				for p := range sinks {
					sinks[p] = newSink()
					r.add(tp, int32(p), sinks[p])
				}
				var mu sync.Mutex
				carried := map[string]int64{}
				r.cluster.SetHook(func(c *scripted.Call) {
					resp, ok := c.Response.(*kmsg.FetchResponse)
					if !ok {
						return
					}
					mu.Lock()
					defer mu.Unlock()
					for _, t := range resp.Topics {
						for _, p := range t.Partitions {
							carried[c.Header.ClientID] += int64(len(p.RecordBatches))
						}
					}
				})
				second := func() {
					for range 5 {
						for p := range tp.Logs {
							if p%fetchers == 0 { // all of the load is on one fetcher to begin with, unevenly
								r.cluster.Produce(tp, int32(p), 2+p/4, 300)
							} else if p%5 == 0 {
								r.cluster.Produce(tp, int32(p), 1, 100)
							}
						}
						time.Sleep(200 * time.Millisecond)
					}
				}
				for range 6 {
					second()
					r.m.Balance()
				}
				mu.Lock()
				clear(carried)
				mu.Unlock()
				for range 3 {
					second()
				}
				mu.Lock()
				var total, busiest int64
				for name, n := range carried {
					if !strings.HasPrefix(name, "broker-7-fetcher-") {
						t.Errorf("client id %q", name)
					}
					total += n
					busiest = max(busiest, n)
				}
				mean := float64(total) / fetchers
				if len(carried) != fetchers || float64(busiest) > 1.3*mean {
					t.Errorf("the busiest fetcher carries %.2f times the mean: %v", float64(busiest)/mean, fmt.Sprint(carried))
				}
				mu.Unlock()
				for p, s := range sinks {
					s.untilEnd(t, tp.Logs[p].End())
					r.equal(tp, int32(p), s)
				}
			})
		})
	}
}
