package fetcher_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"stet/fetcher"
	"stet/fetcher/source"
	"stet/zerocopy"
	"stet/zerocopy/batch"
)

// TestAgainstKfake fetches from a broker that is not ours: every record is there, in whole batches.
func TestAgainstKfake(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(3), kfake.SeedTopics(4, "t"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.DefaultProduceTopic("t"), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.SnappyCompression()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for i := range 2000 {
		cl.Produce(ctx, &kgo.Record{Partition: int32(i % 4), Value: fmt.Appendf(nil, "value %d", i)}, nil)
	}
	if err := cl.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	pool := zerocopy.NewPool(64 << 20)
	src := source.New(source.Options{Mirror: "m", BrokerID: 1, Bootstrap: c.ListenAddrs()[:1], Pool: pool})
	defer src.Close()
	events := &eventLog{changed: make(chan struct{})}
	m := fetcher.NewManager(fetcher.Options{Events: events})
	defer m.Close()
	config := fetcher.DefaultConfig()
	config.MaxWait = 50 * time.Millisecond
	m.SetMirror("m", src, config)
	topics, err := src.Topics(ctx, []string{"t"})
	if err != nil || topics[0].Err != nil || len(topics[0].Partitions) != 4 {
		t.Fatal(err, topics)
	}
	for _, p := range topics[0].Partitions {
		s := newSink()
		if err := m.Add("m", fetcher.Assignment{ID: fetcher.ID{TopicID: topics[0].ID, Topic: "t", Partition: p.Index}, Broker: p.Leader, LeaderEpoch: p.LeaderEpoch, Sink: s}); err != nil {
			t.Fatal(err)
		}
		s.untilEnd(t, 500)
		records := int32(0)
		for rest := s.bytes; len(rest) > 0; {
			b, after, err := batch.Next(rest)
			if err == nil {
				err = b.Check()
			}
			if err != nil {
				t.Fatal(err)
			}
			records += b.NumRecords()
			rest = after
		}
		if records != 500 {
			t.Errorf("partition %d: %d records", p.Index, records)
		}
	}
}
