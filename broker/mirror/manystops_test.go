package mirror_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"stet/broker/mirror"
)

// TestProposalsOfAStop: the partitions of a topic that stops share proposals (goal G4): some for the epochs, some for
// the ends of the barriers, however many partitions there are. Each is still stopped by itself.
func TestProposalsOfAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const partitions = 200
		w := newPipedWorld(t, 1)
		topic := w.source.CreateTopic("big", partitions)
		for p := range int32(partitions) {
			w.source.Produce(topic, p, 3, 10)
		}
		w.createMirror()
		w.startTopics("big")
		for p := range int32(partitions) {
			w.untilEqual(topic, p)
			w.untilState("big", p, "MIRRORING")
		}
		w.disk.Store(int64(5 * time.Millisecond))
		w.proposals.Store(0)
		w.stopTopics("big")
		if n := w.proposals.Load(); n > 8 {
			t.Errorf("%d proposals for a stop of %d partitions", n, partitions)
		}
		epochs := map[int32]bool{}
		for p := range int32(partitions) {
			_, pairs := w.stored("big", p)
			l := w.log("big", p)
			if s, _ := w.status("big", p); s.State.String() != "STOPPED" || len(pairs) != 1 || pairs[0].LastMirrorOffset != 3 || pairs[0].BarrierEnd != 4 || l.LogEndOffset() != 4 {
				t.Errorf("partition %d: %+v, %+v, log end %d", p, s, pairs, l.LogEndOffset())
			}
			if g := l.gateKind(); g != mirror.GateOpen {
				t.Errorf("partition %d is not open: %+v", p, g)
			}
			epochs[l.LeaderEpoch()] = true
		}
		if len(epochs) < partitions/2 {
			t.Errorf("only %d different barrier epochs: each partition draws its own", len(epochs))
		}
	})
}

// TestStuckPartitionHoldsUpNobody: a partition that never comes to the epoch step delays the others a little, no more.
func TestStuckPartitionHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newPipedWorld(t, 1)
		topic := w.source.CreateTopic("few", 5)
		w.createMirror()
		w.startTopics("few")
		for p := range int32(5) {
			w.source.Produce(topic, p, 1, 10)
			w.untilEqual(topic, p)
		}
		release := make(chan struct{})
		var reached atomic.Int32
		w.mu.Lock()
		w.step = func(_ string, p int32, s mirror.BarrierStep) error {
			if p == 2 && s == mirror.BarrierKeepPair {
				<-release
			}
			if s == mirror.BarrierFinish {
				reached.Add(1)
			}
			return nil
		}
		w.mu.Unlock()
		done := make(chan struct{})
		go func() { defer close(done); w.stopTopics("few") }()
		w.eventually("the others are stopped", func() error {
			if n := reached.Load(); n != 4 {
				return fmt.Errorf("%d of 4", n)
			}
			return nil
		})
		close(release)
		<-done
	})
}
