package broker_test

import (
	"bytes"
	"testing"
)

// TestRetentionWaitsForTheStop: a mirror partition with retention.ms=1 whose source is dead
// keeps every byte, over rounds of retention and a restart, until it is stopped; then
// retention runs, with the active segment as in Kafka.
func TestRetentionWaitsForTheStop(t *testing.T) {
	w := newWorld(t, "log.retention.check.interval.ms=10", "log.segment.bytes=2000", "log.retention.ms=1")
	topic := w.src.CreateTopic("t", 2)
	for range 8 {
		for p := range int32(2) {
			w.src.Produce(topic, p, 10, 100)
		}
	}
	w.create()
	w.startTopics("t")
	w.caughtUp()
	if c := w.b.LogConfig("t", 0); c.RetentionMs != 1 || c.SegmentBytes != 2000 {
		t.Fatalf("%+v", c)
	}
	w.src.Broker(1).Down()
	w.src.Broker(2).Down()
	check := func(when string) {
		t.Helper()
		for range 3 {
			w.b.ApplyRetention()
			for p := range int32(2) {
				if got, want := w.stored("t", p, 0), w.src.Bytes(topic, p); !bytes.Equal(got, want) || w.b.LogStart("t", p) != 0 {
					t.Fatalf("%s: %d bytes of %d are left from %d on", when, len(got), len(want), w.b.LogStart("t", p))
				}
			}
		}
	}
	check("the source is dead")
	w.wait("the source is missed", func(p part) bool { return p.State == "FAILED" || p.State == "MIRRORING" })
	check("and missed")
	w.restart(nil)
	check("after a restart")
	w.stop("t")
	w.wait("stopped", func(p part) bool { return p.State == "STOPPED" })
	w.until("retention runs", func() bool {
		w.b.ApplyRetention()
		return w.b.LogStart("t", 0) == 81 && w.b.LogStart("t", 1) == 81 // all records, and the marker of the stop
	})
}
