package broker_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/internal/testkit"
	"stet/internal/testkit/scripted"
	"stet/zerocopy/batch"
)

// epochAnswers asks a cluster for the ends of epochs 0 to n of a partition, at its leader.
func epochAnswers(w *world, ask func(*kmsg.OffsetForLeaderEpochRequest) kmsg.Response, topic string, n int32) string {
	w.t.Helper()
	var out []string
	for e := range n + 1 {
		req := kmsg.NewPtrOffsetForLeaderEpochRequest()
		req.ReplicaID = -1
		rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
		rt.Topic = topic
		rp := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		rp.LeaderEpoch, rp.CurrentLeaderEpoch = e, -1
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		a := ask(req).(*kmsg.OffsetForLeaderEpochResponse).Topics[0].Partitions[0]
		out = append(out, fmt.Sprintf("%d: %d ends at %d (%d)", e, a.LeaderEpoch, a.EndOffset, a.ErrorCode))
	}
	return strings.Join(out, "\n")
}

// C08: the leader-epoch checkpoint is lost, cut off, garbage, or says something else:
// it is made again from the log, and the answers equal the source's for all epochs.
func TestC08EpochCheckpointDamaged(t *testing.T) {
	w := newWorld(t)
	topic := w.src.CreateTopic("t", 1)
	for _, epoch := range []int32{1, 2, 5, 9, 10} {
		w.src.Change(func() { topic.Logs[0].Epoch = epoch })
		for range 3 {
			w.src.Produce(topic, 0, 4, 50)
		}
	}
	w.create()
	w.startTopics("t")
	w.caughtUp()
	src := newSourceClient(w)
	want := epochAnswers(w, func(r *kmsg.OffsetForLeaderEpochRequest) kmsg.Response { return request(w, src, r) }, "t", 10)
	check := func(what string) {
		t.Helper()
		w.caughtUp()
		if got := epochAnswers(w, func(r *kmsg.OffsetForLeaderEpochRequest) kmsg.Response { return request(w, w.cl, r) }, "t", 10); got != want {
			t.Errorf("%s:\n%s\nthe source answers\n%s", what, got, want)
		}
		w.same(topic)
	}
	check("undamaged")
	for what, damage := range map[string]func(file string, raw []byte) error{
		"lost":       func(file string, _ []byte) error { return os.Remove(file) },
		"empty":      func(file string, _ []byte) error { return os.WriteFile(file, nil, 0o644) },
		"cut off":    func(file string, raw []byte) error { return os.WriteFile(file, raw[:len(raw)-3], 0o644) },
		"garbage":    func(file string, _ []byte) error { return os.WriteFile(file, []byte("\x00\xff epochs?"), 0o644) },
		"an old one": func(file string, _ []byte) error { return os.WriteFile(file, []byte("0\n2\n1 0\n2 12\n"), 0o644) },
	} {
		for _, clean := range []bool{true, false} {
			if clean && what == "an old one" {
				continue // whole and plausible: believed after a clean shutdown, as by Kafka
			}
			w.restart(func(dir string) {
				file := filepath.Join(dir, "t-0", "leader-epoch-checkpoint")
				raw, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				if err := damage(file, raw); err != nil {
					t.Fatal(err)
				}
				if !clean { // as after a power loss
					for _, f := range []string{".kafka_cleanshutdown", "recovery-point-offset-checkpoint"} {
						if err := os.Remove(filepath.Join(dir, f)); err != nil {
							t.Fatal(err)
						}
					}
				}
			})
			check(fmt.Sprintf("checkpoint %s, clean shutdown %t", what, clean))
		}
	}
}

// C07 and C75 on a whole broker: the source has an unclean election. The cut is where
// the two histories part, is made once, is reported, and does not loop.
func TestC07C75UncleanElection(t *testing.T) {
	one := func(o int64, epoch int32, n int) []byte {
		kvs := make([]batch.KV, n)
		for i := range kvs {
			kvs[i].Value = fmt.Appendf(nil, "epoch %d", epoch)
		}
		return batch.Build(nil, batch.Header{BaseOffset: o, PartitionLeaderEpoch: epoch, Timestamp: 1, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}, kvs...)
	}
	for name, c := range map[string]struct {
		before, after     [][]byte
		epoch, then       int32
		cut, end, records int64
	}{
		"C07": {[][]byte{one(0, 5, 40), one(40, 5, 40), one(80, 5, 20)}, [][]byte{one(0, 5, 40), one(40, 5, 40), one(80, 6, 5)}, 5, 6, 80, 85, 20},
		"C75": {[][]byte{one(0, 0, 1000), one(1000, 0, 990), one(1990, 1, 5)}, [][]byte{one(0, 0, 1000), one(1000, 0, 990), one(1990, 0, 10), one(2000, 2, 5)}, 1, 2, 1990, 2005, 5},
	} {
		for _, support := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s supported %t", name, support), func(t *testing.T) {
				w := newWorld(t, fmt.Sprintf("mirror.support.unclean.leader.election=%t", support))
				topic := w.src.CreateTopic("t", 1)
				w.src.Change(func() { topic.Logs[0].Epoch = c.epoch })
				w.src.Append(topic, 0, c.before...)
				w.create()
				w.startTopics("t")
				w.caughtUp()
				held := w.stored("t", 0, 0)
				w.src.Change(func() { topic.Logs[0].Batches, topic.Logs[0].Epoch = c.after, c.then })
				if !support {
					f := w.failed("t", 0)
					if f.RetryAttempt != -1 || f.ErrorMessage == nil || !strings.Contains(*f.ErrorMessage, fmt.Sprint(c.cut)) {
						t.Errorf("%v; want attempt -1 and the offset %d", f, c.cut)
					}
					if !bytes.Equal(w.stored("t", 0, 0), held) {
						t.Error("the copy has changed")
					}
					return
				}
				w.wait("mirrors again", func(p part) bool { return mirroring(p) && p.DestinationOffset == c.end })
				w.same(topic)
				epoch := w.leaderEpoch("t")
				w.src.Append(topic, 0, one(c.end, c.then, 3))
				last := w.wait("goes on", func(p part) bool { return mirroring(p) && p.DestinationOffset == c.end+3 })[0]
				w.same(topic)
				if len(last.Cuts) != 1 || last.Cuts[0].Offset != c.cut {
					t.Errorf("cuts %+v, want one at %d", last.Cuts, c.cut)
				}
				m := counters(t, w.b)
				if n := m[`stet_mirror_cut_records_total{mirror="m",partition="0",topic="t"}`]; int64(n) != c.records {
					t.Errorf("%.0f records are reported as cut, want %d", n, c.records)
				}
				if again := w.leaderEpoch("t"); again != epoch {
					t.Errorf("the leader epoch went on from %d to %d", epoch, again)
				}
			})
		}
	}
}

// C74: every response of every busy partition ends in the middle of a batch. That is
// normal: nothing fails, nothing is tried again, and the bytes are equal.
func TestC74CutOffBatches(t *testing.T) {
	w := newWorld(t)
	topic := w.src.CreateTopic("t", 4)
	for i := range 1200 {
		w.src.Produce(topic, int32(i%4), 3, 300+i%97)
	}
	cut, all := 0, 0 // read after the mirror is paused
	w.src.SetHook(func(c *scripted.Call) {
		r, ok := c.Response.(*kmsg.FetchResponse)
		if !ok {
			return
		}
		for i := range r.Topics {
			for j := range r.Topics[i].Partitions {
				raw := r.Topics[i].Partitions[j].RecordBatches
				if len(raw) == 0 {
					continue
				}
				ends := len(raw) > 2000
				for len(raw) > 0 {
					_, rest, err := batch.Next(raw)
					if err != nil {
						break
					}
					raw = rest
				}
				w.src.Change(func() {
					if ends {
						all++
					}
					if len(raw) > 0 {
						cut++
					}
				})
			}
		}
	})
	w.create("fetch.max.bytes", "4000")
	w.startTopics("t")
	w.caughtUp()
	w.same(topic)
	w.src.Change(func() {
		if all < 4 || cut < all/2 { // limits grow with the round trip
			t.Errorf("%d of %d responses were cut off: this test shows nothing", cut, all)
		}
	})
	m := counters(t, w.b)
	for p := range 4 {
		if n := m[seriesOf("stet_mirror_retries_total", p)]; n != 0 {
			t.Errorf("partition %d was tried again %.0f times", p, n)
		}
	}
	if c := w.b.FetchCounters(); c.BrokenConnections.Load() != 0 || c.CutBytes.Load() == 0 {
		t.Errorf("%d broken connections, %d bytes of cut-off batches", c.BrokenConnections.Load(), c.CutBytes.Load())
	}
}

func newSourceClient(w *world) *kgo.Client {
	return testkit.Client(w.t, w.src.Bootstrap())
}

// request asks the leader of partition 0, which is broker 1 on both sides.
func request(w *world, cl *kgo.Client, req kmsg.Request) kmsg.Response {
	w.t.Helper()
	resp, err := cl.Broker(1).Request(w.ctx, &pinned{req, 4})
	if err != nil {
		w.t.Fatal(err)
	}
	return resp
}

// C16 where part of the history is shared: the source was restored from a backup that
// ends inside of what was copied, and went on by itself beyond our offset.
func TestC16BackupWithSharedHistory(t *testing.T) {
	for _, support := range []bool{true, false} {
		t.Run(fmt.Sprint("supported ", support), func(t *testing.T) {
			w := newWorld(t, fmt.Sprintf("mirror.support.unclean.leader.election=%t", support))
			topic := w.src.CreateTopic("t", 1)
			for _, epoch := range []int32{1, 3} {
				w.src.Change(func() { topic.Logs[0].Epoch = epoch })
				for range 5 {
					w.src.Produce(topic, 0, 2, 50)
				}
			}
			w.create()
			w.startTopics("t")
			w.caughtUp()
			held := w.stored("t", 0, 0)
			w.src.Broker(1).Down()
			w.src.Change(func() {
				l := topic.Logs[0]
				l.TruncateTo(8)
				l.Epoch = 2
			})
			for range 11 {
				w.src.Produce(topic, 0, 2, 60)
			}
			w.src.Broker(1).Up(t)
			if !support {
				w.failedForGood("t", 0)
				if !bytes.Equal(w.stored("t", 0, 0), held) {
					t.Error("the copy has changed")
				}
				return
			}
			last := w.wait("mirrors again", func(p part) bool { return mirroring(p) && p.DestinationOffset == 30 })[0]
			w.same(topic)
			if len(last.Cuts) != 1 || last.Cuts[0].Offset != 8 {
				t.Errorf("cuts %+v, want one at 8", last.Cuts)
			}
			if n := counters(t, w.b)[`stet_mirror_gap_records_total{mirror="m",partition="0",topic="t"}`]; n != 0 {
				t.Errorf("%.0f records are reported as a gap: it was taken for retention", n)
			}
		})
	}
}
