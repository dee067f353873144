package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/broker/mirror"
	"stet/broker/mirrormsg"
	"stet/internal/testkit/scripted"
)

// TestInterruptedAssignmentGoesOn: a topic with a FAILED partition is started again, which interrupts another one that is on
// its way to a new leader. It must not rest in MIRRORING without being fetched.
func TestInterruptedAssignmentGoesOn(t *testing.T) {
	w := newWorld(t, 1)
	w.settings.RetryAttempts = 0
	tp := w.source.CreateTopic("t", 2)
	bad := w.source.Produce(tp, 0, 5, 100)
	broken := slices.Clone(bad)
	broken[len(broken)-2] ^= 1
	w.source.Change(func() { tp.Logs[0].Batches[0] = broken })
	w.source.Produce(tp, 1, 5, 10)
	w.createMirror()
	w.startTopics("t")
	w.untilState("t", 0, "FAILED")
	w.untilEqual(tp, 1)
	var leaderless, metadata atomic.Int32
	w.source.SetHook(func(c *scripted.Call) {
		switch r := c.Response.(type) {
		case *kmsg.FetchResponse:
			for _, rt := range r.Topics {
				for _, p := range rt.Partitions {
					if p.ErrorCode == kerr.NotLeaderForPartition.Code {
						leaderless.Add(1)
					}
				}
			}
		case *kmsg.MetadataResponse:
			if leaderless.Load() > 0 {
				metadata.Add(1)
			}
		}
	})
	w.source.Change(func() { tp.Logs[1].Leader = -1 })
	w.eventually("it looks for a leader", func() error {
		if metadata.Load() < 5 {
			return errors.New("not yet")
		}
		return nil
	})
	w.startTopics("t")
	w.source.Change(func() { tp.Logs[1].Leader = 1 })
	w.source.Produce(tp, 1, 5, 10)
	w.untilEqual(tp, 1)
}

// TestWaitLagZeroLosesNothing: the lag that was last seen is 0, but the source has more when the stop is asked for.
func TestWaitLagZeroLosesNothing(t *testing.T) {
	w := newWorld(t, 1)
	tp := w.source.CreateTopic("t", 1)
	w.source.Produce(tp, 0, 5, 10)
	w.createMirror()
	w.startTopics("t")
	w.untilEqual(tp, 0)
	w.eventually("lag 0", func() error {
		if s, _ := w.status("t", 0); s.Lag != 0 {
			return errors.New("not yet")
		}
		return nil
	})
	held, asked := make(chan struct{}), make(chan struct{}, 100)
	w.source.SetHook(func(c *scripted.Call) {
		switch r := c.Response.(type) {
		case *kmsg.FetchResponse:
			if len(r.Topics) > 0 {
				<-held // the news is under way
			}
		case *kmsg.ListOffsetsResponse:
			asked <- struct{}{}
		}
	})
	w.source.Produce(tp, 0, 5, 10)
	req := w.stopReq("t")
	req.WaitLagZeroMs = 20000
	done := make(chan *mirrormsg.StopMirrorTopicsResponse, 1)
	go func() { done <- w.m.StopMirrorTopics(context.Background(), req) }()
	select {
	case <-asked:
	case r := <-done:
		t.Errorf("it stopped without asking for the source's end: %+v", r.Topics)
		close(held)
		return
	}
	close(held)
	r := <-done
	if len(r.Topics) != 1 || r.Topics[0].ErrorCode != 0 || len(r.Topics[0].Stops) != 1 || r.Topics[0].Stops[0].LastMirrorOffset != 10 {
		t.Errorf("%+v %s", r, str(r.ErrorMessage))
	}
}

func TestWaitLagZeroWaitsForWhatWasNotTakenUp(t *testing.T) {
	w := newWorld(t, 1)
	tp := w.source.CreateTopic("t", 1)
	w.source.Produce(tp, 0, 5, 10)
	w.createMirror()
	w.startTopics("t")
	w.source.Broker(1).Down()
	w.untilState("t", 0, "FAILED")
	req := w.stopReq("t")
	req.WaitLagZeroMs = 30
	r := w.m.StopMirrorTopics(context.Background(), req)
	if len(r.Topics) != 1 || r.Topics[0].ErrorCode != kerr.RequestTimedOut.Code {
		t.Errorf("%+v %s", r, str(r.ErrorMessage))
	}
	w.untilState("t", 0, "FAILED")
}

// TestStartOfStoppedTopicIsKept: the source is away when a topic is started that is here already.
func TestStartOfStoppedTopicIsKept(t *testing.T) {
	w := newWorld(t, 1)
	tp := w.source.CreateTopic("t", 1)
	w.source.Produce(tp, 0, 5, 10)
	w.createMirror()
	w.startTopics("t")
	w.untilEqual(tp, 0)
	w.stopTopics("t")
	must(t, w.log("t", 0).produce(local(3)))
	w.source.Broker(1).Down()
	r := w.startTopics("t")
	if len(r.Topics) != 1 || str(r.Topics[0].ErrorMessage) == "" {
		t.Errorf("%+v", r)
	}
	w.source.Broker(1).Up(t)
	w.source.Produce(tp, 0, 5, 10)
	w.untilEqual(tp, 0)
}

// TestStartOfFailedTopicIsKept: what needs an operator is started while the source is away.
func TestStartOfFailedTopicIsKept(t *testing.T) {
	w := newWorld(t, 1)
	tp := w.source.CreateTopic("t", 1)
	w.source.Produce(tp, 0, 10, 10)
	w.createMirror("mirror.on.gap", "fail")
	w.startTopics("t")
	w.untilEqual(tp, 0)
	w.source.Broker(1).Down()
	w.untilState("t", 0, "FAILED")
	w.source.Produce(tp, 0, 10, 10)
	w.source.Produce(tp, 0, 10, 10)
	w.source.Change(func() { tp.Logs[0].Start, tp.Logs[0].Batches = 20, tp.Logs[0].Batches[2:] })
	w.source.Broker(1).Up(t)
	w.eventually("it needs an operator", func() error {
		if s, _ := w.status("t", 0); s.State.String() != "FAILED" || s.RetryAttempt != -1 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	w.alter("mirror.on.gap", "continue")
	w.source.Broker(1).Down()
	w.startTopics("t")
	w.source.Broker(1).Up(t)
	w.untilEqual(tp, 0)
}

// TestFailedStopIsTriedAgain: a partition that needed an operator is stopped, the stop fails, and a restart or another stop goes on.
func TestFailedStopIsTriedAgain(t *testing.T) {
	for _, restart := range []bool{true, false} {
		w := newWorld(t, 1)
		w.settings.RetryAttempts = 0
		tp := w.source.CreateTopic("t", 1)
		w.source.Produce(tp, 0, 5, 10)
		w.createMirror()
		w.startTopics("t")
		w.untilEqual(tp, 0)
		w.source.DeleteTopic("t")
		w.source.CreateTopic("t", 1)
		w.eventually("it needs an operator", func() error {
			if s, _ := w.status("t", 0); s.State.String() != "FAILED" || s.RetryAttempt != -1 {
				return errors.New("not yet")
			}
			return nil
		})
		w.mu.Lock()
		w.step = func(string, int32, mirror.BarrierStep) error { return errors.New("disk full") }
		w.mu.Unlock()
		r := w.m.StopMirrorTopics(context.Background(), w.stopReq("t"))
		if len(r.Topics) != 1 || r.Topics[0].ErrorCode != mirrormsg.InvalidMirrorState.Code {
			t.Fatalf("%+v %s", r, str(r.ErrorMessage))
		}
		w.mu.Lock()
		w.step = nil
		w.mu.Unlock()
		if restart {
			w.restart()
		} else {
			w.stopTopics("t")
		}
		w.untilState("t", 0, "STOPPED")
	}
}

// TestDivergenceOfAnEmptyCopy: retention has emptied both sides, and only the cached epoch contradicts (SPEC 4.7).
func TestDivergenceOfAnEmptyCopy(t *testing.T) {
	w := newWorld(t, 1)
	tp := w.source.CreateTopic("t", 1)
	w.source.Produce(tp, 0, 5, 10)
	w.createMirror()
	w.startTopics("t")
	w.untilEqual(tp, 0)
	w.source.Change(func() { tp.Logs[0].Start = 5 })
	w.eventually("the copy is empty", func() error {
		if l := w.log("t", 0); l.LogStartOffset() != 5 || l.LogEndOffset() != 5 {
			return errors.New("not yet")
		}
		return nil
	})
	var once atomic.Bool
	w.source.SetHook(func(c *scripted.Call) {
		r, ok := c.Response.(*kmsg.FetchResponse)
		if !ok || len(r.Topics) == 0 || len(r.Topics[0].Partitions) == 0 || !once.CompareAndSwap(false, true) {
			return
		}
		p := &r.Topics[0].Partitions[0]
		p.RecordBatches = nil
		p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset = 0, 3
	})
	w.source.Produce(tp, 0, 5, 10)
	w.eventually("it goes on", func() error {
		if s, _ := w.status("t", 0); !once.Load() || s.DestinationOffset != 10 || s.State.String() != "MIRRORING" {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	if s, _ := w.stored("t", 0); len(s.Events) != 0 {
		t.Errorf("events %+v", s.Events)
	}
}
