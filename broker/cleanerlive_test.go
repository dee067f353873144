package broker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"stet/broker/log"
)

// TestCleanerConfigLive: log.cleaner.* set through the Kafka protocol counts while the broker
// runs, and again after a restart. The pause of an hour from the properties file is over at
// once when a shorter one is set, and a round that may not read goes on when it may.
func TestCleanerConfigLive(t *testing.T) {
	w := newWorld(t, "log.cleaner.backoff.ms=3600000", "log.cleaner.min.cleanable.ratio=0.01")
	policy, bytes := "compact", "1000"
	if _, err := kadm.NewClient(w.cl).CreateTopic(w.ctx, 1, 1, map[string]*string{"cleanup.policy": &policy, "segment.bytes": &bytes}, "c"); err != nil {
		t.Fatal(err)
	}
	for i := range 60 {
		if err := w.cl.ProduceSync(w.ctx, &kgo.Record{Topic: "c", Key: fmt.Append(nil, i%3), Value: fmt.Append(nil, i)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	def := log.CleanerConfig{Threads: 1, DedupeBytes: 128 << 20, LoadFactor: 0.9, IOBufferBytes: 512 << 10, IOBytesPerSec: w.b.Cleaner().IOBytesPerSec, BackoffMs: 3600000}
	if got := w.b.Cleaner(); got != def {
		t.Fatalf("%+v", got)
	}
	w.alter("", "log.cleaner.io.max.bytes.per.second", "0.001", "log.cleaner.backoff.ms", "20", "log.cleaner.threads", "2")
	if w.b.Compacted("c", 0) > 0 {
		t.Error("compacted at a thousandth of a byte per second")
	}
	w.alter("", "log.cleaner.io.max.bytes.per.second", "1000000000", "log.cleaner.dedupe.buffer.size", "2097152",
		"log.cleaner.io.buffer.size", "65536", "log.cleaner.io.buffer.load.factor", "0.5", "log.cleaner.delete.retention.ms", "77")
	w.until("the log is compacted", func() bool { return w.b.Compacted("c", 0) > 0 })
	want := log.CleanerConfig{Threads: 2, DedupeBytes: 2 << 20, LoadFactor: 0.5, IOBufferBytes: 64 << 10, IOBytesPerSec: 1e9, BackoffMs: 20}
	check := func(when string) {
		t.Helper()
		if got := w.b.Cleaner(); got != want {
			t.Errorf("%s: %+v, want %+v", when, got, want)
		}
		if got := w.b.LogConfig("c", 0).DeleteRetentionMs; got != 77 {
			t.Errorf("%s: delete.retention.ms %d", when, got)
		}
	}
	check("live")
	w.restart(nil)
	check("after a restart")
}

// until waits for what a goroutine of the broker does.
func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("not in time: %s", what)
		}
	}
}
