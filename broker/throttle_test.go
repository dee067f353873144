package broker_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/internal/testkit/scripted"
	"stet/zerocopy/batch"
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

// untilHeldBack produces to the partitions of a throttled topic until the broker holds all of them back: settings take effect a moment after the
// answer to who altered them, and what was asked for before comes unthrottled.
func (w *world) untilHeldBack(t *scripted.Topic) {
	w.t.Helper()
	w.until("the throttle holds "+t.Name+" back", func() bool {
		m := counters(w.t, w.b)
		for p := range t.Logs {
			if m[fmt.Sprintf(`stet_mirror_partition_throttled{mirror="m",partition="%d",topic="%s"}`, p, t.Name)] != 1 {
				for q := range t.Logs {
					w.src.Produce(t, int32(q), 10, 1000)
				}
				return false
			}
		}
		return true
	})
}

// TestMirrorThrottle: a listed topic obeys the rate, set live, beside a free one that
// is not touched; raised, it catches up (C40, C41; the exact counts are tests of package quota).
func TestMirrorThrottle(t *testing.T) {
	w := newWorld(t)
	slow, free := w.src.CreateTopic("slow", 2), w.src.CreateTopic("free", 2)
	w.create()
	w.startTopics("slow", "free")
	w.caughtUp()
	const rate = 40_000
	w.alter("slow", "mirror.replication.throttled.replicas", "*")
	w.alter("", "mirror.replication.throttled.rate", "40000")
	w.untilHeldBack(slow)
	start := time.Now()
	before := 0
	for p := range int32(2) {
		before += len(w.stored("slow", p, 0))
	}
	for range 100 { // 2 MB each: 50 s for the slow one, more than any wait here has
		for p := range int32(2) {
			w.src.Produce(slow, p, 10, 1000)
			w.src.Produce(free, p, 10, 1000)
		}
	}
	w.wait("the free topic is there", func(p part) bool { return p.topic != "free" || mirroring(p) && p.DestinationOffset == 1000 })
	got := -before
	for p := range int32(2) {
		got += len(w.stored("slow", p, 0))
	}
	// A burst of a tenth of a second, what the time allows, a batch of each partition and what of each readers did not see before.
	if allowed := int(1.2*rate*time.Since(start).Seconds()) + rate/10 + 4*11_000; got > allowed {
		t.Errorf("%d bytes of the throttled topic when the free one was done, allowed %d", got, allowed)
	}
	moved := w.describe()
	w.wait("the slow topic moves", func(p part) bool {
		return p.topic != "slow" || slices.ContainsFunc(moved, func(q part) bool {
			return q.topic == p.topic && q.PartitionIndex == p.PartitionIndex && p.DestinationOffset > q.DestinationOffset
		})
	})
	w.until("the metric tells who is throttled", func() bool { // a second after the last wait it is over
		m := counters(t, w.b)
		return m[`stet_mirror_partition_throttled{mirror="m",partition="0",topic="slow"}`] == 1 && m[`stet_mirror_partition_throttled{mirror="m",partition="0",topic="free"}`] == 0
	})
	m := counters(t, w.b)
	if m[`stet_mirror_throttle_seconds_total{mirror="m",side="own"}`] <= 0 {
		t.Error("no time was counted as held back")
	}
	w.alter("", "mirror.replication.throttled.rate", "500000000")
	w.caughtUp()
	for _, topic := range []*scripted.Topic{slow, free} {
		w.same(topic)
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

// TestThrottleTouchesMirrorTrafficOnly: under a throttle that would need minutes for them, clients write to a local topic and read from it and
// from the throttled copy at once, and no answer asks them to wait (C40).
func TestThrottleTouchesMirrorTrafficOnly(t *testing.T) {
	w := newWorld(t)
	topic := w.src.CreateTopic("slow", 1)
	for range 30 {
		w.src.Produce(topic, 0, 10, 10_000)
	}
	w.create()
	w.startTopics("slow")
	w.caughtUp()
	held := len(w.src.Bytes(topic, 0))
	const size, batches = 100_000, 40
	w.alter("slow", "mirror.replication.throttled.replicas", "0:1")
	w.alter("", "mirror.replication.throttled.rate", "20000")
	w.untilHeldBack(topic)
	for range 30 { // 150 s at that rate
		w.src.Produce(topic, 0, 10, 10_000)
	}
	if _, err := kadm.NewClient(w.cl).CreateTopic(w.ctx, 1, 1, nil, "local"); err != nil {
		t.Fatal(err)
	}
	for range batches { // 200 s at that rate
		req := kmsg.NewPtrProduceRequest()
		req.Acks, req.TimeoutMillis = -1, 5000
		rt, rp := kmsg.NewProduceRequestTopic(), kmsg.NewProduceRequestTopicPartition()
		rt.Topic = "local"
		rp.Records = batch.Build(nil, batch.Header{Timestamp: time.Now().UnixMilli(), ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}, batch.KV{Value: make([]byte, size)})
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		resp := request(w, w.cl, req).(*kmsg.ProduceResponse)
		if p := resp.Topics[0].Partitions[0]; p.ErrorCode != 0 || resp.ThrottleMillis != 0 {
			t.Fatalf("produce: error %d, throttled for %d ms", p.ErrorCode, resp.ThrottleMillis)
		}
	}
	for name, want := range map[string]int{"local": batches * size, "slow": held} {
		if got := len(w.stored(name, 0, 0)); got < want {
			t.Errorf("%d bytes of %s were read, want %d", got, name, want)
		}
	}
	for _, p := range w.describe() { // not the lag, which is the one of the last answer while the throttle holds it back
		if end := topic.Logs[0].End(); p.DestinationOffset >= end {
			t.Errorf("offset %d of %d: the mirror has caught up, so this test shows nothing", p.DestinationOffset, end)
		}
	}
}

// TestReplicationThrottleKeysAreShown: the keys of the throttle of intra-cluster replication are checked, stored and shown as by Apache Kafka 4.3 (compared
// with its configs tool), although there is no follower yet that they could hold back.
func TestReplicationThrottleKeysAreShown(t *testing.T) {
	w := newWorld(t)
	if _, err := kadm.NewClient(w.cl).CreateTopic(w.ctx, 2, 1, nil, "t"); err != nil {
		t.Fatal(err)
	}
	w.alter("", "leader.replication.throttled.rate", "1000", "follower.replication.throttled.rate", "0")
	w.alter("t", "leader.replication.throttled.replicas", "0:1,1:1", "follower.replication.throttled.replicas", "*")
	adm := kadm.NewClient(w.cl)
	broker, err := adm.DescribeBrokerConfigs(w.ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	topic, err := adm.DescribeTopicConfigs(w.ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"leader.replication.throttled.rate": "1000 DYNAMIC_BROKER_CONFIG 1", "follower.replication.throttled.rate": "0 DYNAMIC_BROKER_CONFIG 1",
		"leader.replication.throttled.replicas": "0:1,1:1 DYNAMIC_TOPIC_CONFIG 1", "follower.replication.throttled.replicas": "* DYNAMIC_TOPIC_CONFIG 1",
	} {
		got := "nothing"
		for _, c := range append(broker[0].Configs, topic[0].Configs...) {
			if c.Key == key {
				got = fmt.Sprint(c.MaybeValue(), " ", c.Source, " ", len(c.Synonyms))
			}
		}
		if got != want {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
	for _, bad := range [][3]string{
		{"", "leader.replication.throttled.rate", "-1"},
		{"", "follower.replication.throttled.rate", "fast"},
		{"t", "leader.replication.throttled.replicas", "none"},
		{"t", "follower.replication.throttled.replicas", "0-1"},
	} {
		cfg := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: bad[1], Value: &bad[2]}}
		var r kadm.AlterConfigsResponses
		if bad[0] == "" {
			r, err = adm.AlterBrokerConfigs(w.ctx, cfg, 1)
		} else {
			r, err = adm.AlterTopicConfigs(w.ctx, cfg, bad[0])
		}
		if err != nil {
			t.Fatal(err)
		}
		if r[0].Err == nil || !strings.Contains(r[0].ErrMessage, bad[1]) || !strings.Contains(r[0].ErrMessage, bad[2]) || !strings.Contains(r[0].ErrMessage, "must be") {
			t.Errorf("%s=%s: %v %q", bad[1], bad[2], r[0].Err, r[0].ErrMessage)
		}
	}
}
