package broker_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"stet/broker/mirrormsg"
	"stet/internal/testkit"
	"stet/internal/testkit/scripted"
	"stet/zerocopy/batch"
)

// The cases of CASES.md on one broker with a scripted source; each ends with the byte comparison.

// C01: an acknowledgement after a stop always means a new offset, whatever producer
// ids the mirrored batches used, also after a restart in between.
func TestC01ProducerIDsAfterAStop(t *testing.T) {
	for name, restart := range map[string]bool{"at once": false, "after a restart": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			topic := w.src.CreateTopic("t", 1)
			var off int64
			for _, pid := range []int64{0, 1, 2, 3, 1 << 40} { // the local allocator begins at 0
				for seq := range int32(3) {
					w.src.Append(topic, 0, data(off, 0, pid, 0, seq, false, "source"))
					off++
				}
			}
			w.create()
			w.startTopics("t")
			w.caughtUp()
			w.same(topic)
			w.stop("t")
			if restart {
				w.restart(nil)
			}
			next := off + 1 // the reset record
			for i := range 5 {
				cl := testkit.Client(t, w.b.Addr())
				r := cl.ProduceSync(w.ctx, &kgo.Record{Topic: "t", Value: []byte("local")})
				if err := r.FirstErr(); err != nil {
					t.Fatal(err)
				}
				if got := r[0].Record.Offset; got != next {
					t.Errorf("producer %d: offset %d, want %d", i, got, next)
				}
				next++
			}
			if recs := consume(w.ctx, t, w.b.Addr(), "t", int(next-1)); string(recs[len(recs)-1].Value) != "local" {
				t.Errorf("the last record is %q", recs[len(recs)-1].Value)
			}
		})
	}
}

// C02 and C10: read-committed readers see nothing of open and aborted transactions,
// exactly the committed ones, and after the stop what is written then.
func TestC02C10TransactionsAndTheStop(t *testing.T) {
	w := newWorld(t)
	topic := w.src.CreateTopic("t", 1)
	w.src.Append(topic, 0,
		data(0, 0, 4001, 1, 0, true, "a0", "a1"), data(2, 0, 4002, 2, 0, true, "b0"), marker(3, 0, 4001, true),
		data(4, 0, 4003, 0, 0, true, "c0"), marker(5, 0, 4003, false), data(6, 0, -1, -1, -1, false, "plain"))
	w.create()
	w.startTopics("t")
	w.caughtUp()
	w.same(topic)
	recs := consume(w.ctx, t, w.b.Addr(), "t", 2, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if got := values(recs); got != "a0 a1" {
		t.Errorf("read committed before the stop: %s", got)
	}
	w.stop("t")
	if got := kinds(t, w.stored("t", 0, 7)); got != "7 ABORT 4002, 8 RESET -1" {
		t.Errorf("the barrier wrote %s", got)
	}
	if err := w.cl.ProduceSync(w.ctx, &kgo.Record{Topic: "t", Value: []byte("local")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	recs = consume(w.ctx, t, w.b.Addr(), "t", 4, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if got := values(recs); got != "a0 a1 plain local" {
		t.Errorf("read committed after the stop: %s", got)
	}
	if got := w.stored("t", 0, 0); !bytes.HasPrefix(got, w.src.Bytes(topic, 0)) {
		t.Error("what was copied has changed")
	}
}

func values(recs []*kgo.Record) string {
	var out []string
	for _, r := range recs {
		out = append(out, string(r.Value))
	}
	return strings.Join(out, " ")
}

// C04: source retention passes the mirror's position.
func TestC04GapBySourceRetention(t *testing.T) {
	for _, policy := range []string{"continue", "fail"} {
		t.Run(policy, func(t *testing.T) {
			w := newWorld(t)
			topic := w.src.CreateTopic("t", 1)
			for range 10 {
				w.src.Produce(topic, 0, 10, 50)
			}
			w.create("mirror.on.gap", policy)
			w.startTopics("t")
			w.caughtUp()
			w.same(topic)
			w.pause("t")
			for range 10 {
				w.src.Produce(topic, 0, 10, 50)
			}
			w.src.Change(func() { topic.Logs[0].Batches, topic.Logs[0].Start = topic.Logs[0].Batches[15:], 150 })
			w.resume("t")
			if policy == "fail" {
				f := w.failed("t", 0)
				if f.ErrorMessage == nil || !strings.Contains(*f.ErrorMessage, "100") || !strings.Contains(*f.ErrorMessage, "150") {
					t.Errorf("the error does not name the gap [100, 150): %v", f)
				}
				if got := w.stored("t", 0, 0); len(got) == 0 {
					t.Error("the copy was emptied")
				}
				return
			}
			w.caughtUp()
			w.same(topic)
			starts, err := kadm.NewClient(w.cl).ListStartOffsets(w.ctx, "t")
			if err != nil {
				t.Fatal(err)
			}
			if o, _ := starts.Lookup("t", 0); o.Offset != 150 {
				t.Errorf("log start %d, want the source's 150", o.Offset)
			}
			if got := counters(t, w.b)[`stet_mirror_gap_records_total{mirror="m",partition="0",topic="t"}`]; got != 50 {
				t.Errorf("%g gap records, want 50", got)
			}
		})
	}
}

// C05: the source topic is deleted and created again with fewer, and with more, records.
func TestC05RecreatedSourceTopic(t *testing.T) {
	for name, n := range map[string]int{"fewer": 1, "more": 30} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			topic := w.src.CreateTopic("t", 1)
			for range 5 {
				w.src.Produce(topic, 0, 2, 50)
			}
			w.create()
			w.startTopics("t")
			w.caughtUp()
			before := w.stored("t", 0, 0)
			w.src.DeleteTopic("t")
			again := w.src.CreateTopic("t", 1)
			for range n {
				w.src.Produce(again, 0, 2, 50)
			}
			w.failedForGood("t", 0)
			if !bytes.Equal(w.stored("t", 0, 0), before) {
				t.Error("the copy has changed")
			}
		})
	}
}

// C06: a topic is created with its full configuration in the same change.
func TestC06TopicIsCreatedWithItsConfigs(t *testing.T) {
	w := newWorld(t)
	topic := w.src.CreateTopic("t", 1)
	w.src.Change(func() {
		topic.Configs["cleanup.policy"] = "compact"
		topic.Configs["max.message.bytes"] = "2000000"
		topic.Configs["min.insync.replicas"] = "2" // excluded by default
	})
	w.src.Produce(topic, 0, 2, 50)
	w.create()
	w.startTopics("t")
	cfgs, err := kadm.NewClient(w.cl).DescribeTopicConfigs(w.ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, c := range cfgs[0].Configs {
		got[c.Key] = c.MaybeValue()
	}
	if got["cleanup.policy"] != "compact" || got["max.message.bytes"] != "2000000" || got["min.insync.replicas"] != "1" {
		t.Errorf("right after the start: cleanup.policy=%s max.message.bytes=%s min.insync.replicas=%s", got["cleanup.policy"], got["max.message.bytes"], got["min.insync.replicas"])
	}
	if _, ok := got["mirror.name"]; ok {
		t.Error("mirror.name is shown")
	}
	w.caughtUp()
	w.same(topic)
}

// C09: destination at epoch 0, source at epoch 7, a group commits with epoch 7: it reads at once.
func TestC09CommittedSourceEpoch(t *testing.T) {
	w := newWorld(t)
	topic := w.src.CreateTopic("t", 1)
	w.src.Change(func() { topic.Logs[0].Epoch = 7 })
	w.src.Produce(topic, 0, 5, 50)
	w.create()
	w.startTopics("t")
	w.caughtUp()
	w.same(topic)
	offs := kadm.Offsets{}
	offs.Add(kadm.Offset{Topic: "t", Partition: 0, At: 3, LeaderEpoch: 7})
	if err := kadm.NewClient(w.cl).CommitAllOffsets(w.ctx, "g", offs); err != nil {
		t.Fatal(err)
	}
	c := testkit.Client(t, w.b.Addr(), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("t"))
	fs := c.PollFetches(w.ctx)
	if err := fs.Err(); err != nil {
		t.Fatal(err)
	}
	if r := fs.Records(); len(r) != 2 || r[0].Offset != 3 || r[0].LeaderEpoch != 7 {
		t.Errorf("read %v", r)
	}
	md := w.leaderEpoch("t")
	if md < 7 {
		t.Errorf("leader epoch %d is below the source's 7", md)
	}
}

func (w *world) leaderEpoch(topic string) int32 {
	w.t.Helper()
	ts, err := kadm.NewClient(w.cl).ListTopics(w.ctx, topic)
	if err != nil {
		w.t.Fatal(err)
	}
	return ts[topic].Partitions[0].LeaderEpoch
}

// C11: old and future timestamps are not a producer's to the mirror.
func TestC11Timestamps(t *testing.T) {
	w := newWorld(t)
	topic := w.src.CreateTopic("t", 1)
	w.src.Change(func() { topic.Configs["message.timestamp.before.max.ms"] = "1000" })
	for i, ts := range []int64{0, 1000, time.Now().AddDate(0, 0, -30).UnixMilli(), time.Now().AddDate(10, 0, 0).UnixMilli()} {
		b := batch.Build(nil, batch.Header{BaseOffset: int64(i), Timestamp: ts, Attributes: int16(i%2) << 3, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}, batch.KV{Value: []byte("v")})
		w.src.Append(topic, 0, b)
	}
	w.create()
	w.startTopics("t")
	w.caughtUp()
	w.same(topic)
}

// C12: null keys, empty values, empty batches, gaps as compaction leaves them, a
// log start inside a batch.
func TestC12Shapes(t *testing.T) {
	w := newWorld(t)
	topic := w.src.CreateTopic("t", 2)
	h := func(o int64) batch.Header {
		return batch.Header{BaseOffset: o, Timestamp: 1, ProducerID: 9, ProducerEpoch: 0, BaseSequence: int32(o)}
	}
	empty := batch.Build(nil, h(2))
	w.src.Append(topic, 0,
		batch.Build(nil, h(0), batch.KV{}, batch.KV{Key: []byte{}, Value: []byte{}}), empty,
		batch.Build(nil, h(500), batch.KV{Key: []byte("k")}), batch.Build(nil, h(501), batch.KV{Value: bytes.Repeat([]byte("x"), 3<<20)}))
	w.src.Change(func() { topic.Logs[1].Start = 12 })
	w.src.Append(topic, 1, batch.Build(nil, h(10), batch.KV{}, batch.KV{}, batch.KV{}, batch.KV{}))
	w.create()
	w.startTopics("t")
	w.caughtUp()
	w.same(topic)
	starts, err := kadm.NewClient(w.cl).ListStartOffsets(w.ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	if o, _ := starts.Lookup("t", 1); o.Offset != 12 {
		t.Errorf("log start %d, want 12, inside the batch", o.Offset)
	}
}

// C15: one flipped byte fails that partition only, with the offset.
func TestC15FlippedByte(t *testing.T) {
	w := newWorld(t)
	topic := w.src.CreateTopic("t", 2)
	for p := range int32(2) {
		for range 5 {
			w.src.Produce(topic, p, 3, 50)
		}
	}
	w.src.Change(func() {
		b := bytes.Clone(topic.Logs[0].Batches[3])
		b[len(b)-5] ^= 1
		topic.Logs[0].Batches[3] = b
	})
	w.create()
	w.startTopics("t")
	f := w.failed("t", 0)
	if f.ErrorMessage == nil || !strings.Contains(*f.ErrorMessage, "offset 9") {
		t.Errorf("the error does not name offset 9: %v", f)
	}
	w.wait("the other partition caught up", func(p part) bool { return p.PartitionIndex == 0 || mirroring(p) })
	if got := w.stored("t", 1, 0); !bytes.Equal(got, w.src.Bytes(topic, 1)) {
		t.Error("the other partition differs")
	}
	if got := w.stored("t", 0, 0); !bytes.Equal(got, w.src.Bytes(topic, 0)[:len(got)]) || len(got) == 0 {
		t.Error("the batches before the bad one are not the source's")
	}
}

// C16: the source was restored from an old backup: same id, shorter log, lower epoch.
func TestC16SourceFromABackup(t *testing.T) {
	w := newWorld(t)
	topic := w.src.CreateTopic("t", 1)
	w.src.Change(func() { topic.Logs[0].Epoch = 3 })
	for range 10 {
		w.src.Produce(topic, 0, 2, 50)
	}
	w.create()
	w.startTopics("t")
	w.caughtUp()
	before := w.stored("t", 0, 0)
	w.src.Broker(1).Down()
	w.src.Change(func() {
		l := topic.Logs[0]
		l.Batches, l.Epoch = nil, 1
	})
	for range 15 {
		w.src.Produce(topic, 0, 2, 60)
	}
	w.src.Broker(1).Up(t)
	w.failedForGood("t", 0)
	if !bytes.Equal(w.stored("t", 0, 0), before) {
		t.Error("the copy has changed")
	}
}

// C60: the state record of a healthy copy is lost, or a FAILED copy is started
// again, while the source has expired the old data: nothing is cut.
func TestC60LostStateCutsNothing(t *testing.T) {
	w := newWorld(t)
	topic := w.src.CreateTopic("t", 1)
	for range 10 {
		w.src.Produce(topic, 0, 2, 50)
	}
	w.create()
	w.startTopics("t")
	w.caughtUp()
	before := w.stored("t", 0, 0)
	w.restart(func(dir string) {
		dirs, err := filepath.Glob(filepath.Join(dir, "__mirror_state-*"))
		if err != nil || len(dirs) == 0 {
			t.Fatalf("no state partitions: %v", err)
		}
		for _, d := range dirs {
			if err := os.RemoveAll(d); err != nil {
				t.Fatal(err)
			}
		}
		// What the broker asks for when files are lost for good; until then it keeps the shards offline.
		if err := os.Remove(filepath.Join(dir, "stet-partitions")); err != nil {
			t.Fatal(err)
		}
		w.src.Change(func() { topic.Logs[0].Batches, topic.Logs[0].Start = topic.Logs[0].Batches[8:], 16 })
	})
	w.src.Produce(topic, 0, 2, 50)
	w.wait("all is copied", func(p part) bool { return mirroring(p) && p.DestinationOffset == topic.Logs[0].End() })
	if got := w.stored("t", 0, 16); !bytes.HasSuffix(got, w.src.Bytes(topic, 0)) {
		t.Error("the copy does not go on with the source's bytes")
	}
	if cut := counters(t, w.b)[`stet_mirror_cut_records_total{mirror="m",partition="0",topic="t"}`]; cut != 0 {
		t.Errorf("%g records were cut", cut)
	}
	_ = before
}

// C65: a power loss after STOPPED takes the reset record; the barrier is run again
// before the first produce.
func TestC65BarrierIsRepaired(t *testing.T) {
	w := newWorld(t)
	topic := w.src.CreateTopic("t", 1)
	w.src.Append(topic, 0, data(0, 0, 0, 0, 0, true, "open"))
	w.create()
	w.startTopics("t")
	w.caughtUp()
	w.stop("t")
	if got := kinds(t, w.stored("t", 0, 1)); got != "1 ABORT 0, 2 RESET -1" {
		t.Fatalf("the barrier wrote %s", got)
	}
	w.restart(func(dir string) {
		file := filepath.Join(dir, "t-0", "00000000000000000000.log")
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var keep int
		for rest := raw; len(rest) > 0; {
			b, next, err := batch.Next(rest)
			if err != nil {
				t.Fatal(err)
			}
			if b.BaseOffset() == 2 {
				break
			}
			keep += len(b)
			rest = next
		}
		if err := os.WriteFile(file, raw[:keep], 0o644); err != nil {
			t.Fatal(err)
		}
		for _, f := range []string{".kafka_cleanshutdown", "recovery-point-offset-checkpoint"} { // as after a power loss
			if err := os.Remove(filepath.Join(dir, f)); err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
		}
		for _, pattern := range []string{"*.index", "*.timeindex", "*.snapshot"} {
			files, _ := filepath.Glob(filepath.Join(dir, "t-0", pattern))
			for _, f := range files {
				if err := os.Remove(f); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
	r := w.cl.ProduceSync(w.ctx, &kgo.Record{Topic: "t", Value: []byte("local")})
	if err := r.FirstErr(); err != nil {
		t.Fatal(err)
	}
	if got := kinds(t, w.stored("t", 0, 0)); !strings.HasPrefix(got, "0 DATA 0, 1 ABORT 0, 2 RESET -1, 3 DATA") {
		t.Errorf("the log is %s", got)
	}
}

// C72: the source is away for long; mirroring goes on soon after its return, without an operator.
func TestC72SourceIsAway(t *testing.T) {
	w := newWorld(t, "mirror.failed.retry.max.attempts=2")
	topic := w.src.CreateTopic("t", 2)
	w.src.Produce(topic, 0, 2, 50)
	w.create()
	w.startTopics("t")
	w.caughtUp()
	w.src.Broker(1).Down()
	w.src.Broker(2).Down()
	w.wait("the outage is visible", func(p part) bool { return p.LagAgeMs > 1000 })
	w.src.Broker(1).Up(t)
	w.src.Broker(2).Up(t)
	w.src.Produce(topic, 0, 2, 50)
	w.src.Produce(topic, 1, 2, 50)
	w.wait("goes on", func(p part) bool { return mirroring(p) && p.DestinationOffset == int64(4-2*p.PartitionIndex) })
	w.same(topic)
}

// C73: stop right after the start, before any state exists; stop of a topic to
// which partitions were just added. All writable.
func TestC73StopAtOnce(t *testing.T) {
	w := newWorld(t)
	topic := w.src.CreateTopic("t", 2)
	w.src.Produce(topic, 0, 2, 50)
	w.create()
	w.startTopics("t")
	w.stop("t")
	write := func(name string, partitions int32) {
		t.Helper()
		for p := range partitions {
			if err := w.cl.ProduceSync(w.ctx, &kgo.Record{Topic: name, Partition: p, Value: []byte("local")}).FirstErr(); err != nil {
				t.Errorf("%s-%d: %v", name, p, err)
			}
		}
	}
	write("t", 2)

	grown := w.src.CreateTopic("u", 1)
	w.startTopics("u")
	w.wait("u mirrors", func(p part) bool { return len(w.describe()) == 3 && (p.topic != "u" || mirroring(p)) })
	w.src.Change(func() {
		for range 3 {
			grown.Logs = append(grown.Logs, &scripted.Log{Leader: 1})
		}
	})
	for p := range int32(4) {
		w.src.Produce(grown, p, 2, 50)
	}
	w.wait("u has grown", func(p part) bool { return len(w.describe()) == 6 })
	w.stop("u")
	write("u", 4)
}

// A source leader that moves and comes back: only its partitions pause, bytes are equal.
func TestLeaderMoves(t *testing.T) {
	w := newWorld(t)
	topic := w.src.CreateTopic("t", 4)
	w.create()
	w.startTopics("t")
	for round := range 6 {
		for p := range int32(4) {
			w.src.Produce(topic, p, 3, 50)
		}
		w.src.Change(func() {
			l := topic.Logs[round%4]
			l.Leader, l.Epoch = 3-l.Leader, l.Epoch+1
		})
		for p := range int32(4) {
			w.src.Produce(topic, p, 3, 50)
		}
		w.wait("caught up", func(p part) bool { return mirroring(p) && p.DestinationOffset == int64(6*(round+1)) })
	}
	w.same(topic)
	for _, p := range w.describe() {
		if p.ErrorCode != 0 {
			t.Error(p)
		}
	}
}

// TestTakenTopicNeedsOverwrite: a topic of our own is never cut unless asked to.
func TestTakenTopicNeedsOverwrite(t *testing.T) {
	w := newWorld(t)
	topic := w.src.CreateTopic("t", 1)
	w.src.Produce(topic, 0, 2, 50)
	if _, err := kadm.NewClient(w.cl).CreateTopic(w.ctx, 1, 1, nil, "t"); err != nil {
		t.Fatal(err)
	}
	w.create()
	if _, err := w.tryStart(nil, "t"); err == nil {
		t.Error("a topic with another id was taken over")
	}
	if _, err := w.tryStart(func(r *mirrormsg.StartMirrorTopicsRequest) { r.Overwrite = true }, "t"); err == nil {
		t.Error("--overwrite took over a topic with another id")
	}
}

// TestTakenNamesAreSaid: a pattern that matches a topic whose name is taken here does not pass it over in silence.
func TestTakenNamesAreSaid(t *testing.T) {
	w := newWorld(t)
	w.src.CreateTopic("free", 1)
	w.src.CreateTopic("taken", 1)
	if _, err := kadm.NewClient(w.cl).CreateTopic(w.ctx, 1, 1, nil, "taken"); err != nil {
		t.Fatal(err)
	}
	w.create("mirror.topics.include", "free|taken")
	w.wait("free is mirrored", func(p part) bool { return p.topic == "free" && mirroring(p) })
	for deadline := time.Now().Add(20 * time.Second); ; {
		resp, err := mirrormsg.NewPtrDescribeMirrorsRequest().RequestWith(w.ctx, w.cl)
		if err != nil {
			t.Fatal(err)
		}
		if resp.ErrorMessage != nil && strings.Contains(*resp.ErrorMessage, "taken") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("describe says %v", resp.ErrorMessage)
		}
	}
}
