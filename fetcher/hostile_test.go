package fetcher_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/fetcher"
	"stet/internal/testkit/scripted"
)

// A hostile source, for as long as it likes (issue 5, "Bad input and faults"). What the tests show for each misbehaviour: an error that
// names the broker and what it did, memory that a claim does not take from others, back-off, the partitions of other brokers
// going on, and recovery without anybody's help. The clock is that of a bubble, the timeouts are the defaults.

// misbehaviours answer a fetch with something that is not an answer.
var misbehaviours = []struct {
	name string
	do   func(c *scripted.Call, resp *kmsg.FetchResponse)
	text string // part of the error
	// each is the time that one attempt may take at most: its own wait and the request timeout.
	each time.Duration
}{
	{"wrong correlation id", func(c *scripted.Call, _ *kmsg.FetchResponse) { c.Header.CorrelationID ^= 0x55 }, "correlation id", 0},
	{"claims two GiB", func(c *scripted.Call, _ *kmsg.FetchResponse) { c.Raw = []byte{0x7f, 0xff, 0xff, 0xff} }, "frame size 2147483647", 0},
	{"half a frame and the end", func(c *scripted.Call, _ *kmsg.FetchResponse) {
		c.Raw = c.Frame()
		c.Raw, c.Close = c.Raw[:len(c.Raw)/2], true
	}, "unexpected EOF", 0},
	{"half a frame and silence", func(c *scripted.Call, _ *kmsg.FetchResponse) {
		c.Raw = c.Frame()
		c.Raw, c.Stall = c.Raw[:len(c.Raw)/2], true
	}, "no whole answer to a fetch within 30.", 31 * time.Second},
	{"stops answering", func(c *scripted.Call, _ *kmsg.FetchResponse) { c.Raw, c.Stall = []byte{}, true }, "no whole answer to a fetch within 30.", 31 * time.Second},
	{"one byte per second", func(c *scripted.Call, _ *kmsg.FetchResponse) { c.Pace = time.Second }, "no whole answer to a fetch within 30.", 31 * time.Second},
	{"claims 120 MiB, one byte per second", func(c *scripted.Call, _ *kmsg.FetchResponse) {
		c.Raw = append(binary.BigEndian.AppendUint32(nil, 120<<20), make([]byte, 1<<20)...)
		c.Pace = time.Second
	}, "no whole answer to a fetch within 30.", 31 * time.Second},
	{"garbage", func(c *scripted.Call, _ *kmsg.FetchResponse) {
		c.Raw = c.Frame()
		for i := 12; i < len(c.Raw); i++ {
			c.Raw[i] = 0xee
		}
	}, "", 0},
	{"zero progress", func(_ *scripted.Call, resp *kmsg.FetchResponse) {
		for i := range resp.Topics {
			for j := range resp.Topics[i].Partitions {
				if p := &resp.Topics[i].Partitions[j]; len(p.RecordBatches) > 20 {
					p.RecordBatches = p.RecordBatches[:20]
				}
			}
		}
	}, fetcher.ErrZeroProgress.Error(), 0},
}

func TestHostileBrokerHoldsNobodyUp(t *testing.T) {
	for _, tc := range misbehaviours {
		for _, lanes := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, lanes %v", tc.name, lanes), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newPipedRig(t, 2, fetcher.Options{Memory: 64 << 20})
					r.config.MaxWait = 500 * time.Millisecond
					r.m.SetMirror("m", r.leader, r.config)
					if lanes { // the hostile broker is far away
						r.m.SetMirror("m", &farLeader{Leader: r.src, rtt: 80 * time.Millisecond, open: map[int]int{}}, r.config)
					}
					tp := r.cluster.CreateTopic("t", 12) // the odd partitions are led by broker 2
					sinks := make([]*memSink, len(tp.Logs))
					var hostile atomic.Bool
					var asked atomic.Int64
					hostile.Store(true)
					r.cluster.SetHook(func(c *scripted.Call) {
						if resp, ok := c.Response.(*kmsg.FetchResponse); ok && c.Broker == 1 && hostile.Load() {
							asked.Add(1)
							tc.do(c, resp)
						}
					})
					for p := range sinks {
						sinks[p] = newSink()
						r.cluster.Produce(tp, int32(p), 3, 1000)
						r.add(tp, int32(p), sinks[p])
					}
					begin := time.Now()
					for i := range 38 { // two seconds each
						before := time.Now()
						for p := 1; p < len(sinks); p += 2 {
							r.cluster.Produce(tp, int32(p), 1, 1000)
							sinks[p].untilEnd(t, int64(3+i+1))
						}
						if took := time.Since(before); took > time.Second {
							t.Fatalf("the other broker's partitions were held up for %s", took)
						}
						if n := r.pool.Leased(); n > 40<<20 {
							t.Fatalf("%d bytes of the budget are leased", n)
						}
						time.Sleep(2 * time.Second)
						switch i { // the fetchers are resized meanwhile
						case 10:
							r.m.Resize(3)
						case 20:
							r.m.Resize(1)
						}
					}
					elapsed := time.Since(begin)
					for p := 0; p < len(sinks); p += 2 {
						if end := sinks[p].LogEndOffset(); end != 0 {
							t.Fatalf("partition %d: something was appended: %d", p, end)
						}
					}
					// Back-off: once it is clear what the broker is, one attempt per second or two, whatever the number of connections, beside those that
					// were open before.
					if n, most := asked.Load(), int64(elapsed/time.Second)*2+30; n < 2 || n > most {
						t.Errorf("%d fetches in %s, want at most %d", n, elapsed, most)
					}
					r.events.mu.Lock()
					var said []string
					for _, err := range r.events.brokers {
						if err != nil {
							said = append(said, err.Error())
						}
					}
					r.events.mu.Unlock()
					if len(said) == 0 || !strings.Contains(said[len(said)-1], tc.text) || strings.Contains(said[len(said)-1], "\n") {
						t.Errorf("the operator reads %q, want %q", said, tc.text)
					}
					hostile.Store(false)
					healed := time.Now()
					for p, s := range sinks {
						s.untilEnd(t, tp.Logs[p].End())
						r.equal(tp, int32(p), s)
					}
					if took := time.Since(healed); took > tc.each+2*time.Second {
						t.Errorf("it took %s after the source was well", took)
					}
				})
			})
		}
	}
}

// TestFramesLargerThanAsked: a source that answers with whole batches far beyond the limits is taken at its word as long as the bytes are good; memory is that
// of one such frame beside the budget, whatever the number of connections that do it at once.
func TestFramesLargerThanAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPipedRig(t, 4, fetcher.Options{})
		r.pool.SetBudget(4 << 20)
		r.config.PartitionMaxBytes, r.config.MaxBytes = 4000, 16000
		r.m.SetMirror("m", r.leader, r.config)
		tp := r.cluster.CreateTopic("t", 4)
		const batches = 20 // of 128 KiB: 2.5 MiB in one frame for each of four brokers
		for range batches {
			for p := range tp.Logs {
				r.cluster.Produce(tp, int32(p), 4, 32<<10)
			}
		}
		var most atomic.Int64
		r.cluster.SetHook(func(c *scripted.Call) {
			resp, ok := c.Response.(*kmsg.FetchResponse)
			if !ok {
				return
			}
			most.Store(max(most.Load(), r.pool.Leased()))
			for i := range resp.Topics {
				for j := range resp.Topics[i].Partitions {
					if p := &resp.Topics[i].Partitions[j]; len(p.RecordBatches) > 0 {
						p.RecordBatches = r.cluster.Bytes(tp, p.Partition)
					}
				}
			}
		})
		sinks := make([]*memSink, 4)
		for p := range sinks {
			sinks[p] = newSink()
			r.add(tp, int32(p), sinks[p])
		}
		for p, s := range sinks {
			s.untilEnd(t, tp.Logs[p].End())
			r.equal(tp, int32(p), s)
		}
		if n := most.Load(); n > (4+3)<<20 {
			t.Errorf("%d bytes were leased", n)
		}
		if n := r.counters.BrokenConnections.Load(); n != 0 {
			t.Errorf("%d connections were given up", n)
		}
	})
}

// TestSourceThatDoesNotWait: a source that answers at once, with nothing, although it was asked to wait, costs no processor, and what
// it has comes all the same.
func TestSourceThatDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPipedRig(t, 1, fetcher.Options{})
		tp := r.cluster.CreateTopic("t", 1)
		var fetches atomic.Int64
		r.cluster.SetHook(func(c *scripted.Call) {
			if _, ok := c.Response.(*kmsg.FetchResponse); ok {
				fetches.Add(1)
			}
		})
		r.cluster.Change(func() { r.cluster.Impatient = true })
		s := newSink()
		r.add(tp, 0, s)
		time.Sleep(10 * time.Second)
		if n := fetches.Load(); n > 1200 {
			t.Errorf("%d fetches in ten seconds", n)
		}
		begin := time.Now()
		r.cluster.Produce(tp, 0, 1, 10)
		s.untilEnd(t, 1)
		if took := time.Since(begin); took > 50*time.Millisecond {
			t.Errorf("a record took %s", took)
		}
		r.cluster.Change(func() { r.cluster.Impatient = false })
		time.Sleep(time.Second)
		before := fetches.Load()
		time.Sleep(10 * time.Second)
		if n := fetches.Load() - before; n > 210 || n < 190 {
			t.Errorf("%d fetches in ten seconds of a source that waits for 50 ms", n)
		}
	})
}

// TestBatchesOutOfOrder: batches that a source sends in another order, twice, or from before the log end fail their partition with the
// offset, also in the middle of a response; the batches before them are kept, the other partitions go on.
func TestBatchesOutOfOrder(t *testing.T) {
	for name, order := range map[string][]int{"swapped": {0, 2, 1, 3}, "twice": {0, 1, 1, 2, 3}, "from the begin": {0, 1, 2, 0, 3}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newPipedRig(t, 1, fetcher.Options{})
				tp := r.cluster.CreateTopic("t", 2)
				for range 4 {
					r.cluster.Produce(tp, 0, 5, 100)
					r.cluster.Produce(tp, 1, 5, 100)
				}
				good := append([][]byte(nil), tp.Logs[0].Batches...)
				next, bad := int64(0), int64(-1)
				r.cluster.SetHook(func(c *scripted.Call) {
					resp, ok := c.Response.(*kmsg.FetchResponse)
					if !ok {
						return
					}
					for i := range resp.Topics {
						for j := range resp.Topics[i].Partitions {
							if p := &resp.Topics[i].Partitions[j]; p.Partition == 0 && len(p.RecordBatches) > 0 {
								p.RecordBatches = nil
								for _, k := range order {
									p.RecordBatches = append(p.RecordBatches, good[k]...)
								}
							}
						}
					}
				})
				for _, k := range order { // what the rule allows: gaps, but nothing below the log end
					if base := int64(5 * k); base < next {
						bad = next
						break
					} else {
						next = base + 5
					}
				}
				s, other := newSink(), newSink()
				r.add(tp, 0, s)
				r.add(tp, 1, other)
				if e := r.events.wait(t, fetcher.EventCorrupt); e.ID.Partition != 0 || e.Offset != bad || !strings.Contains(e.Err.Error(), "below the log end") {
					t.Errorf("event %+v, want offset %d", e, bad)
				}
				if s.LogEndOffset() != bad {
					t.Errorf("log end %d, want %d", s.LogEndOffset(), bad)
				}
				r.cluster.Produce(tp, 1, 5, 100)
				other.untilEnd(t, 25)
				r.equal(tp, 1, other)
			})
		})
	}
}

// TestResizeUnderLoadWithLanes: while records are produced all the time, a fetcher of many lanes and one of a single connection are resized, the load is
// balanced and the source moves nearer and away again. Nothing is lost, nothing comes twice, and every byte is the source's.
func TestResizeUnderLoadWithLanes(t *testing.T) {
	for _, far := range []time.Duration{time.Millisecond, 80 * time.Millisecond} {
		t.Run(far.String(), func(t *testing.T) {
			r := newRig(t, 2)
			r.config.PartitionMaxBytes, r.config.MaxBytes = 20_000, 100_000 // so that there is always a response under way
			leader := func(rtt time.Duration) *farLeader { return &farLeader{Leader: r.src, rtt: rtt, open: map[int]int{}} }
			r.m.SetMirror("m", leader(far), r.config)
			tp := r.cluster.CreateTopic("t", 16)
			sinks := make([]*memSink, len(tp.Logs))
			for p := range sinks {
				sinks[p] = newSink()
				r.add(tp, int32(p), sinks[p])
			}
			stop := make(chan struct{})
			var wg sync.WaitGroup
			wg.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
						r.cluster.Produce(tp, int32(i%len(sinks)), 1+i%7, 300)
					}
					if i%64 == 0 { // about as fast as the copy
						<-time.After(time.Millisecond)
					}
				}
			})
			for i, n := range []int{1, 4, 2, 7, 3, 1, 5, 2} {
				before := sinks[i].LogEndOffset()
				r.m.Resize(n)
				r.m.Balance()
				switch i {
				case 3:
					r.m.SetMirror("m", leader(500*time.Microsecond), r.config)
				case 5:
					r.m.SetMirror("m", leader(far), r.config)
				}
				sinks[i].until(t, "the copy moves under the resize", func() bool { return sinks[i].end > before })
			}
			close(stop)
			wg.Wait()
			for p, s := range sinks {
				s.untilEnd(t, tp.Logs[p].End())
				r.equal(tp, int32(p), s)
				s.mu.Lock()
				var next int64
				for _, a := range s.appends {
					if a.BaseOffset != next {
						t.Fatalf("partition %d: an append begins at %d, the log ended at %d", p, a.BaseOffset, next)
					}
					next = a.NextOffset
				}
				s.mu.Unlock()
			}
			r.events.mu.Lock()
			defer r.events.mu.Unlock()
			for _, e := range r.events.events {
				if e.Kind != fetcher.EventFetched {
					t.Errorf("event %v: %v", e.Kind, e.Err)
				}
			}
		})
	}
}
