package mirror_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"stet/internal/invariant"
	"stet/internal/testkit/scripted"
)

// C72: the source is away for two days, with the default settings. Mirroring goes on within 10 s of its return, without an operator,
// for every partition, whatever state the outage has brought it to.
func TestC72TwoDaysWithoutASource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newPipedWorld(t, 2)
		topic := w.source.CreateTopic("t", 2)
		w.createMirror("fetch.wait.max.ms", "500")
		w.startTopics("t")
		for p := range topic.Logs {
			w.source.Produce(topic, int32(p), 2, 50)
			w.untilEqual(topic, int32(p))
		}
		w.source.Broker(1).Down()
		w.source.Broker(2).Down()
		time.Sleep(10 * time.Second)
		for p := range topic.Logs {
			s := w.untilState("t", int32(p), "FAILED")
			if s.Error == "" || s.LagAge < 5*time.Second {
				t.Errorf("an operator sees %+v", s)
			}
		}
		away := 48 * time.Hour
		if invariant.Race { // each attempt costs; all of them without the race detector
			away /= 8
		}
		time.Sleep(away)
		for p := range topic.Logs {
			w.source.Produce(topic, int32(p), 2, 50)
		}
		w.source.Broker(1).Up(t)
		w.source.Broker(2).Up(t)
		back := time.Now()
		for p := range topic.Logs {
			w.untilEqual(topic, int32(p))
			w.untilState("t", int32(p), "MIRRORING")
		}
		if took := time.Since(back); took > 10*time.Second {
			t.Errorf("mirroring went on %s after the source's return", took)
		}
	})
}

// load is a constant load on all partitions of a topic, and what arrives of it.
type load struct {
	w     *world
	topic *scripted.Topic
}

// interval is the time between two batches of a partition.
const interval = 20 * time.Millisecond

// second produces for a second and returns how many records of each partition arrived meanwhile.
func (l *load) second() []int64 {
	l.w.t.Helper()
	before := l.ends()
	for range int(time.Second / interval) {
		for p := range l.topic.Logs {
			l.w.source.Produce(l.topic, int32(p), 1, 100)
		}
		time.Sleep(interval)
	}
	after := l.ends()
	for p := range after {
		after[p] -= before[p]
	}
	return after
}

func (l *load) ends() []int64 {
	out := make([]int64, len(l.topic.Logs))
	for p := range out {
		out[p] = l.w.log(l.topic.Name, int32(p)).LogEndOffset()
	}
	return out
}

// C31: a source broker is bounced under a constant load, for less than it takes to call its partitions FAILED, and for longer. Only its
// partitions pause; they move again within 2 s after it is back; the others dip less than 5 % in any second.
func TestC31SourceBrokerBounced(t *testing.T) {
	for _, away := range []int{1, 30} { // seconds
		t.Run(fmt.Sprint(away, " s"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newPipedWorld(t, 2)
				topic := w.source.CreateTopic("t", 4) // the odd partitions are broker 2's
				w.createMirror()
				w.startTopics("t")
				for p := range topic.Logs {
					w.untilState("t", int32(p), "MIRRORING")
				}
				l := &load{w, topic}
				l.second()
				usual := l.second()
				steady := func(what string, got []int64) {
					t.Helper()
					for p := 1; p < len(got); p += 2 {
						if got[p] < usual[p]*95/100 || usual[p] == 0 {
							t.Errorf("%s: %d records of partition %d in a second, %d before", what, got[p], p, usual[p])
						}
					}
				}
				w.source.Broker(1).Down()
				for range min(away, 8) {
					steady("while the broker is away", l.second())
				}
				if away > 8 {
					time.Sleep(time.Duration(away-8) * time.Second)
				}
				w.source.Broker(1).Up(t)
				before := l.ends()
				steady("first second after its return", l.second())
				steady("second second after its return", l.second())
				for p := 0; p < len(before); p += 2 {
					if after := l.ends()[p]; after <= before[p] {
						t.Errorf("partition %d has not moved 2 s after the broker's return: %d", p, after)
					}
				}
				for p := range topic.Logs {
					w.untilEqual(topic, int32(p))
				}
			})
		})
	}
}

// C31, the other side: the destination broker is bounced (its manager ends as in a crash). All its partitions move again within 2 s after it is
// back, and nothing is fetched twice beyond what had not been appended.
func TestC31DestinationBounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newPipedWorld(t, 2)
		topic := w.source.CreateTopic("t", 8)
		w.createMirror()
		w.startTopics("t")
		for p := range topic.Logs {
			w.untilState("t", int32(p), "MIRRORING")
		}
		l := &load{w, topic}
		l.second()
		w.m.Close()
		for p := range topic.Logs {
			for range 100 {
				w.source.Produce(topic, int32(p), 1, 100)
			}
		}
		w.restart()
		before := l.ends()
		l.second()
		l.second()
		for p, after := range l.ends() {
			if after <= before[p] {
				t.Errorf("partition %d has not moved 2 s after the broker's return", p)
			}
			w.untilEqual(topic, int32(p)) // its sink refuses what is there already
		}
	})
}
