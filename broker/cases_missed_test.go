package broker_test

import (
	"bytes"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/internal/testkit/scripted"
	"stet/zerocopy/batch"
)

func keyed(offset int64, key, value string) []byte {
	kv := batch.KV{Key: []byte(key)}
	if value != "" {
		kv.Value = []byte(value)
	}
	return batch.Build(nil, batch.Header{BaseOffset: offset, Timestamp: 1e12, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}, kv)
}

// compacted is a topic of which the copy was at the end, then paused, then written to with a tombstone for k1.
func compacted(w *world, retention string, configs ...string) *scripted.Topic {
	w.t.Helper()
	topic := w.src.CreateTopic("t", 1)
	w.src.Change(func() {
		topic.Configs["cleanup.policy"], topic.Configs["delete.retention.ms"] = "compact", retention
	})
	w.src.Append(topic, 0, keyed(0, "k1", "v"), keyed(1, "k2", "v"))
	w.create(configs...)
	w.startTopics("t")
	w.caughtUp()
	w.pause("t")
	w.src.Append(topic, 0, keyed(2, "k3", "v"), keyed(3, "k1", ""), keyed(4, "k4", "v"), keyed(5, "k5", "v"))
	return topic
}

// clean is what the source's cleaner does once the tombstone is old enough.
func clean(w *world, topic *scripted.Topic) {
	w.src.Change(func() {
		l := topic.Logs[0]
		l.Batches = [][]byte{l.Batches[1], l.Batches[2], l.Batches[4], l.Batches[5]}
	})
}

// TestTombstonesGoneWhileAway: a copy that was away from the source's end for longer than delete.retention.ms, and
// finds that compaction has removed records meanwhile, is made again, or fails, by mirror.on.gap (C69).
func TestTombstonesGoneWhileAway(t *testing.T) {
	t.Run("continue", func(t *testing.T) {
		w := newWorld(t)
		topic := compacted(w, "1")
		clean(w, topic)
		w.resume("t")
		w.wait("at the source's end", func(p part) bool { return mirroring(p) && p.DestinationOffset == 6 })
		w.same(topic) // k1 is dead
		w.src.Append(topic, 0, keyed(6, "k6", "v"))
		w.wait("it goes on", func(p part) bool { return mirroring(p) && p.DestinationOffset == 7 })
		w.same(topic)
	})
	t.Run("after a restart", func(t *testing.T) {
		w := newWorld(t)
		topic := compacted(w, "1")
		w.restart(nil)
		clean(w, topic)
		w.resume("t")
		w.wait("at the source's end", func(p part) bool { return mirroring(p) && p.DestinationOffset == 6 })
		w.same(topic)
	})
	t.Run("fail", func(t *testing.T) {
		w := newWorld(t)
		topic := compacted(w, "1", "mirror.on.gap", "fail")
		clean(w, topic)
		before := w.stored("t", 0, 0)
		w.resume("t")
		p := w.failed("t", 0)
		if msg := fmt.Sprint(*p.ErrorMessage); !strings.Contains(msg, "delete.retention.ms") || !strings.Contains(msg, "offset 3") {
			t.Errorf("the error is %q", msg)
		}
		if got := w.stored("t", 0, 0); !bytes.HasPrefix(got, before) {
			t.Error("bytes are gone")
		}
	})
	for name, c := range map[string]struct {
		retention string
		clean     bool
	}{"not away for long": {"86400000", true}, "nothing was removed": {"1", false}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			topic := compacted(w, c.retention)
			if c.clean {
				clean(w, topic)
			}
			before := w.stored("t", 0, 0)
			w.resume("t")
			w.wait("at the source's end", func(p part) bool { return mirroring(p) && p.DestinationOffset == 6 })
			got := w.stored("t", 0, 0)
			if !bytes.HasPrefix(got, before) {
				t.Error("what was copied before is gone")
			}
			if in := counters(t, w.b)[`stet_mirror_in_bytes_total{mirror="m",partition="0",topic="t"}`]; int(in) != len(got) {
				t.Errorf("%v bytes were copied for a log of %d", in, len(got))
			}
		})
	}
}

// TestMarkerGoneWhileAway: the COMMIT marker of a transaction that is open here was compacted away, with its records, while
// the mirror was paused: the copy is made again, and the last stable offset moves (C69).
func TestMarkerGoneWhileAway(t *testing.T) {
	w := newWorld(t)
	topic := w.src.CreateTopic("t", 1)
	open := int64(1)
	w.src.Change(func() {
		topic.Configs["cleanup.policy"], topic.Configs["delete.retention.ms"] = "compact", "86400000"
		topic.Logs[0].Open = &open
	})
	txn := batch.Header{BaseOffset: 1, Timestamp: 1e12, Attributes: 0x10, ProducerID: 7, ProducerEpoch: 0, BaseSequence: 0}
	w.src.Append(topic, 0, keyed(0, "k1", "v"), batch.Build(nil, txn, batch.KV{Key: []byte("k2"), Value: []byte("v")}))
	w.create()
	w.startTopics("t")
	w.wait("copied", func(p part) bool { return p.State == "MIRRORING" && p.DestinationOffset == 2 })
	w.pause("t")
	w.src.Change(func() {
		l := topic.Logs[0]
		l.Open = nil
		l.Batches = [][]byte{l.Batches[0], keyed(3, "k2", "w")} // offset 1 was overwritten, the marker was at 2
	})
	w.resume("t")
	w.until("the last stable offset is the end", func() bool { return w.lastStable("t") == 4 })
	w.caughtUp()
	w.same(topic)
}

// TestMarkerBetweenTwoBounds: a source that says once, as a broker may that takes its high watermark first and its last stable
// offset later, that an open transaction is not open, is asked again before anything is cut.
func TestMarkerBetweenTwoBounds(t *testing.T) {
	w := newWorld(t)
	topic := w.src.CreateTopic("t", 1)
	open := int64(0)
	w.src.Change(func() {
		topic.Configs["cleanup.policy"] = "compact"
		topic.Logs[0].Open = &open
	})
	txn := batch.Header{Timestamp: 1e12, Attributes: 0x10, ProducerID: 7, ProducerEpoch: 0, BaseSequence: 0}
	w.src.Append(topic, 0, batch.Build(nil, txn, batch.KV{Key: []byte("k"), Value: []byte("v")}))
	var lies atomic.Int32
	w.src.SetHook(func(c *scripted.Call) {
		if r, ok := c.Response.(*kmsg.FetchResponse); ok && lies.Load() == 0 {
			for i := range r.Topics {
				for j := range r.Topics[i].Partitions {
					if p := &r.Topics[i].Partitions[j]; p.LastStableOffset == 0 && p.HighWatermark == 1 {
						p.LastStableOffset = 1
						lies.Add(1)
					}
				}
			}
		}
	})
	w.create()
	w.startTopics("t")
	w.wait("copied", func(p part) bool { return p.State == "MIRRORING" && p.DestinationOffset == 1 })
	w.until("it was lied to", func() bool { return lies.Load() == 1 })
	end := batch.Header{BaseOffset: 1, Timestamp: 1e12, ProducerID: 7, ProducerEpoch: 0}
	w.src.Change(func() { topic.Logs[0].Open = nil })
	w.src.Append(topic, 0, batch.BuildEndTxn(nil, end, true, 1), keyed(2, "k2", "v"))
	w.until("the last stable offset is the end", func() bool { return w.lastStable("t") == 3 })
	w.same(topic)
	got := w.stored("t", 0, 0)
	if in := counters(t, w.b)[`stet_mirror_in_bytes_total{mirror="m",partition="0",topic="t"}`]; int(in) != len(got) {
		t.Errorf("%v bytes were copied for a log of %d", in, len(got))
	}
}

// TestGapThenRestart: after a gap the copy begins anew; interrupted before it has come to the end, it does not take old
// compaction for something that it has missed.
func TestGapThenRestart(t *testing.T) {
	w := newWorld(t)
	topic := compacted(w, "1")
	w.src.Change(func() {
		l := topic.Logs[0]
		l.Start, l.Batches = 10, nil
		for o := int64(10); o < 40; o++ {
			if o%3 != 2 { // compacted long ago
				l.Batches = append(l.Batches, keyed(o, string(rune('a'+o)), strings.Repeat("v", 400)))
			}
		}
	})
	w.alter("t", "mirror.replication.throttled.replicas", "*")
	w.alter("", "mirror.replication.throttled.rate", "100")
	w.resume("t")
	w.wait("some", func(p part) bool { return p.DestinationOffset >= 11 })
	before := w.stored("t", 0, 10)
	if w.describe()[0].DestinationOffset == 40 {
		t.Fatal("the throttle lets everything through at once")
	}
	w.restart(nil)
	w.alter("", "mirror.replication.throttled.rate", "500000000")
	w.wait("at the end", func(p part) bool { return mirroring(p) && p.DestinationOffset == 40 })
	w.same(topic)
	all := w.stored("t", 0, 10)
	if in := int(counters(t, w.b)[`stet_mirror_in_bytes_total{mirror="m",partition="0",topic="t"}`]); in > len(all)-len(before) {
		t.Errorf("%d bytes were copied after the restart, %d of %d were there", in, len(before), len(all))
	}
}

// TestTransactionWithoutAMarkerForEver: a source that has the records of a transaction but no marker for them, and does not
// count it as open, is not copied again and again.
func TestTransactionWithoutAMarkerForEver(t *testing.T) {
	w := newWorld(t)
	topic := w.src.CreateTopic("t", 1)
	w.src.Change(func() { topic.Configs["cleanup.policy"] = "compact" })
	txn := batch.Header{Timestamp: 1e12, Attributes: 0x10, ProducerID: 7, ProducerEpoch: 0, BaseSequence: 0}
	w.src.Append(topic, 0, batch.Build(nil, txn, batch.KV{Key: []byte("k"), Value: []byte("v")}))
	w.create()
	w.startTopics("t")
	p := w.failed("t", 0)
	if !strings.Contains(*p.ErrorMessage, "producer 7 from offset 0") || p.RetryAttempt != -1 {
		t.Errorf("attempt %d, the error is %q", p.RetryAttempt, *p.ErrorMessage)
	}
	w.same(topic)
}
