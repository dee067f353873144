package mirror_test

import (
	"testing"
	"testing/synctest"
	"time"

	"stet/zerocopy/batch"
)

func keyed(offset int64, key string) []byte {
	h := batch.Header{BaseOffset: offset, Timestamp: 1e12, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}
	return batch.Build(nil, h, batch.KV{Key: []byte(key), Value: []byte("v")})
}

// A copy that is connected and at the source's end all the time was not away, although the topic was idle for days and a
// fetch session says nothing of an idle partition: not in this process, and not after a restart (C69).
func TestIdleIsNotAway(t *testing.T) {
	for _, restart := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newPipedWorld(t, 1)
			w.retention = 24 * time.Hour
			idle, busy := w.source.CreateTopic("idle", 1), w.source.CreateTopic("busy", 1)
			w.source.Append(idle, 0, keyed(0, "k1"), keyed(1, "k2"))
			w.createMirror("fetch.wait.max.ms", "5000")
			w.startTopics("idle", "busy")
			w.untilEqual(idle, 0)
			for range 30 {
				time.Sleep(time.Hour)
				w.source.Produce(busy, 0, 1, 10)
			}
			if restart {
				w.m.Close()
				w.start()
				w.untilState("idle", 0, "MIRRORING")
			}
			before := w.log("idle", 0).LogEndOffset()
			w.source.Append(idle, 0, keyed(2, "k3"), keyed(4, "k4")) // a burst, compacted before it was fetched
			w.untilEqual(idle, 0)
			time.Sleep(time.Second)
			s := w.untilState("idle", 0, "MIRRORING")
			if s.CutRecords != 0 || before != 2 {
				t.Errorf("restart %v: an idle copy was made again: %+v", restart, s)
			}
		})
	}
}

// A copy that really was away is made again: what it holds is published as cut, and the copy is the source's.
func TestAwayIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newPipedWorld(t, 1)
		w.retention = 24 * time.Hour
		topic := w.source.CreateTopic("t", 1)
		w.source.Append(topic, 0, keyed(0, "k1"), keyed(1, "k2"))
		w.createMirror()
		w.startTopics("t")
		w.untilEqual(topic, 0)
		time.Sleep(time.Minute) // the time of being at the end is stored
		w.source.Broker(1).Down()
		time.Sleep(25 * time.Hour)
		w.source.Change(func() { topic.Logs[0].Batches = [][]byte{keyed(1, "k2"), keyed(4, "k4")} }) // k1 and its tombstone are gone
		w.source.Broker(1).Up(t)
		w.untilEqual(topic, 0)
		if s := w.untilState("t", 0, "MIRRORING"); s.CutRecords != 2 {
			t.Errorf("%+v", s)
		}
	})
}
