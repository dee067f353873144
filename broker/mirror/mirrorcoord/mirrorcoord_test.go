package mirrorcoord

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"pgregory.net/rapid"

	"stet/broker/coord"
	"stet/broker/meta"
	"stet/broker/mirror/mirrorstate"
	"stet/broker/mirrormsg"
	"stet/zerocopy/batch"
)

var (
	mirrorID = [16]byte{0x33}
	topicID  = [16]byte{0x77}
)

// world is a coordinator that leads all partitions of __mirror_state.
type world struct {
	t    *testing.T
	c    *Coordinator
	img  atomic.Pointer[meta.Image]
	logs []*coord.MemLog
}

func run(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t}
		w.img.Store(meta.Empty())
		for range 3 {
			w.logs = append(w.logs, coord.NewMemLog())
		}
		w.topic(mirrormsg.MirrorStateTopic, [16]byte{1}, int32(len(w.logs)))
		w.apply(&meta.CreateMirror{Name: "m", ID: mirrorID})
		w.topic("t", topicID, 4)
		w.start()
		f(w)
		w.c.Close()
	})
}

func (w *world) start() {
	w.c = New(Options{Image: w.img.Load})
	for i, l := range w.logs {
		w.c.BecomeLeader(int32(i), 1, l)
	}
	synctest.Wait()
}

func (w *world) failOver() {
	w.c.Close()
	w.start()
}

func (w *world) apply(recs ...meta.Record) {
	img, delta := w.img.Load().Apply(recs)
	w.img.Store(img)
	if w.c != nil {
		w.c.Apply(delta)
		// A sweep lingers as every write does.
		time.Sleep(time.Second)
		synctest.Wait()
	}
}

func (w *world) topic(name string, id [16]byte, partitions int32) {
	recs := []meta.Record{&meta.CreateTopic{Name: name, ID: id, Incarnation: -1}}
	for p := range partitions {
		recs = append(recs, &meta.CreatePartition{TopicID: id, Partition: p, State: meta.Partition{BarrierEnd: -1}})
	}
	w.apply(recs...)
}

func (w *world) incarnation() int64 { return w.img.Load().TopicByID(topicID).Incarnation }

type edit func(*mirrormsg.WriteMirrorStatesRequest, *mirrormsg.WriteMirrorStatesRequestTopicPartition)

// write writes a state of t-1; epoch is the state epoch last read.
func (w *world) write(state mirrorstate.State, epoch int32, edits ...edit) string {
	req := mirrormsg.NewPtrWriteMirrorStatesRequest()
	req.MirrorName, req.MirrorID = "m", mirrorID
	p := mirrormsg.NewWriteMirrorStatesRequestTopicPartition()
	p.PartitionIndex = 1
	s := mirrormsg.NewPartitionState()
	s.State, s.StateEpoch, s.LeaderEpoch, s.Incarnation = int8(state), epoch, 5, w.incarnation()
	p.State = &s
	for _, e := range edits {
		e(req, &p)
	}
	req.Topics = append(req.Topics, mirrormsg.WriteMirrorStatesRequestTopic{Name: "t", TopicID: topicID, Partitions: []mirrormsg.WriteMirrorStatesRequestTopicPartition{p}})
	resp, err := w.c.WriteMirrorStates(context.Background(), req)
	if err != nil {
		w.t.Fatal(err)
	}
	if resp.ErrorCode != 0 {
		return mirrormsg.CodeName(resp.ErrorCode)
	}
	rp := resp.Topics[0].Partitions[0]
	return fmt.Sprintf("%s %d", mirrormsg.CodeName(rp.ErrorCode), rp.StateEpoch)
}

func pairOf(cluster string, epoch int32) edit {
	return func(_ *mirrormsg.WriteMirrorStatesRequest, p *mirrormsg.WriteMirrorStatesRequestTopicPartition) {
		l := mirrormsg.NewLastMirrorEpochs()
		l.SourceClusterID, l.LastMirrorEpoch, l.LastMirrorOffset = cluster, epoch, 100
		if p.State != nil {
			l.Incarnation = p.State.Incarnation
		}
		p.LastMirror = &l
	}
}

// read returns t-1 as "STATE epoch [pairs]".
func (w *world) read() string {
	req := mirrormsg.NewPtrReadMirrorStatesRequest()
	req.MirrorName, req.MirrorID = "m", mirrorID
	req.Topics = []mirrormsg.ReadMirrorStatesRequestTopic{{Name: "t", TopicID: topicID, Partitions: []mirrormsg.ReadMirrorStatesRequestTopicPartition{{PartitionIndex: 1}}}}
	resp, err := w.c.ReadMirrorStates(context.Background(), req)
	if err != nil {
		w.t.Fatal(err)
	}
	if resp.ErrorCode != 0 {
		return mirrormsg.CodeName(resp.ErrorCode)
	}
	p := resp.Topics[0].Partitions[0]
	if p.ErrorCode != 0 {
		return mirrormsg.CodeName(p.ErrorCode)
	}
	s := "none"
	if p.State != nil {
		s = fmt.Sprintf("%v %d", mirrorstate.State(p.State.State), p.State.StateEpoch)
	}
	for _, l := range p.LastMirrors {
		s += fmt.Sprintf(" %s=%d/%d", l.SourceClusterID, l.LastMirrorEpoch, l.LastMirrorOffset)
	}
	return s
}

func (w *world) want(what, got, want string) {
	w.t.Helper()
	if got != want {
		w.t.Errorf("%s: %s, want %s", what, got, want)
	}
}

func TestStatesAndFencing(t *testing.T) {
	run(t, func(w *world) {
		w.want("nothing", w.read(), "none")
		w.want("first write", w.write(mirrorstate.Preparing, -1), "NONE 0")
		w.want("read", w.read(), "PREPARING 0")
		w.want("the same again", w.write(mirrorstate.Preparing, -1), "FENCED_STATE_EPOCH 0")
		w.want("next", w.write(mirrorstate.Mirroring, 0), "NONE 1")
		old := func(_ *mirrormsg.WriteMirrorStatesRequest, p *mirrormsg.WriteMirrorStatesRequestTopicPartition) {
			p.State.LeaderEpoch = 4
		}
		w.want("an older leader", w.write(mirrorstate.Failed, 1, old), "FENCED_LEADER_EPOCH 1")
		w.want("a step that does not exist", w.write(mirrorstate.Stopped, 1), "INVALID_MIRROR_STATE 1")
		w.want("unknown state", w.write(mirrorstate.State(12), 1), "INVALID_REQUEST 1")
		w.want("UNKNOWN", w.write(mirrorstate.Unknown, 1), "INVALID_REQUEST 1")
		w.want("to itself", w.write(mirrorstate.Mirroring, 1), "NONE 2")
		w.failOver()
		w.want("read after a fail-over", w.read(), "MIRRORING 2")
		w.want("next", w.write(mirrorstate.Stopping, 2), "NONE 3")
	})
}

func TestPairs(t *testing.T) {
	run(t, func(w *world) {
		w.want("both", w.write(mirrorstate.Preparing, -1, pairOf("c1", 7)), "NONE 0")
		only := func(_ *mirrormsg.WriteMirrorStatesRequest, p *mirrormsg.WriteMirrorStatesRequestTopicPartition) {
			p.LastMirror.Incarnation = w.incarnation()
			p.State = nil
		}
		w.want("a pair alone leaves the state", w.write(0, 0, pairOf("c2", 8), only), "NONE 0")
		w.want("read", w.read(), "PREPARING 0 c1=7/100 c2=8/100")
		remove := func(_ *mirrormsg.WriteMirrorStatesRequest, p *mirrormsg.WriteMirrorStatesRequestTopicPartition) {
			c := "c1"
			p.State, p.RemoveLastMirror = nil, &c
		}
		w.want("remove", w.write(0, 0, remove), "NONE 0")
		for i, l := range w.logs {
			if l.Synced() != l.LogEndOffset() {
				t.Errorf("log %d is synced up to %d of %d: the removed pair would be back after a power loss", i, l.Synced(), l.LogEndOffset())
			}
		}
		w.want("remove again", w.write(0, 0, remove), "NONE 0")
		w.failOver()
		w.want("read", w.read(), "PREPARING 0 c2=8/100")
		// A refused state takes the pair of the same partition with it.
		w.want("fenced", w.write(mirrorstate.Mirroring, 9, pairOf("c3", 1)), "FENCED_STATE_EPOCH 0")
		w.want("read", w.read(), "PREPARING 0 c2=8/100")
		// And the other way round.
		late := func(_ *mirrormsg.WriteMirrorStatesRequest, p *mirrormsg.WriteMirrorStatesRequestTopicPartition) {
			p.LastMirror.Incarnation--
		}
		w.want("old pair", w.write(mirrorstate.Mirroring, 0, pairOf("c3", 1), late), "UNKNOWN_TOPIC_ID 0")
		w.want("read", w.read(), "PREPARING 0 c2=8/100")
	})
}

func TestRequestErrors(t *testing.T) {
	run(t, func(w *world) {
		req := func(f func(*mirrormsg.WriteMirrorStatesRequest)) edit {
			return func(r *mirrormsg.WriteMirrorStatesRequest, _ *mirrormsg.WriteMirrorStatesRequestTopicPartition) { f(r) }
		}
		w.want("unknown mirror", w.write(0, -1, req(func(r *mirrormsg.WriteMirrorStatesRequest) { r.MirrorName = "n" })), "UNKNOWN_MIRROR")
		w.want("older mirror of the name", w.write(0, -1, req(func(r *mirrormsg.WriteMirrorStatesRequest) { r.MirrorID = [16]byte{9} })), "UNKNOWN_MIRROR")
		w.want("no id", w.write(0, -1, req(func(r *mirrormsg.WriteMirrorStatesRequest) { r.MirrorID = [16]byte{} })), "NONE 0")
		w.want("partition", w.write(0, -1, func(_ *mirrormsg.WriteMirrorStatesRequest, p *mirrormsg.WriteMirrorStatesRequestTopicPartition) {
			p.PartitionIndex = 9
		}), "UNKNOWN_TOPIC_OR_PARTITION -1")
		for i := range w.logs {
			w.c.Resign(int32(i))
		}
		w.want("not led here", w.write(0, 0), "NOT_COORDINATOR -1")
		w.want("not led here", w.read(), "NOT_COORDINATOR")
		img, _ := meta.Empty().Apply([]meta.Record{&meta.CreateMirror{Name: "m", ID: mirrorID}})
		w.img.Store(img)
		w.want("no topic", w.read(), "COORDINATOR_NOT_AVAILABLE")
	})
}

// Late writes of a topic or a mirror that was deleted and made again are ignored,
// and nothing of the old one is inherited (C70).
func TestDeletedAndMadeAgain(t *testing.T) {
	run(t, func(w *world) {
		w.want("write", w.write(mirrorstate.Preparing, -1, pairOf("c1", 7)), "NONE 0")
		old := w.incarnation()
		w.apply(&meta.RemoveTopic{ID: topicID})
		w.topic("t", topicID, 4)
		w.want("read", w.read(), "none")
		late := func(_ *mirrormsg.WriteMirrorStatesRequest, p *mirrormsg.WriteMirrorStatesRequestTopicPartition) {
			p.State.Incarnation = old
		}
		w.want("late write", w.write(mirrorstate.Mirroring, 0, late), "UNKNOWN_TOPIC_ID -1")
		early := func(_ *mirrormsg.WriteMirrorStatesRequest, p *mirrormsg.WriteMirrorStatesRequestTopicPartition) {
			p.State.Incarnation = w.incarnation() + 10
		}
		w.want("a writer that is ahead of us", w.write(mirrorstate.Preparing, -1, early), "COORDINATOR_LOAD_IN_PROGRESS -1")
		w.want("new life", w.write(mirrorstate.Preparing, -1), "NONE 0")

		w.apply(&meta.RemoveMirror{Name: "m"})
		w.want("mirror gone", w.read(), "UNKNOWN_MIRROR")
		w.apply(&meta.CreateMirror{Name: "m", ID: [16]byte{0x44}})
		w.want("old id", w.write(mirrorstate.Mirroring, 0), "UNKNOWN_MIRROR")
		again := func(r *mirrormsg.WriteMirrorStatesRequest, _ *mirrormsg.WriteMirrorStatesRequestTopicPartition) {
			r.MirrorID = [16]byte{0x44}
		}
		w.want("new id begins anew", w.write(mirrorstate.Preparing, -1, again), "NONE 0")
	})
}

// What is deleted leaves no record behind, also when nobody led the partition then.
func TestTombstones(t *testing.T) {
	entries := func(w *world) int {
		n := 0
		for i := range w.logs {
			_ = w.c.rt.Do(context.Background(), int32(i), func(m *machine, _ *coord.Shard) ([]batch.KV, error) {
				n += len(m.entries)
				return nil, nil
			})
		}
		return n
	}
	for _, c := range []struct {
		name string
		rec  meta.Record
	}{{"topic", &meta.RemoveTopic{ID: topicID}}, {"mirror", &meta.RemoveMirror{Name: "m"}}} {
		for _, away := range []bool{false, true} {
			run(t, func(w *world) {
				w.write(mirrorstate.Preparing, -1, pairOf("c1", 7))
				if n := entries(w); n != 1 {
					t.Fatalf("%d entries", n)
				}
				if away {
					w.c.Close()
					w.c = nil
				}
				w.apply(c.rec)
				if away {
					w.start()
					time.Sleep(time.Second)
					synctest.Wait()
				}
				if n := entries(w); n != 0 {
					t.Errorf("%s deleted, away %v: %d entries are left", c.name, away, n)
				}
			})
		}
	}
}

// An image that is older than a record says nothing about it.
func TestSweepWithAnOldImage(t *testing.T) {
	run(t, func(w *world) {
		w.write(mirrorstate.Preparing, -1, func(_ *mirrormsg.WriteMirrorStatesRequest, p *mirrormsg.WriteMirrorStatesRequestTopicPartition) {
			p.State.StartOffset = w.img.Load().Offset() - 1
		})
		m := &machine{entries: map[entryKey]*entry{}}
		for i := range w.logs {
			_ = w.c.rt.Do(context.Background(), int32(i), func(x *machine, _ *coord.Shard) ([]batch.KV, error) {
				for k, e := range x.entries {
					m.entries[k] = e
				}
				return nil, nil
			})
		}
		for offset := range w.img.Load().Offset() {
			empty := make([]meta.Record, offset)
			for i := range empty {
				empty[i] = &meta.ProducerIDs{}
			}
			img, _ := meta.Empty().Apply(empty) // knows neither mirror nor topic
			if recs, _ := m.sweep(img); len(recs) > 0 {
				t.Fatalf("an image at %d removes a record that comes later", offset)
			}
		}
	})
}

func TestLingerGathersWrites(t *testing.T) {
	run(t, func(w *world) {
		req := mirrormsg.NewPtrWriteMirrorStatesRequest()
		req.MirrorName, req.MirrorID = "m", mirrorID
		rt := mirrormsg.WriteMirrorStatesRequestTopic{Name: "t", TopicID: topicID}
		for p := range int32(4) {
			s := mirrormsg.NewPartitionState()
			s.State, s.Incarnation = int8(mirrorstate.Preparing), w.incarnation()
			rt.Partitions = append(rt.Partitions, mirrormsg.WriteMirrorStatesRequestTopicPartition{PartitionIndex: p, State: &s})
		}
		req.Topics = append(req.Topics, rt)
		start := time.Now()
		resp, err := w.c.WriteMirrorStates(context.Background(), req)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range resp.Topics[0].Partitions {
			if p.ErrorCode != 0 {
				t.Errorf("partition %d: %s", p.PartitionIndex, mirrormsg.CodeName(p.ErrorCode))
			}
		}
		batches, records := 0, int64(0)
		for _, l := range w.logs {
			batches += l.Batches()
			records += l.LogEndOffset()
		}
		if records != 4 || batches > len(w.logs) || time.Since(start) > time.Duration(len(w.logs))*10*time.Millisecond {
			t.Errorf("%d records in %d batches after %v", records, batches, time.Since(start))
		}
	})
}

func TestFailedWrite(t *testing.T) {
	run(t, func(w *world) {
		w.write(mirrorstate.Preparing, -1)
		for _, l := range w.logs {
			l.Fail(errors.New("disk"))
		}
		got := w.write(mirrorstate.Mirroring, 0)
		if !strings.HasPrefix(got, "COORDINATOR_NOT_AVAILABLE") {
			t.Errorf("failed append: %s", got)
		}
		for _, l := range w.logs {
			l.Fail(nil)
		}
		time.Sleep(3 * time.Second)
		w.want("what is in the log holds", w.read(), "PREPARING 0")
		for _, l := range w.logs {
			l.Hold()
		}
		if got := w.write(mirrorstate.Mirroring, 0); !strings.HasPrefix(got, mirrormsg.CodeName(kerr.RequestTimedOut.Code)) {
			t.Errorf("not replicated: %s", got)
		}
	})
}

func TestKeptLists(t *testing.T) {
	run(t, func(w *world) {
		w.write(mirrorstate.Preparing, -1, func(_ *mirrormsg.WriteMirrorStatesRequest, p *mirrormsg.WriteMirrorStatesRequestTopicPartition) {
			for i := range 20 {
				p.State.Cuts = append(p.State.Cuts, mirrormsg.PartitionStateCut{Offset: int64(i)})
				p.State.Events = append(p.State.Events, mirrormsg.PartitionStateEvent{FromOffset: int64(i)})
			}
		})
		for i := range w.logs {
			_ = w.c.rt.Do(context.Background(), int32(i), func(m *machine, _ *coord.Shard) ([]batch.KV, error) {
				for _, e := range m.entries {
					if len(e.state.Cuts) != 16 || e.state.Cuts[15].Offset != 19 || len(e.state.Events) != 16 || e.state.Events[0].FromOffset != 4 {
						t.Errorf("%d cuts, %d events", len(e.state.Cuts), len(e.state.Events))
					}
				}
				return nil, nil
			})
		}
	})
}

// Of writers that race only one wins each epoch, and what is stored is what the winners wrote, in order.
func TestRacingWriters(t *testing.T) {
	run(t, func(w *world) {
		var mu sync.Mutex
		wins := map[string]int{}
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for epoch := int32(-1); epoch < 9; epoch++ {
					got := w.write(mirrorstate.Preparing, epoch)
					if code, stored, _ := strings.Cut(got, " "); code == "NONE" {
						mu.Lock()
						wins[stored]++
						mu.Unlock()
					}
				}
			})
		}
		wg.Wait()
		for e, n := range wins {
			if n != 1 {
				t.Errorf("state epoch %s was written %d times", e, n)
			}
		}
		w.want("read", w.read(), fmt.Sprintf("PREPARING %d", len(wins)-1))
	})
}

// nextState against a plain model of the fencing rules.
func TestNextStateProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		topic := &meta.Topic{Incarnation: 10}
		var stored *mirrormsg.PartitionState
		for range rapid.IntRange(1, 40).Draw(t, "writes") {
			in := mirrormsg.NewPartitionState()
			in.State = int8(rapid.SampledFrom(mirrorstate.All[:]).Draw(t, "state"))
			in.StateEpoch = rapid.Int32Range(-1, 6).Draw(t, "epoch")
			in.LeaderEpoch = rapid.Int32Range(0, 3).Draw(t, "leader")
			in.Incarnation = rapid.Int64Range(9, 11).Draw(t, "incarnation")
			next, err := nextState(topic, stored, &in)
			epoch, leader, from := int32(-1), int32(-1), mirrorstate.Unknown
			if stored != nil {
				epoch, leader, from = stored.StateEpoch, stored.LeaderEpoch, mirrorstate.State(stored.State)
			}
			ok := in.Incarnation == 10 && in.LeaderEpoch >= leader && in.StateEpoch == epoch && in.State != 16 && mirrorstate.Allowed(from, mirrorstate.State(in.State))
			if (err == nil) != ok {
				t.Fatalf("write %+v on %+v: %v", in, stored, err)
			}
			if err == nil {
				if next.StateEpoch != epoch+1 {
					t.Fatalf("epoch %d after %d", next.StateEpoch, epoch)
				}
				stored = next
			}
		}
	})
}

// stopping writes what a stop writes for one partition, one after the other; every write but the first has a pair.
func (w *world) stopping(topic string, id [16]byte, partition int32) {
	inc := w.img.Load().TopicByID(id).Incarnation
	for n, state := range []mirrorstate.State{mirrorstate.Stopping, mirrorstate.Stopping, mirrorstate.Stopped} {
		req := mirrormsg.NewPtrWriteMirrorStatesRequest()
		req.MirrorName, req.MirrorID = "m", mirrorID
		p := mirrormsg.NewWriteMirrorStatesRequestTopicPartition()
		s := mirrormsg.NewPartitionState()
		s.State, s.StateEpoch, s.Incarnation = int8(state), int32(n-1), inc
		p.PartitionIndex, p.State = partition, &s
		if n > 0 {
			l := mirrormsg.NewLastMirrorEpochs()
			l.SourceClusterID, l.Incarnation = "c", inc
			p.LastMirror = &l
		}
		req.Topics = append(req.Topics, mirrormsg.WriteMirrorStatesRequestTopic{Name: topic, TopicID: id, Partitions: []mirrormsg.WriteMirrorStatesRequestTopicPartition{p}})
		resp, err := w.c.WriteMirrorStates(context.Background(), req)
		if err != nil || resp.ErrorCode != 0 || resp.Topics[0].Partitions[0].ErrorCode != 0 {
			w.t.Errorf("write %d of partition %d: %v, %+v", n, partition, err, resp)
		}
	}
}

func (w *world) batches() (n int) {
	for _, l := range w.logs {
		n += l.Batches()
	}
	return n
}

// TestWritesOfAStop: a partition that stops alone does not wait for others; many share batches (goal G4).
func TestWritesOfAStop(t *testing.T) {
	run(t, func(w *world) {
		start := time.Now()
		w.stopping("t", topicID, 0)
		if took := time.Since(start); took != 0 {
			t.Errorf("a stop of one partition waits %v for other writes", took)
		}
		if n := w.batches(); n != 3 {
			t.Errorf("%d batches for three writes", n)
		}
		big := [16]byte{0x88}
		w.topic("big", big, 300)
		before := w.batches()
		start = time.Now()
		var wg sync.WaitGroup
		for p := range int32(300) {
			wg.Go(func() { w.stopping("big", big, p) })
		}
		wg.Wait()
		if n := w.batches() - before; n > 6*len(w.logs) {
			t.Errorf("%d batches for the 900 writes of a stop to %d partitions", n, len(w.logs))
		}
		if took := time.Since(start); took > 30*time.Millisecond {
			t.Errorf("a stop of 300 partitions waits %v for batches", took)
		}
		for i, l := range w.logs {
			if l.Synced() != l.LogEndOffset() {
				t.Errorf("log %d is synced up to %d of %d: pairs would be lost with the power", i, l.Synced(), l.LogEndOffset())
			}
		}
	})
}
