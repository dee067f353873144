package broker_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"stet/internal/testkit/scripted"
)

// alter sets configs of a topic (or, with an empty name, of broker 1).
func (w *world) alter(topic string, kv ...string) {
	w.t.Helper()
	var cfg []kadm.AlterConfig
	for i := 0; i+1 < len(kv); i += 2 {
		cfg = append(cfg, kadm.AlterConfig{Op: kadm.SetConfig, Name: kv[i], Value: &kv[i+1]})
	}
	adm := kadm.NewClient(w.cl)
	var r kadm.AlterConfigsResponses
	var err error
	if topic == "" {
		r, err = adm.AlterBrokerConfigs(w.ctx, cfg, 1)
	} else {
		r, err = adm.AlterTopicConfigs(w.ctx, cfg, topic)
	}
	if err != nil || r[0].Err != nil {
		w.t.Fatalf("alter %q: %v %v", topic, err, r)
	}
}

// TestMirrorThrottle: a listed topic obeys the rate, set live, beside a free one that
// is not touched; raised, it catches up (C40, C41, C78).
func TestMirrorThrottle(t *testing.T) {
	w := newWorld(t)
	slow, free := w.src.CreateTopic("slow", 2), w.src.CreateTopic("free", 2)
	w.create()
	w.startTopics("slow", "free")
	w.caughtUp()
	const rate = 400_000
	w.alter("slow", "mirror.replication.throttled.replicas", "*")
	w.alter("", "mirror.replication.throttled.rate", "400000")
	start := time.Now()
	for range 100 { // 2 MB each: five seconds' worth for the slow one
		for p := range int32(2) {
			w.src.Produce(slow, p, 10, 1000)
			w.src.Produce(free, p, 10, 1000)
		}
	}
	w.wait("the free topic is there", func(p part) bool { return p.topic != "free" || mirroring(p) && p.DestinationOffset == 1000 })
	got := 0
	for p := range int32(2) {
		got += len(w.stored("slow", p, 0))
	}
	// A burst of a tenth of a second, what the time allows, a batch of each partition.
	if allowed := int(1.2*rate*time.Since(start).Seconds()) + rate/10 + 2*11_000; got > allowed {
		t.Errorf("%d bytes of the throttled topic when the free one was done, allowed %d", got, allowed)
	}
	if got == 0 {
		w.wait("the slow topic moves", func(p part) bool { return p.topic != "slow" || p.DestinationOffset > 0 })
	}
	m := counters(t, w.b)
	if m[`stet_mirror_partition_throttled{mirror="m",partition="0",topic="slow"}`] != 1 || m[`stet_mirror_partition_throttled{mirror="m",partition="0",topic="free"}`] != 0 {
		t.Error("the metric does not tell who is throttled")
	}
	if m[`stet_mirror_throttle_seconds_total{mirror="m",side="own"}`] <= 0 {
		t.Error("no time was counted as held back")
	}
	w.alter("", "mirror.replication.throttled.rate", "500000000")
	w.caughtUp()
	for _, topic := range []*scripted.Topic{slow, free} {
		w.same(topic)
	}
	if took := time.Since(start); took > 15*time.Second {
		t.Errorf("the raised rate did not count: %s", took)
	}
}

// TestOneLargeBatchUnderAThrottle: a batch far above the rate passes whole, and nothing hangs (C78).
func TestOneLargeBatchUnderAThrottle(t *testing.T) {
	w := newWorld(t)
	topic := w.src.CreateTopic("t", 1)
	w.create()
	w.startTopics("t")
	w.caughtUp()
	w.alter("t", "mirror.replication.throttled.replicas", "0:1")
	w.alter("", "mirror.replication.throttled.rate", "5000000")
	w.src.Produce(topic, 0, 1, 6<<20)
	w.src.Produce(topic, 0, 1, 100)
	w.wait("both are there", func(p part) bool { return mirroring(p) && p.DestinationOffset == 2 })
	w.same(topic)
}
