package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"stet/broker/meta"
	"stet/broker/mirror"
	"stet/broker/mirrormsg"
	"stet/zerocopy/batch"
)

func local(n int) []byte {
	return batch.Build(nil, batch.Header{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, Timestamp: 5}, slices.Repeat([]batch.KV{{Value: []byte("local")}}, n)...)
}

func TestMirrorLife(t *testing.T) {
	w := newWorld(t, 2)
	orders, other := w.source.CreateTopic("orders", 3), w.source.CreateTopic("payments", 1)
	w.source.CreateTopic("hidden", 1)
	orders.Configs["retention.ms"] = "7"
	for p := range orders.Logs {
		w.source.Produce(orders, int32(p), 5, 50)
	}
	w.source.Produce(other, 0, 5, 50)
	w.createMirror()
	req := w.startReq("orders")
	req.IncludePatterns = []string{"pay.*"}
	resp := w.m.StartMirrorTopics(context.Background(), req)
	if resp.ErrorCode != 0 || len(resp.Topics) != 2 || resp.Topics[0].ErrorCode != 0 || resp.Topics[1].Name != "payments" {
		t.Fatalf("%+v %s", resp, str(resp.ErrorMessage))
	}
	img := w.image()
	if tp := img.Topic("orders"); tp.ID != orders.ID || len(tp.Partitions) != 3 || img.Config(meta.ResourceTopic, "orders")["retention.ms"] != "7" {
		t.Errorf("topic %+v", tp)
	}
	if img.Topic("hidden") != nil {
		t.Error("a topic was started that nobody asked for")
	}
	for p := range orders.Logs {
		w.untilEqual(orders, int32(p))
	}
	w.untilEqual(other, 0)
	w.untilState("orders", 0, "MIRRORING")
	if g := w.log("orders", 0).gateKind(); g != mirror.GateReadOnly {
		t.Errorf("gate %v", g)
	}
	if err := w.log("orders", 0).produce(local(1)); err == nil {
		t.Error("a client wrote to a mirror topic")
	}
	w.eventually("lag 0", func() error {
		s, _ := w.status("orders", 1)
		if s.Lag != 0 || s.SourceOffset != 5 || s.LagAge < 0 || s.LagAge > 5*time.Second {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	again := w.startTopics("orders") // running already
	if len(again.Topics) != 1 {
		t.Errorf("%+v", again)
	}
	// pause
	pause := mirrormsg.NewPtrPauseMirrorTopicsRequest()
	pause.MirrorName = "m"
	pt := mirrormsg.NewPauseMirrorTopicsRequestTopic()
	pt.TopicName = "payments"
	pause.Topics = append(pause.Topics, pt)
	if r := w.m.PauseMirrorTopics(context.Background(), pause); r.ErrorCode != 0 || r.Topics[0].ErrorCode != 0 {
		t.Fatalf("%+v", r)
	}
	w.untilState("payments", 0, "PAUSED")
	w.source.Produce(other, 0, 5, 50)
	d := w.m.DescribeMirrors(context.Background(), mirrormsg.NewPtrDescribeMirrorsRequest())
	for _, tp := range d.Mirrors[0].Topics {
		for _, p := range tp.Partitions {
			if tp.TopicName == "payments" && (p.State != "PAUSED" || p.SourceOffset != -1 || p.Lag != -1 || p.DestinationOffset != 5) {
				t.Errorf("%+v", p)
			}
		}
	}
	resume := mirrormsg.NewPtrResumeMirrorTopicsRequest()
	resume.MirrorName = "m"
	rt := mirrormsg.NewResumeMirrorTopicsRequestTopic()
	rt.TopicName = "payments"
	resume.Topics = append(resume.Topics, rt)
	if r := w.m.ResumeMirrorTopics(context.Background(), resume); r.ErrorCode != 0 || r.Topics[0].ErrorCode != 0 {
		t.Fatalf("%+v", r)
	}
	w.untilEqual(other, 0)
	w.stopTopics("orders", "payments")
	list := w.m.ListMirrors(context.Background(), nil)
	if len(list.Mirrors) != 1 || list.Mirrors[0].TopicCount != 2 || list.Mirrors[0].SourceClusterID != w.source.ID {
		t.Errorf("%+v", list)
	}
	del := mirrormsg.NewPtrDeleteMirrorRequest()
	del.MirrorName = "m"
	if r := w.m.DeleteMirror(context.Background(), del); r.ErrorCode != 0 {
		t.Errorf("%+v", r)
	}
	if err := w.log("orders", 0).produce(local(1)); err != nil {
		t.Error(err)
	}
}

// TestStopExample is the example of SPEC section 7.
func TestStopExample(t *testing.T) {
	w := newWorld(t, 1)
	tp := w.source.CreateTopic("t", 1)
	w.tx(tp, 4001)
	w.tx(tp, 4001)
	w.tx(tp, 4002)
	w.createMirror()
	w.startTopics("t")
	w.untilEqual(tp, 0)
	w.eventually("lag 0", func() error {
		if s, _ := w.status("t", 0); s.Lag != 0 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	w.source.Broker(1).Down() // no live source is needed
	dry := w.stopReq("t")
	dry.DryRun = true
	if r := w.m.StopMirrorTopics(context.Background(), dry); r.ErrorCode != 0 || len(r.Topics[0].Stops) != 1 || r.Topics[0].Stops[0].Markers != 2 || r.Topics[0].Stops[0].LastMirrorOffset != 3 {
		t.Errorf("dry run %+v", r)
	}
	before := w.log("t", 0).LeaderEpoch()
	resp := w.stopTopics("t")
	l := w.log("t", 0)
	if got := strings.Join(l.control(), ", "); got != "3 ABORT 4001, 4 ABORT 4002, 5 RESET -1" {
		t.Errorf("control batches: %s", got)
	}
	s := resp.Topics[0].Stops
	if len(s) != 1 || s[0].LastMirrorOffset != 3 || s[0].SourceOffset != 3 || s[0].Behind != 0 || s[0].Markers != 2 || s[0].SightAgeMs < 0 {
		t.Errorf("report %+v", s)
	}
	if e := l.LeaderEpoch(); e < before+65536 || e > before+3*65536 {
		t.Errorf("leader epoch %d after %d", e, before)
	}
	if err := l.produce(local(1)); err != nil || l.LogEndOffset() != 7 {
		t.Errorf("%v, end %d", err, l.LogEndOffset())
	}
	if l.flushed != 6 {
		t.Errorf("synced to %d", l.flushed)
	}
	if _, state := w.image().TopicMirror("t"); state != meta.MirrorStopped {
		t.Errorf("metadata say %v", state)
	}
	_, pairs := w.stored("t", 0)
	if len(pairs) != 1 || pairs[0].LastMirrorOffset != 3 || pairs[0].LastMirrorEpoch != 0 || pairs[0].BarrierEnd != 6 || pairs[0].SourceClusterID != w.source.ID {
		t.Errorf("pairs %+v", pairs)
	}
}

// TestBarrierIsFinishedAfterACrash is C64 for one broker: a crash before each step.
func TestBarrierIsFinishedAfterACrash(t *testing.T) {
	for step := mirror.BarrierRemoveFetcher; step <= mirror.BarrierFinish; step++ {
		t.Run(fmt.Sprint(step), func(t *testing.T) {
			w := newWorld(t, 1)
			tp := w.source.CreateTopic("t", 1)
			w.tx(tp, 1)
			w.createMirror()
			w.startTopics("t")
			w.untilEqual(tp, 0)
			reached := make(chan struct{}, 1000)
			w.mu.Lock()
			w.step = func(_ string, _ int32, s mirror.BarrierStep) error {
				if s == step {
					reached <- struct{}{}
					return errors.New("crash")
				}
				return nil
			}
			w.mu.Unlock()
			go w.m.StopMirrorTopics(context.Background(), w.stopReq("t"))
			<-reached
			w.m.Close()
			epochs := map[int32]bool{}
			if e := w.log("t", 0).LeaderEpoch(); e > 60000 {
				epochs[e] = true
			}
			_, before := w.stored("t", 0)
			w.mu.Lock()
			w.step = nil
			w.mu.Unlock()
			w.restart()
			w.untilState("t", 0, "STOPPED")
			w.eventually("open", func() error {
				if g := w.log("t", 0).gateKind(); g != mirror.GateOpen {
					return fmt.Errorf("gate %v", g)
				}
				return nil
			})
			if got := strings.Join(w.log("t", 0).control(), ", "); got != "1 ABORT 1, 2 RESET -1" {
				t.Errorf("control batches: %s", got)
			}
			epochs[w.log("t", 0).LeaderEpoch()] = true
			if len(epochs) != 1 {
				t.Errorf("barrier epochs %v", epochs)
			}
			_, after := w.stored("t", 0)
			if len(after) != 1 || len(before) == 1 && before[0].StopID == after[0].StopID && (before[0].BarrierEpoch != after[0].BarrierEpoch || before[0].LastMirrorOffset != after[0].LastMirrorOffset) {
				t.Errorf("pairs %+v, before %+v", after, before)
			}
		})
	}
}

// TestBarrierAfterAPowerLoss: the pair is on disk before the bytes it vouches for. A stop that the power takes in between, and with it
// the end of the log, goes on with a pair that says where the copy ends now, also if it is interrupted again.
func TestBarrierAfterAPowerLoss(t *testing.T) {
	for step := mirror.BarrierRaiseEpoch; step <= mirror.BarrierFinish; step++ {
		for again := mirror.BarrierStep(0); again <= mirror.BarrierFinish; again += mirror.BarrierFinish {
			t.Run(fmt.Sprint(step, again), func(t *testing.T) {
				w := newWorld(t, 1)
				tp := w.source.CreateTopic("t", 1)
				w.source.Produce(tp, 0, 5, 10)
				w.source.Change(func() { tp.Logs[0].Epoch = 3 })
				w.source.Produce(tp, 0, 5, 10)
				w.createMirror()
				w.startTopics("t")
				w.untilEqual(tp, 0)
				reached := make(chan struct{}, 1000)
				fail := func(at mirror.BarrierStep) {
					w.mu.Lock()
					defer w.mu.Unlock()
					w.step = func(_ string, _ int32, s mirror.BarrierStep) error {
						if s == at {
							reached <- struct{}{}
							return errors.New("crash")
						}
						return nil
					}
				}
				fail(step)
				go w.m.StopMirrorTopics(context.Background(), w.stopReq("t"))
				<-reached
				w.m.Close()
				_, before := w.stored("t", 0)
				l := w.log("t", 0)
				if len(before) != 1 || before[0].LastMirrorOffset != 10 || l.flushed != 0 {
					t.Fatalf("pairs %+v, %d flushed", before, l.flushed)
				}
				must(t, l.Truncate(5))
				for len(reached) > 0 {
					<-reached
				}
				if fail(again); again != 0 {
					w.restart()
					<-reached
					w.m.Close()
					fail(0)
				}
				w.restart()
				w.untilState("t", 0, "STOPPED")
				_, after := w.stored("t", 0)
				if len(after) != 1 || after[0].StopID != before[0].StopID || after[0].BarrierEpoch != before[0].BarrierEpoch || after[0].LastMirrorOffset != 5 || after[0].LastMirrorEpoch != 0 || after[0].BarrierEnd != 6 {
					t.Errorf("pairs %+v, before %+v", after, before)
				}
				if got := strings.Join(l.control(), ", "); got != "5 RESET -1" {
					t.Errorf("control batches: %s", got)
				}
			})
		}
	}
}

// TestLostBarrierIsRunAgain is C65: the log has lost the reset record after STOPPED.
func TestLostBarrierIsRunAgain(t *testing.T) {
	for _, deleted := range []bool{false, true} {
		w := newWorld(t, 1)
		tp := w.source.CreateTopic("t", 1)
		w.source.Produce(tp, 0, 5, 10)
		w.source.Produce(tp, 0, 5, 10)
		w.createMirror()
		w.startTopics("t")
		w.untilEqual(tp, 0)
		w.stopTopics("t")
		epoch := w.log("t", 0).LeaderEpoch()
		if deleted {
			del := mirrormsg.NewPtrDeleteMirrorRequest()
			del.MirrorName = "m"
			if r := w.m.DeleteMirror(context.Background(), del); r.ErrorCode != 0 {
				t.Fatal(r.ErrorCode)
			}
		}
		w.m.Close()
		l := w.log("t", 0)
		must(t, l.Truncate(5))
		w.restart()
		w.eventually("open", func() error {
			if g := l.gateKind(); g != mirror.GateOpen {
				return fmt.Errorf("gate %v", g)
			}
			return nil
		})
		if got := strings.Join(l.control(), ", "); got != "5 RESET -1" {
			t.Errorf("control batches: %s", got)
		}
		if l.LeaderEpoch() <= epoch {
			t.Error("the epoch of the lost end is used again")
		}
		must(t, l.produce(local(1)))
		if b := w.image().Partition("t", 0).BarrierEnd; b != 6 { // also of a deleted mirror: else every restart repairs again
			t.Errorf("barrier end %d", b)
		}
		if deleted {
			continue
		}
		_, pairs := w.stored("t", 0)
		if len(pairs) != 1 || pairs[0].LastMirrorOffset != 5 || pairs[0].BarrierEnd != 6 {
			t.Errorf("pairs %+v", pairs)
		}
	}
}

// TestRehearsedFailover stops, writes, and starts again: what was written here is cut by our own pair.
func TestRehearsedFailover(t *testing.T) {
	w := newWorld(t, 1)
	tp := w.source.CreateTopic("t", 1)
	w.source.Produce(tp, 0, 5, 10)
	w.createMirror()
	w.startTopics("t")
	w.untilEqual(tp, 0)
	for round := range 3 {
		w.stopTopics("t")
		l := w.log("t", 0)
		copied := int64(5 * (round + 1))
		must(t, l.produce(local(4)))
		w.source.Produce(tp, 0, 5, 10)
		dry := w.startReq("t")
		dry.DryRun = true
		r := w.m.StartMirrorTopics(context.Background(), dry)
		if r.ErrorCode != 0 || len(r.Topics) != 1 || r.Topics[0].ErrorCode != 0 || len(r.Topics[0].Cuts) != 1 || r.Topics[0].Cuts[0].FromOffset != copied || r.Topics[0].Cuts[0].ToOffset != copied+5 {
			t.Fatalf("dry run %+v %s", r, str(r.ErrorMessage))
		}
		if l.LogEndOffset() != copied+5 || l.gateKind() != mirror.GateOpen {
			t.Fatalf("a dry run changed something: end %d, gate %v", l.LogEndOffset(), l.gateKind())
		}
		w.startTopics("t")
		w.untilEqual(tp, 0)
		w.untilState("t", 0, "MIRRORING")
		s, _ := w.stored("t", 0)
		if n := len(s.Events); n != round+1 || s.Events[n-1].Kind != mirror.EventCut || s.Events[n-1].FromOffset != copied || s.Events[n-1].ToOffset != copied+5 {
			t.Errorf("events %+v", s.Events)
		}
	}
	if len(w.clamps) < 6 { // per round one at the stop and one at the cut
		t.Errorf("group offsets: %v", w.clamps)
	}
}

// TestC17CutBelowTheCleaner: local compaction has looked beyond the place of the cut, so an older value of a key may be
// gone in favour of one that is cut now: the partition is copied again from the start.
func TestC17CutBelowTheCleaner(t *testing.T) {
	w := newWorld(t, 1)
	tp := w.source.CreateTopic("t", 1)
	w.source.Produce(tp, 0, 5, 10)
	w.createMirror()
	w.startTopics("t")
	w.untilEqual(tp, 0)
	w.stopTopics("t")
	l := w.log("t", 0)
	must(t, l.produce(local(4)))
	l.mu.Lock()
	l.cleaned = 7 // copied are 0 to 4, the cut will be at 5
	l.mu.Unlock()
	dry := w.startReq("t")
	dry.DryRun = true
	r := w.m.StartMirrorTopics(context.Background(), dry)
	if len(r.Topics) != 1 || len(r.Topics[0].Cuts) != 1 || r.Topics[0].Cuts[0].FromOffset != 0 {
		t.Fatalf("dry run %+v %s", r, str(r.ErrorMessage))
	}
	w.startTopics("t")
	w.untilEqual(tp, 0)
	w.untilState("t", 0, "MIRRORING")
	s, _ := w.stored("t", 0)
	if n := len(s.Events); n != 1 || s.Events[0].Kind != mirror.EventCut || s.Events[0].FromOffset != 0 {
		t.Errorf("events %+v", s.Events)
	}
}

func TestOwnTopicIsNotOverwritten(t *testing.T) {
	w := newWorld(t, 1)
	tp := w.source.CreateTopic("t", 1)
	w.source.Produce(tp, 0, 5, 10)
	w.createMirror()
	w.startTopics("t")
	w.untilEqual(tp, 0)
	w.stopTopics("t")
	must(t, w.log("t", 0).produce(local(2)))
	w.mu.Lock()
	clear(w.pairs) // nobody knows any more where the histories part
	w.mu.Unlock()
	resp := w.m.StartMirrorTopics(context.Background(), w.startReq("t"))
	if len(resp.Topics) != 1 || mirrormsg.CodeName(resp.Topics[0].ErrorCode) != "TOPIC_ALREADY_EXISTS" || !strings.Contains(str(resp.Topics[0].ErrorMessage), "--overwrite") {
		t.Fatalf("%+v", resp)
	}
	if l := w.log("t", 0); l.LogEndOffset() != 8 || l.gateKind() != mirror.GateOpen {
		t.Errorf("something changed: end %d", l.LogEndOffset())
	}
	over := w.startReq("t")
	over.Overwrite = true
	if r := w.m.StartMirrorTopics(context.Background(), over); r.ErrorCode != 0 || r.Topics[0].ErrorCode != 0 {
		t.Fatalf("%+v", r)
	}
	w.untilEqual(tp, 0)
}

func TestStartsAreKept(t *testing.T) {
	w := newWorld(t, 1)
	tp := w.source.CreateTopic("a.b", 1)
	w.source.CreateTopic("axb", 1) // must not match the kept name
	w.source.Produce(tp, 0, 5, 10)
	w.source.Broker(1).Down()
	w.createMirror()
	resp := w.m.StartMirrorTopics(context.Background(), w.startReq("a.b"))
	if resp.ErrorCode != 0 || len(resp.Topics) != 1 || resp.Topics[0].ErrorCode != 0 || !strings.Contains(str(resp.Topics[0].ErrorMessage), w.source.Bootstrap()) {
		t.Fatalf("%+v %s", resp, str(resp.ErrorMessage))
	}
	d := w.m.DescribeMirrors(context.Background(), mirrormsg.NewPtrDescribeMirrorsRequest())
	if !strings.Contains(str(d.ErrorMessage), "connection refused") {
		t.Errorf("describe does not say why nothing runs: %q", str(d.ErrorMessage))
	}
	w.source.Broker(1).Up(t)
	w.untilEqual(tp, 0)
	if w.image().Topic("axb") != nil {
		t.Error("a kept name was taken for a pattern")
	}
}

func TestSourceAway(t *testing.T) {
	w := newWorld(t, 1)
	tp := w.source.CreateTopic("t", 2)
	w.source.Produce(tp, 0, 5, 10)
	w.createMirror()
	w.startTopics("t")
	w.untilEqual(tp, 0)
	w.source.Broker(1).Down()
	s := w.untilState("t", 0, "FAILED")
	if !strings.Contains(s.Error, w.source.Bootstrap()) || s.RetryAttempt != 0 {
		t.Errorf("%+v", s)
	}
	w.untilState("t", 1, "FAILED")
	w.restart() // also across a restart of ours
	w.source.Produce(tp, 0, 5, 10)
	w.source.Produce(tp, 1, 5, 10)
	w.source.Broker(1).Up(t)
	w.untilEqual(tp, 0)
	w.untilEqual(tp, 1)
	if s := w.untilState("t", 0, "MIRRORING"); s.RetryAttempt != 0 {
		t.Errorf("an attempt was used up: %+v", s)
	}
}

func TestLeaderMovesAndEpochs(t *testing.T) {
	w := newWorld(t, 2)
	tp := w.source.CreateTopic("t", 1)
	w.source.Produce(tp, 0, 5, 10)
	w.source.Change(func() { tp.Logs[0].Epoch = 7 })
	w.createMirror()
	w.startTopics("t")
	w.untilEqual(tp, 0)
	if e := w.log("t", 0).LeaderEpoch(); e < 7 {
		t.Errorf("leader epoch %d below the source's", e)
	}
	for i := range 6 { // leaders move, epochs jump ever higher
		w.source.Change(func() {
			tp.Logs[0].Leader = int32(i%2 + 1)
			tp.Logs[0].Epoch += int32(1 + i*9)
		})
		w.source.Produce(tp, 0, 3, 10)
		w.untilEqual(tp, 0)
		if e := w.log("t", 0).LeaderEpoch(); e < tp.Logs[0].Epoch {
			t.Errorf("leader epoch %d below the source's %d", e, tp.Logs[0].Epoch)
		}
	}
	w.untilState("t", 0, "MIRRORING")
}

func TestEpochFencingAfterAnUnannouncedJump(t *testing.T) {
	w := newWorld(t, 1)
	tp := w.source.CreateTopic("t", 1)
	w.source.Produce(tp, 0, 5, 10)
	w.createMirror()
	w.startTopics("t")
	w.untilEqual(tp, 0)
	// A batch whose epoch is above what the metadata say (SPEC 4.4): the leader did not change for the fetcher.
	w.source.Append(tp, 0, batch.Build(nil, batch.Header{BaseOffset: 5, PartitionLeaderEpoch: 500, ProducerID: -1}, batch.KV{Value: []byte("v")}))
	w.untilEqual(tp, 0)
	if e := w.log("t", 0).LeaderEpoch(); e < 510 {
		t.Errorf("leader epoch %d", e)
	}
}

func TestUncleanElection(t *testing.T) {
	for _, support := range []bool{true, false} {
		t.Run(fmt.Sprint(support), func(t *testing.T) { // C07
			w := newWorld(t, 1)
			w.ule = support
			tp := w.source.CreateTopic("t", 1)
			w.source.Change(func() { tp.Logs[0].Epoch = 5 })
			for range 10 {
				w.source.Produce(tp, 0, 10, 10)
			}
			w.createMirror()
			w.startTopics("t")
			w.untilEqual(tp, 0)
			w.source.Change(func() { tp.Logs[0].TruncateTo(80); tp.Logs[0].Epoch = 6 })
			w.source.Produce(tp, 0, 10, 10)
			if !support {
				s := w.untilState("t", 0, "FAILED")
				if s.RetryAttempt != -1 || !strings.Contains(s.Error, "80") || w.log("t", 0).LogEndOffset() != 100 {
					t.Errorf("%+v", s)
				}
				return
			}
			w.untilEqual(tp, 0)
			w.untilState("t", 0, "MIRRORING")
			s, _ := w.stored("t", 0)
			if len(s.Events) != 1 || s.Events[0].Kind != mirror.EventCut || s.Events[0].FromOffset != 80 || s.Events[0].ToOffset != 100 || len(s.Cuts) != 1 || s.Cuts[0].Offset != 80 {
				t.Errorf("%+v", s)
			}
			if !slices.Contains(w.clamps, "t-0 80") {
				t.Errorf("group offsets: %v", w.clamps)
			}
		})
	}
}

// TestRestoredSource is C16: our offset lies inside another log of the same id.
func TestRestoredSource(t *testing.T) {
	w := newWorld(t, 1)
	tp := w.source.CreateTopic("t", 1)
	w.source.Change(func() { tp.Logs[0].Epoch = 9 })
	w.source.Produce(tp, 0, 10, 10)
	w.createMirror()
	w.startTopics("t")
	w.untilEqual(tp, 0)
	w.source.Change(func() { tp.Logs[0].Batches, tp.Logs[0].Epoch = nil, 2 })
	for range 5 {
		w.source.Produce(tp, 0, 10, 20)
	}
	s := w.untilState("t", 0, "FAILED")
	if s.RetryAttempt != -1 || w.log("t", 0).LogEndOffset() != 10 || s.GapRecords != 0 {
		t.Errorf("%+v", s)
	}
}

func TestGap(t *testing.T) {
	for _, policy := range []string{"continue", "fail"} { // C04
		t.Run(policy, func(t *testing.T) {
			w := newWorld(t, 1)
			tp := w.source.CreateTopic("t", 1)
			w.source.Produce(tp, 0, 10, 10)
			w.createMirror("mirror.on.gap", policy)
			w.startTopics("t")
			w.untilEqual(tp, 0)
			w.source.Broker(1).Down()
			w.untilState("t", 0, "FAILED")
			for range 3 {
				w.source.Produce(tp, 0, 10, 10)
			}
			w.source.Change(func() { tp.Logs[0].Start, tp.Logs[0].Batches = 30, tp.Logs[0].Batches[3:] })
			w.source.Broker(1).Up(t)
			if policy == "fail" {
				w.eventually("an operator is asked", func() error {
					if s, _ := w.status("t", 0); s.RetryAttempt != -1 || !strings.Contains(s.Error, "10 to 30") {
						return fmt.Errorf("%+v", s)
					}
					return nil
				})
				return
			}
			w.untilEqual(tp, 0)
			s, _ := w.stored("t", 0)
			if len(s.Events) != 1 || s.Events[0].Kind != mirror.EventGap || s.Events[0].FromOffset != 10 || s.Events[0].ToOffset != 30 {
				t.Errorf("%+v", s.Events)
			}
			if start := w.log("t", 0).LogStartOffset(); start != 30 {
				t.Errorf("log start %d", start)
			}
		})
	}
}

func TestLogStartFollows(t *testing.T) {
	w := newWorld(t, 1)
	tp := w.source.CreateTopic("t", 1)
	w.source.Produce(tp, 0, 10, 10)
	w.source.Produce(tp, 0, 10, 10)
	w.createMirror()
	w.startTopics("t")
	w.untilEqual(tp, 0)
	w.source.Change(func() { tp.Logs[0].Start = 14 }) // inside a batch
	w.eventually("log start 14", func() error {
		if s := w.log("t", 0).LogStartOffset(); s != 14 {
			return fmt.Errorf("%d", s)
		}
		return nil
	})
}

func TestReplacedAndDeletedTopics(t *testing.T) { // C05
	w := newWorld(t, 1)
	a, b := w.source.CreateTopic("a", 1), w.source.CreateTopic("b", 1)
	w.source.Produce(a, 0, 10, 10)
	w.source.Produce(b, 0, 10, 10)
	w.createMirror()
	w.startTopics("a", "b")
	w.untilEqual(a, 0)
	w.untilEqual(b, 0)
	w.source.DeleteTopic("a")
	w.source.DeleteTopic("b")
	again := w.source.CreateTopic("a", 1)
	w.source.Produce(again, 0, 50, 10)
	w.eventually("a is named as made again", func() error {
		if s, _ := w.status("a", 0); s.State.String() != "FAILED" || s.RetryAttempt != -1 || !strings.Contains(s.Error, "made again") {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	w.eventually("b is named as deleted", func() error {
		if s, _ := w.status("b", 0); s.State.String() != "FAILED" || s.RetryAttempt != -1 || !strings.Contains(s.Error, "deleted") {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	if w.log("a", 0).LogEndOffset() != 10 || w.log("b", 0).LogEndOffset() != 10 {
		t.Error("a copy changed")
	}
	w.stopTopics("b") // a failover is possible all the same
	must(t, w.log("b", 0).produce(local(1)))
}

func TestCorruptBatchAndRecovery(t *testing.T) { // C15
	w := newWorld(t, 1)
	w.settings.RetryAttempts = 1000
	w.settings.RetryMax = 50 * time.Millisecond
	tp := w.source.CreateTopic("t", 2)
	bad := w.source.Produce(tp, 0, 5, 100)
	broken := slices.Clone(bad)
	broken[len(broken)-2] ^= 1
	w.source.Change(func() { tp.Logs[0].Batches[0] = broken })
	w.source.Produce(tp, 1, 5, 10)
	w.createMirror()
	w.startTopics("t")
	s := w.untilState("t", 0, "FAILED")
	if !strings.Contains(s.Error, "offset 0") || !strings.Contains(s.Error, "crc") {
		t.Errorf("%+v", s)
	}
	w.source.Produce(tp, 1, 5, 10)
	w.untilEqual(tp, 1)
	w.source.Change(func() { tp.Logs[0].Batches[0] = bad })
	w.untilEqual(tp, 0)
	w.eventually("the count is cleared", func() error {
		if s, _ := w.stored("t", 0); s.RetryAttempt != 0 || s.State != 2 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
}

func TestAttemptsEnd(t *testing.T) {
	w := newWorld(t, 1)
	w.settings.RetryAttempts, w.settings.RetryMax = 2, 10*time.Millisecond
	tp := w.source.CreateTopic("t", 1)
	bad := w.source.Produce(tp, 0, 5, 100)
	broken := slices.Clone(bad)
	broken[len(broken)-2] ^= 1
	w.source.Change(func() { tp.Logs[0].Batches[0] = broken })
	w.createMirror()
	w.startTopics("t")
	w.eventually("two attempts", func() error {
		if s, _ := w.status("t", 0); s.State.String() != "FAILED" || s.RetryAttempt != 2 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	w.source.Change(func() { tp.Logs[0].Batches[0] = bad })
	w.startTopics("t") // starting it again recovers it
	w.untilEqual(tp, 0)
}

func TestGrowthAndConfigs(t *testing.T) {
	w := newWorld(t, 1)
	tp := w.source.CreateTopic("t", 1)
	tp.Configs["retention.ms"], tp.Configs["min.insync.replicas"], tp.Configs["mirror.name"] = "100", "2", "x"
	w.createMirror()
	w.startTopics("t")
	w.source.Change(func() {
		other := w.source.CreateTopicLocked("t2", 4)
		tp.Logs = append(tp.Logs, other.Logs[1:]...)
		tp.Configs["retention.ms"] = "200"
		tp.Configs["max.message.bytes"] = "5000000"
	})
	for p := range 4 {
		w.source.Produce(tp, int32(p), 5, 10)
	}
	for p := range 4 {
		w.untilEqual(tp, int32(p))
	}
	config := func(k string) string { return w.image().Config(meta.ResourceTopic, "t")[k] }
	w.eventually("configs", func() error {
		if config("retention.ms") != "200" || config("max.message.bytes") != "5000000" || config("min.insync.replicas") != "" || config("mirror.name") != "m" {
			return fmt.Errorf("%v", w.image().Config(meta.ResourceTopic, "t"))
		}
		return nil
	})
	w.source.Change(func() { delete(tp.Configs, "retention.ms") })
	w.eventually("a config that the mirror had set is taken back", func() error {
		if config("retention.ms") != "" {
			return errors.New("still there")
		}
		return nil
	})
}

func TestLostStateWipesNothing(t *testing.T) { // C60
	w := newWorld(t, 1)
	tp := w.source.CreateTopic("t", 1)
	for range 4 {
		w.source.Produce(tp, 0, 5, 10)
	}
	w.createMirror()
	w.startTopics("t")
	w.untilEqual(tp, 0)
	w.m.Close()
	w.mu.Lock()
	clear(w.states)
	clear(w.pairs)
	w.mu.Unlock()
	before := w.log("t", 0).bytes()
	w.source.Change(func() { tp.Logs[0].Epoch = 3 })
	w.source.Produce(tp, 0, 5, 10)
	w.source.Change(func() { tp.Logs[0].Start, tp.Logs[0].Batches = 20, tp.Logs[0].Batches[4:] })
	w.restart()
	w.eventually("the copy goes on", func() error {
		if end := w.log("t", 0).LogEndOffset(); end != 25 {
			return fmt.Errorf("end %d", end)
		}
		return nil
	})
	s, _ := w.stored("t", 0)
	if len(s.Events) != 0 {
		t.Errorf("events %+v", s.Events)
	}
	_ = before
}

func TestStopRightAfterStart(t *testing.T) { // C73
	w := newWorld(t, 1)
	tp := w.source.CreateTopic("t", 3)
	w.source.Produce(tp, 0, 5, 10)
	w.createMirror()
	w.startTopics("t")
	w.stopTopics("t")
	for p := range 3 {
		must(t, w.log("t", int32(p)).produce(local(1)))
	}
}

func TestCoordinatorAway(t *testing.T) {
	w := newWorld(t, 1)
	tp := w.source.CreateTopic("t", 1)
	w.createMirror()
	w.mu.Lock()
	w.down = errors.New("no leader")
	w.mu.Unlock()
	w.startTopics("t")
	w.source.Produce(tp, 0, 5, 10)
	w.eventually("produce is refused as retriable", func() error {
		if l := w.log("t", 0); l == nil || l.gateKind() != mirror.GateUnknown {
			return errors.New("gate")
		}
		return nil
	})
	w.mu.Lock()
	w.down = nil
	w.mu.Unlock()
	w.untilEqual(tp, 0)
}

func TestRefusals(t *testing.T) {
	w := newWorld(t, 1)
	w.source.CreateTopic("t", 1)
	if r := w.m.StartMirrorTopics(context.Background(), w.startReq("t")); mirrormsg.CodeName(r.ErrorCode) != "UNKNOWN_MIRROR" {
		t.Errorf("%+v", r)
	}
	w.createMirror()
	r := w.m.StartMirrorTopics(context.Background(), w.startReq("none", "t"))
	if r.ErrorCode != 0 || len(r.Topics) != 2 || mirrormsg.CodeName(r.Topics[0].ErrorCode) != "UNKNOWN_TOPIC_OR_PARTITION" || r.Topics[1].ErrorCode != 0 {
		t.Errorf("%+v", r)
	}
	bad := w.startReq()
	bad.IncludePatterns = []string{"a("}
	if r := w.m.StartMirrorTopics(context.Background(), bad); mirrormsg.CodeName(r.ErrorCode) != "INVALID_REGULAR_EXPRESSION" {
		t.Errorf("%+v", r)
	}
	if r := w.m.StopMirrorTopics(context.Background(), w.stopReq("none")); r.ErrorCode != 0 || mirrormsg.CodeName(r.Topics[0].ErrorCode) != "TOPIC_NOT_IN_MIRROR" {
		t.Errorf("%+v", r)
	}
	w.untilState("t", 0, "MIRRORING")
	late := w.stopReq("t")
	late.WaitLagZeroMs = 30
	w.source.Broker(1).Down()
	w.untilState("t", 0, "FAILED")
	if r := w.m.StopMirrorTopics(context.Background(), late); mirrormsg.CodeName(r.Topics[0].ErrorCode) != "REQUEST_TIMED_OUT" {
		t.Errorf("%+v", r)
	}
	if _, state := w.image().TopicMirror("t"); state != meta.MirrorActive {
		t.Errorf("a stop that waited in vain left %v", state)
	}
}

func TestChangedConfig(t *testing.T) {
	w := newWorld(t, 1)
	tp := w.source.CreateTopic("t", 1)
	w.createMirror()
	w.startTopics("t")
	w.source.Produce(tp, 0, 5, 10)
	w.untilEqual(tp, 0)
	before := w.counters.Connects.Load()
	w.alter("mirror.topics.include", "none.*", "fetch.max.bytes", "2000000")
	w.source.Produce(tp, 0, 5, 10)
	w.untilEqual(tp, 0)
	if n := w.counters.Connects.Load(); n != before {
		t.Errorf("a change of a filter made %d new connections", n-before)
	}
	w.alter("request.timeout.ms", "4000")
	w.eventually("a new connection", func() error {
		if w.counters.Connects.Load() == before {
			return errors.New("none")
		}
		return nil
	})
	w.source.Produce(tp, 0, 5, 10)
	w.untilEqual(tp, 0)
	if s := w.untilState("t", 0, "MIRRORING"); s.RetryAttempt != 0 {
		t.Errorf("%+v", s)
	}
	// New topics that match the list are started by themselves.
	w.source.CreateTopic("none.1", 1)
	w.untilState("none.1", 0, "MIRRORING")
}
