package fetcher_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/fetcher"
	"stet/internal/testkit/scripted"
	"stet/zerocopy/batch"
)

func TestCopiesEveryByte(t *testing.T) {
	for _, version := range []int16{4, 6, 7, 11, 12, 13, 17} {
		t.Run("fetch v"+string(rune('0'+version/10))+string(rune('0'+version%10)), func(t *testing.T) {
			r := newRig(t, 2)
			r.cluster.Versions[int16(kmsg.Fetch)] = version
			r.config.PartitionMaxBytes, r.config.MaxBytes = 3000, 7000 // cuts batches off all the time (C74)
			r.m.SetMirror("m", r.leader, r.config)
			a, b := r.cluster.CreateTopic("a", 3), r.cluster.CreateTopic("b", 1)
			sinks := map[fetcher.ID]*memSink{}
			topics := []*scripted.Topic{a, b}
			for _, tp := range topics {
				for p := range tp.Logs {
					s := newSink()
					sinks[id(tp, int32(p))] = s
					r.add(tp, int32(p), s)
				}
			}
			for i := range 40 {
				for _, tp := range topics {
					for p := range tp.Logs {
						r.cluster.Produce(tp, int32(p), 1+i%5, 100+i*17)
					}
				}
			}
			r.cluster.Produce(b, 0, 3, 5000) // one batch above both limits
			for _, tp := range topics {
				for p, l := range tp.Logs {
					s := sinks[id(tp, int32(p))]
					s.untilEnd(t, l.End())
					r.equal(tp, int32(p), s)
				}
			}
			for _, e := range r.events.events {
				if e.Kind != fetcher.EventFetched {
					t.Errorf("event %v: %v", e.Kind, e.Err)
				}
			}
			if r.counters.IgnoredBytes.Load() != 0 {
				t.Errorf("%d bytes came in vain", r.counters.IgnoredBytes.Load())
			}
		})
	}
}

// TestHotPathCounts is G10 for the way in: every byte is checked once and appended once.
func TestHotPathCounts(t *testing.T) {
	r := newRig(t, 1)
	tp := r.cluster.CreateTopic("t", 1)
	const batches, size = 300, 16 << 10
	var total int64
	for range batches {
		total += int64(len(r.cluster.Produce(tp, 0, 16, size/16)))
	}
	s := newSink()
	r.add(tp, 0, s)
	s.untilEnd(t, tp.Logs[0].End())
	r.m.Remove("m", id(tp, 0))
	c := r.counters
	if c.CheckedBytes.Load() != total || c.AppendedBytes.Load() != total || c.AppendedBatches.Load() != batches {
		t.Errorf("checked %d, appended %d bytes in %d batches; want %d bytes in %d", c.CheckedBytes.Load(), c.AppendedBytes.Load(), c.AppendedBatches.Load(), total, batches)
	}
	// What came besides is what the limits cut off, and the fields of the responses.
	if extra := c.ResponseBytes.Load() - total - c.CutBytes.Load(); extra < 0 || extra > 200*c.Responses.Load() {
		t.Errorf("%d bytes of responses for %d bytes of batches and %d cut off", c.ResponseBytes.Load(), total, c.CutBytes.Load())
	}
	if c.IgnoredBytes.Load() != 0 {
		t.Errorf("%d bytes ignored", c.IgnoredBytes.Load())
	}
}

func TestNextRequestLeavesBeforeTheAppend(t *testing.T) {
	r := newRig(t, 1)
	tp := r.cluster.CreateTopic("t", 1)
	var fetches atomic.Int32
	second := make(chan int64, 1)
	r.cluster.SetHook(func(c *scripted.Call) {
		if req, ok := c.Request.(*kmsg.FetchRequest); ok && fetches.Add(1) == 2 {
			second <- req.Topics[0].Partitions[0].FetchOffset
		}
	})
	r.cluster.Produce(tp, 0, 5, 10)
	s := newSink()
	s.block, s.entered = make(chan struct{}), make(chan struct{}, 1)
	r.add(tp, 0, s)
	<-s.entered // the first append is under way and held
	select {
	case off := <-second:
		if off != 5 {
			t.Errorf("the second request asks for offset %d, not 5", off)
		}
	case <-time.After(time.Minute):
		t.Error("no second request while the first response is appended")
	}
	close(s.block)
	s.untilEnd(t, 5)
}

func TestRemoveIsSynchronous(t *testing.T) {
	r := newRig(t, 1)
	tp := r.cluster.CreateTopic("t", 1)
	r.cluster.Produce(tp, 0, 5, 10)
	s := newSink()
	s.block, s.entered = make(chan struct{}), make(chan struct{}, 10)
	r.add(tp, 0, s)
	<-s.entered
	removed := make(chan struct{})
	go func() {
		r.m.Remove("m", id(tp, 0))
		close(removed)
	}()
	select {
	case <-removed:
		t.Fatal("Remove returned in the middle of an append")
	case <-time.After(50 * time.Millisecond):
	}
	close(s.block)
	<-removed
	end := s.LogEndOffset()
	other := newSink() // proves that the loop goes on
	tp2 := r.cluster.CreateTopic("other", 1)
	r.add(tp2, 0, other)
	r.cluster.Produce(tp, 0, 5, 10)
	r.cluster.Produce(tp2, 0, 1, 10)
	other.untilEnd(t, 1)
	if s.LogEndOffset() != end {
		t.Fatal("appended after Remove had returned")
	}
	if _, ok := r.m.Status("m", id(tp, 0)); ok {
		t.Fatal("a removed partition has a status")
	}
	again := newSink()
	r.add(tp, 0, again)
	again.untilEnd(t, 10)
	r.equal(tp, 0, again)
}

func TestBadBatchFailsOnePartition(t *testing.T) {
	flip := func(b []byte, at int) []byte {
		b = append([]byte(nil), b...)
		b[at] ^= 0x10
		return b
	}
	for _, tc := range []struct {
		name string
		make func(good []byte) []byte
		text string
	}{
		{"flipped byte", func(b []byte) []byte { return flip(b, len(b)-3) }, "crc"},
		{"old magic", func(b []byte) []byte { b = append([]byte(nil), b...); b[16] = 1; return b }, "magic 1"},
		{"last offset delta", func(b []byte) []byte { b = append([]byte(nil), b...); b[26] = 0; return b }, "last offset delta"},
		{"out of order", func(b []byte) []byte {
			b = append([]byte(nil), b...)
			batch.Batch(b).SetBaseOffset(2)
			return b
		}, "below the log end"},
		{"length of a header's part", func(b []byte) []byte { b = append([]byte(nil), b...); b[11] = 20; b[10] = 0; return b }, "length"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, 1)
			tp, other := r.cluster.CreateTopic("t", 1), r.cluster.CreateTopic("other", 1)
			r.cluster.Produce(tp, 0, 5, 300)
			bad := r.cluster.Produce(tp, 0, 5, 300)
			r.cluster.Produce(other, 0, 5, 300)
			r.cluster.Change(func() { tp.Logs[0].Batches[1] = tc.make(bad) })
			s, so := newSink(), newSink()
			r.add(tp, 0, s)
			r.add(other, 0, so)
			e := r.events.wait(t, fetcher.EventCorrupt)
			if e.Offset != 5 || e.Token != 42 || e.ID != id(tp, 0) || !strings.Contains(e.Err.Error(), tc.text) {
				t.Errorf("event %+v", e)
			}
			if s.LogEndOffset() != 5 {
				t.Errorf("log end %d", s.LogEndOffset())
			}
			r.cluster.Produce(other, 0, 5, 300)
			so.untilEnd(t, 10)
			r.equal(other, 0, so)
			if st, ok := r.m.Status("m", id(tp, 0)); !ok || !st.Halted {
				t.Errorf("status %+v", st)
			}
			// Repaired and added again it goes on where it was.
			r.cluster.Change(func() { tp.Logs[0].Batches[1] = bad })
			r.add(tp, 0, s)
			s.untilEnd(t, 10)
			r.equal(tp, 0, s)
		})
	}
}

func TestAppendErrorFailsOnePartition(t *testing.T) {
	r := newRig(t, 1)
	tp := r.cluster.CreateTopic("t", 2)
	s0, s1 := newSink(), newSink()
	s0.refuse = errRefused
	r.add(tp, 0, s0)
	r.add(tp, 1, s1)
	r.cluster.Produce(tp, 0, 1, 10)
	r.cluster.Produce(tp, 1, 1, 10)
	s1.untilEnd(t, 1)
	if e := r.events.wait(t, fetcher.EventAppend); e.Offset != 0 || !strings.Contains(e.Err.Error(), "disk full") {
		t.Errorf("event %+v", e)
	}
}

func TestEpochRule(t *testing.T) {
	r := newRig(t, 1)
	tp := r.cluster.CreateTopic("t", 1)
	s := newSink()
	s.dle = 10
	for _, epoch := range []int32{0, 7, 8, 10, 11} {
		r.cluster.Change(func() { tp.Logs[0].Epoch = epoch })
		r.cluster.Produce(tp, 0, 1, 10)
	}
	r.add(tp, 0, s)
	e := r.events.wait(t, fetcher.EventEpochAhead)
	if e.Epoch != 11 || e.Offset != 4 {
		t.Errorf("event %+v", e)
	}
	s.untilEnd(t, 4)
	near := r.events.wait(t, fetcher.EventEpochNear)
	if near.Epoch != 10 || r.events.count(fetcher.EventEpochNear) != 1 {
		t.Errorf("event %+v, %d of them", near, r.events.count(fetcher.EventEpochNear))
	}
	s.mu.Lock()
	s.dle = 21
	s.mu.Unlock()
	r.add(tp, 0, s)
	s.untilEnd(t, 5)
	r.equal(tp, 0, s)
}

func TestFirstBatchMayBeginBelowTheLogStart(t *testing.T) {
	r := newRig(t, 1)
	tp := r.cluster.CreateTopic("t", 1)
	r.cluster.Produce(tp, 0, 10, 10)
	r.cluster.Produce(tp, 0, 10, 10)
	r.cluster.Change(func() { tp.Logs[0].Start = 4 })
	s := newSink()
	s.start, s.end = 4, 4
	r.add(tp, 0, s)
	s.untilEnd(t, 20)
	r.equal(tp, 0, s)
	// but not that of a log that holds something
	half := newSink()
	half.start, half.end = 0, 4
	r.add(tp, 0, half)
	if e := r.events.wait(t, fetcher.EventCorrupt); e.Offset != 4 {
		t.Errorf("event %+v", e)
	}
}

func TestDivergenceAndRange(t *testing.T) {
	r := newRig(t, 1)
	tp := r.cluster.CreateTopic("t", 1)
	r.cluster.Change(func() { tp.Logs[0].Epoch = 5 })
	for range 8 {
		r.cluster.Produce(tp, 0, 10, 10)
	}
	s := newSink()
	s.end, s.epoch = 100, 5 // 0..99, C07
	r.cluster.Change(func() { tp.Logs[0].Epoch = 6 })
	r.cluster.Produce(tp, 0, 10, 10)
	r.add(tp, 0, s)
	if e := r.events.wait(t, fetcher.EventDiverging); e.Epoch != 5 || e.Offset != 80 {
		t.Errorf("event %+v", e)
	}
	gone := newSink()
	gone.end = 3
	r.cluster.Change(func() { tp.Logs[0].Start = 40 })
	r.add(tp, 0, gone)
	if e := r.events.wait(t, fetcher.EventOutOfRange); e.Offset != 3 {
		t.Errorf("event %+v", e)
	}
}

func TestLastFetchedEpochIsNeverForgotten(t *testing.T) {
	r := newRig(t, 1)
	tp := r.cluster.CreateTopic("t", 1)
	r.cluster.Change(func() { tp.Logs[0].Epoch = 3 })
	var wrong atomic.Int32
	var seen atomic.Int32
	r.cluster.SetHook(func(c *scripted.Call) {
		if req, ok := c.Request.(*kmsg.FetchRequest); ok {
			for _, rt := range req.Topics {
				for _, p := range rt.Partitions {
					seen.Add(1)
					if p.FetchOffset > 0 && p.LastFetchedEpoch != 3 {
						wrong.Add(1)
					}
				}
			}
		}
	})
	s := newSink()
	r.add(tp, 0, s)
	for i := range 5 {
		r.cluster.Produce(tp, 0, 1, 10)
		s.untilEnd(t, int64(i+1))
		s.until(t, "a response without records", func() bool { n := len(s.obs); return n > 0 && s.obs[n-1].HighWatermark == int64(i+1) })
	}
	r.cluster.Broker(1).Down()
	r.cluster.Broker(1).Up(t)
	r.cluster.Produce(tp, 0, 1, 10)
	s.untilEnd(t, 6)
	if wrong.Load() != 0 || seen.Load() < 6 {
		t.Errorf("%d of %d requests without the epoch", wrong.Load(), seen.Load())
	}
}

func TestLeaderMove(t *testing.T) {
	r := newRig(t, 2)
	tp := r.cluster.CreateTopic("t", 1)
	r.cluster.Produce(tp, 0, 1, 10)
	s := newSink()
	r.add(tp, 0, s)
	s.untilEnd(t, 1)
	r.cluster.Change(func() { tp.Logs[0].Leader, tp.Logs[0].Epoch = 2, 1 })
	e := r.events.wait(t, fetcher.EventLeader)
	if e.Leader != 2 || e.Epoch != 1 || e.Broker != 1 {
		t.Errorf("event %+v", e)
	}
	r.cluster.Produce(tp, 0, 1, 10)
	r.add(tp, 0, s)
	s.untilEnd(t, 2)
	r.equal(tp, 0, s)
}

func TestErrorsOfAPartition(t *testing.T) {
	for code, kind := range map[int16]fetcher.EventKind{
		kerr.UnknownTopicID.Code:           fetcher.EventTopic,
		kerr.InconsistentTopicID.Code:      fetcher.EventTopic,
		kerr.TopicAuthorizationFailed.Code: fetcher.EventUnauthorized,
		kerr.FencedLeaderEpoch.Code:        fetcher.EventLeader,
		kerr.KafkaStorageError.Code:        fetcher.EventRetry,
	} {
		r := newRig(t, 1)
		tp := r.cluster.CreateTopic("t", 2)
		r.cluster.Produce(tp, 0, 1, 10)
		r.cluster.Change(func() { tp.Logs[0].Err = code })
		s0, s1 := newSink(), newSink()
		r.add(tp, 0, s0)
		r.add(tp, 1, s1)
		if e := r.events.wait(t, kind); e.ID.Partition != 0 || e.Err == nil || !strings.Contains(e.Err.Error(), kerr.ErrorForCode(code).Error()) {
			t.Errorf("%d: event %+v", code, e)
		}
		r.cluster.Produce(tp, 1, 1, 10)
		s1.untilEnd(t, 1)
		r.cluster.Change(func() { tp.Logs[0].Err = 0 })
		if kind != fetcher.EventRetry {
			r.add(tp, 0, s0)
		}
		s0.untilEnd(t, 1) // an error that passes needs nobody's help
	}
}

func TestReplacedTopicIsNotAppended(t *testing.T) {
	r := newRig(t, 1)
	tp := r.cluster.CreateTopic("t", 1)
	r.cluster.Produce(tp, 0, 1, 10)
	s := newSink()
	r.add(tp, 0, s)
	s.untilEnd(t, 1)
	r.cluster.DeleteTopic("t")
	again := r.cluster.CreateTopic("t", 1)
	r.cluster.Produce(again, 0, 50, 10)
	r.events.wait(t, fetcher.EventTopic)
	if s.LogEndOffset() != 1 {
		t.Errorf("log end %d", s.LogEndOffset())
	}
}

func TestBrokenPeers(t *testing.T) {
	for _, tc := range []struct {
		name string
		hook func(c *scripted.Call, resp *kmsg.FetchResponse)
	}{
		{"wrong correlation id", func(c *scripted.Call, _ *kmsg.FetchResponse) { c.Header.CorrelationID += 5 }},
		{"claims two GiB", func(c *scripted.Call, _ *kmsg.FetchResponse) { c.Raw = []byte{0x7f, 0xff, 0xff, 0xff} }},
		{"negative size", func(c *scripted.Call, _ *kmsg.FetchResponse) { c.Raw = []byte{0xff, 0xff, 0xff, 0xff} }},
		{"half a frame", func(c *scripted.Call, _ *kmsg.FetchResponse) {
			c.Raw = c.Frame()
			c.Raw, c.Close = c.Raw[:len(c.Raw)/2], true
		}},
		{"closes", func(c *scripted.Call, _ *kmsg.FetchResponse) { c.Raw, c.Close = []byte{}, true }},
		{"garbage body", func(c *scripted.Call, _ *kmsg.FetchResponse) {
			c.Raw = c.Frame()
			for i := 12; i < len(c.Raw); i++ {
				c.Raw[i] = 0xee
			}
		}},
		{"zero progress", func(_ *scripted.Call, resp *kmsg.FetchResponse) {
			for i := range resp.Topics {
				for j := range resp.Topics[i].Partitions {
					if p := &resp.Topics[i].Partitions[j]; len(p.RecordBatches) > 20 {
						p.RecordBatches = p.RecordBatches[:20]
					}
				}
			}
		}},
		{"error for everything", func(_ *scripted.Call, resp *kmsg.FetchResponse) { resp.ErrorCode = kerr.UnknownServerError.Code }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, 1)
			tp := r.cluster.CreateTopic("t", 1)
			r.cluster.Produce(tp, 0, 3, 100)
			var bad atomic.Int32
			r.cluster.SetHook(func(c *scripted.Call) {
				if resp, ok := c.Response.(*kmsg.FetchResponse); ok && bad.Add(1) <= 2 {
					tc.hook(c, resp)
				}
			})
			s := newSink()
			r.add(tp, 0, s)
			s.untilEnd(t, 3) // it recovers by itself
			r.equal(tp, 0, s)
			if n := r.counters.BrokenConnections.Load(); n != 2 {
				t.Errorf("%d broken connections", n)
			}
			r.events.until(t, "down and up again", func() bool {
				n := len(r.events.brokers)
				return n >= 2 && r.events.brokers[0] != nil && r.events.brokers[n-1] == nil
			})
		})
	}
}

func TestLostSession(t *testing.T) {
	for _, code := range []int16{kerr.FetchSessionIDNotFound.Code, kerr.InvalidFetchSessionEpoch.Code} {
		r := newRig(t, 1)
		tp := r.cluster.CreateTopic("t", 1)
		var n atomic.Int32
		r.cluster.SetHook(func(c *scripted.Call) {
			if resp, ok := c.Response.(*kmsg.FetchResponse); ok && n.Add(1) == 3 {
				resp.ErrorCode, resp.SessionID, resp.Topics = code, 0, nil
			}
		})
		s := newSink()
		r.add(tp, 0, s)
		for i := range 6 {
			r.cluster.Produce(tp, 0, 1, 10)
			s.untilEnd(t, int64(i+1))
		}
		r.equal(tp, 0, s)
		if r.counters.BrokenConnections.Load() != 0 {
			t.Error("the connection was closed")
		}
	}
}

func TestSourceWithoutRoomForSessions(t *testing.T) {
	r := newRig(t, 1)
	tp := r.cluster.CreateTopic("t", 2)
	r.cluster.SetHook(func(c *scripted.Call) {
		if resp, ok := c.Response.(*kmsg.FetchResponse); ok {
			resp.SessionID = 0
		}
	})
	s0, s1 := newSink(), newSink()
	r.add(tp, 0, s0)
	r.add(tp, 1, s1)
	for i := range 5 {
		r.cluster.Produce(tp, 0, 1, 10)
		r.cluster.Produce(tp, 1, 1, 10)
		s0.untilEnd(t, int64(i+1))
		s1.untilEnd(t, int64(i+1))
	}
}

func TestThrottleIsHonoured(t *testing.T) {
	r := newRig(t, 1)
	tp := r.cluster.CreateTopic("t", 1)
	const throttle = 60
	start := time.Now()
	var last atomic.Int64
	var early atomic.Int32
	r.cluster.SetHook(func(c *scripted.Call) {
		if resp, ok := c.Response.(*kmsg.FetchResponse); ok {
			now := time.Since(start).Milliseconds() + 1
			if prev := last.Swap(now); prev != 0 && now-prev < throttle-5 {
				early.Add(1)
			}
			resp.ThrottleMillis = throttle
		}
	})
	s := newSink()
	r.add(tp, 0, s)
	for i := range 4 {
		r.cluster.Produce(tp, 0, 1, 10)
		s.untilEnd(t, int64(i+1))
	}
	if early.Load() != 0 || r.counters.ThrottleMillis.Load() < 2*throttle {
		t.Errorf("%d early requests, throttled for %d ms", early.Load(), r.counters.ThrottleMillis.Load())
	}
}

func TestBrokerComesBack(t *testing.T) {
	r := newRig(t, 1)
	tp := r.cluster.CreateTopic("t", 1)
	r.cluster.Produce(tp, 0, 1, 10)
	s := newSink()
	r.add(tp, 0, s)
	s.untilEnd(t, 1)
	r.cluster.Broker(1).Down()
	r.events.until(t, "broker down", func() bool { n := len(r.events.brokers); return n > 0 && r.events.brokers[n-1] != nil })
	if st, _ := r.m.Status("m", id(tp, 0)); st.Err == nil || !strings.Contains(st.Err.Error(), r.cluster.Bootstrap()) {
		t.Errorf("status %+v", st)
	}
	r.cluster.Produce(tp, 0, 1, 10)
	r.cluster.Broker(1).Up(t)
	s.untilEnd(t, 2)
	r.equal(tp, 0, s)
}

func TestObservationsWithoutRecords(t *testing.T) {
	r := newRig(t, 1)
	tp := r.cluster.CreateTopic("t", 1)
	r.cluster.Produce(tp, 0, 10, 10)
	r.cluster.Produce(tp, 0, 10, 10)
	s := newSink()
	r.add(tp, 0, s)
	s.untilEnd(t, 20)
	r.cluster.Change(func() { tp.Logs[0].Start = 10 })
	s.until(t, "the new log start", func() bool { n := len(s.obs); return n > 0 && s.obs[n-1].LogStartOffset == 10 })
	st, ok := r.m.Status("m", id(tp, 0))
	if !ok || st.Covered.IsZero() {
		t.Errorf("status %+v", st)
	}
	// An incremental response that does not mention the partition covers it too.
	deadline := time.Now().Add(time.Minute)
	for {
		now, _ := r.m.Status("m", id(tp, 0))
		if now.Covered.After(st.Covered.Add(100 * time.Millisecond)) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("an idle partition grows old")
		}
		time.Sleep(time.Millisecond)
	}
}

func TestResizeMovesPartitions(t *testing.T) {
	r := newRig(t, 1)
	tp := r.cluster.CreateTopic("t", 8)
	sinks := make([]*memSink, 8)
	for p := range sinks {
		sinks[p] = newSink()
		r.add(tp, int32(p), sinks[p])
	}
	n := int64(0)
	for _, fetchers := range []int{1, 4, 3, 1} {
		r.m.Resize(fetchers)
		used := map[int]int{}
		n++
		for p, s := range sinks {
			r.cluster.Produce(tp, int32(p), 1, 10)
			s.untilEnd(t, n)
			st, ok := r.m.Status("m", id(tp, int32(p)))
			if !ok {
				t.Fatalf("partition %d is lost", p)
			}
			used[st.Fetcher]++
		}
		if len(used) != fetchers {
			t.Errorf("%d fetchers: partitions on %v", fetchers, used)
		}
	}
	for p, s := range sinks {
		r.equal(tp, int32(p), s)
	}
}

func TestMinBytesNeverExceedsAPartition(t *testing.T) {
	r := newRig(t, 1)
	r.config.MinBytes, r.config.PartitionMaxBytes, r.config.MaxWait = 1<<20, 2000, time.Hour // C32
	r.m.SetMirror("m", r.leader, r.config)
	tp := r.cluster.CreateTopic("t", 2)
	for range 20 {
		r.cluster.Produce(tp, 0, 1, 1900)
	}
	s, idle := newSink(), newSink()
	r.add(tp, 0, s)
	r.add(tp, 1, idle)
	s.untilEnd(t, 19) // the last one alone is below the minimum; the others never come if a fetch waits its hour
}

func TestUnknownMirror(t *testing.T) {
	m := fetcher.NewManager(fetcher.Options{Events: &eventLog{changed: make(chan struct{})}})
	defer m.Close()
	if err := m.Add("x", fetcher.Assignment{Sink: newSink()}); err == nil {
		t.Fatal("added to no mirror")
	}
	m.Remove("x", fetcher.ID{})
	m.RemoveMirror("x")
}

// TestBalanceMovesPartitionsUnderLoad: partitions that carry the bytes are spread over the fetchers, and not a byte is lost on the way.
func TestBalanceMovesPartitionsUnderLoad(t *testing.T) {
	r := newRig(t, 1)
	r.m.Resize(2)
	tp := r.cluster.CreateTopic("t", 8)
	sinks := make([]*memSink, 8)
	for p := range sinks {
		sinks[p] = newSink()
		r.add(tp, int32(p), sinks[p])
	}
	on := func(p int32) int {
		st, ok := r.m.Status("m", id(tp, p))
		if !ok {
			t.Fatalf("partition %d is not fetched", p)
		}
		return st.Fetcher
	}
	var busy []int32 // all load on one fetcher
	for p := range int32(8) {
		if on(p) == on(0) {
			busy = append(busy, p)
		}
	}
	for range 5 {
		for _, p := range busy {
			r.cluster.Produce(tp, p, 20, 500)
		}
		for _, p := range busy {
			sinks[p].untilEnd(t, tp.Logs[p].End())
		}
		r.m.Balance()
	}
	perFetcher := map[int]int{}
	for _, p := range busy {
		perFetcher[on(p)]++
	}
	if len(perFetcher) != 2 || perFetcher[0] != perFetcher[1] {
		t.Errorf("the busy partitions are on %v", perFetcher)
	}
	for p := range int32(8) {
		r.cluster.Produce(tp, p, 1, 10)
		sinks[p].untilEnd(t, tp.Logs[p].End())
		r.equal(tp, p, sinks[p])
	}
}
