package source_test

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/fetcher/source"
	"stet/zerocopy/batch"
	"stet/zerocopy/frame"
)

// TestAgainstKfake asks a broker that is not ours every question, and fetches from it by hand.
func TestAgainstKfake(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(2), kfake.SeedTopics(2, "t"), kfake.ClusterID("kfake-cluster"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.DefaultProduceTopic("t"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for range 10 {
		if err := cl.ProduceSync(ctx, &kgo.Record{Partition: 1, Value: []byte("v")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	s := newSource(t, c.ListenAddrs()[0])
	if id, err := s.ClusterID(ctx); err != nil || id != "kfake-cluster" {
		t.Errorf("cluster id %q %v", id, err)
	}
	topics, err := s.Topics(ctx, []string{"t"})
	if err != nil || topics[0].Err != nil || topics[0].ID == [16]byte{} || len(topics[0].Partitions) != 2 {
		t.Fatal(topics, err)
	}
	var p source.Partition
	for _, tp := range topics[0].Partitions {
		if tp.Index == 1 {
			p = tp
		}
	}
	end, err := s.Offset(ctx, p.Leader, source.OffsetQuestion{Topic: "t", Partition: 1, LeaderEpoch: p.LeaderEpoch, Timestamp: source.Latest})
	if err != nil || end.Err != nil || end.Offset != 10 {
		t.Errorf("end %+v %v", end, err)
	}
	epoch, err := s.EpochEnd(ctx, p.Leader, source.EpochQuestion{Topic: "t", Partition: 1, LeaderEpoch: p.LeaderEpoch, Epoch: p.LeaderEpoch})
	if err != nil || epoch.Err != nil || epoch.EndOffset != 10 {
		t.Errorf("epoch %+v %v", epoch, err)
	}
	if configs, refused, err := s.TopicConfigs(ctx, []string{"t"}); err != nil || len(refused) != 0 || configs["t"] == nil {
		t.Errorf("configs %v %v %v", configs, refused, err)
	}
	conn, err := s.Connect(ctx, p.Leader, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	req := kmsg.NewPtrFetchRequest()
	req.SetVersion(min(conn.FetchVersion(), 17))
	req.ReplicaID, req.MaxWaitMillis, req.MaxBytes, req.SessionEpoch = -1, 100, 1<<20, -1
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID = "t", topics[0].ID
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.PartitionMaxBytes, rp.LastFetchedEpoch = 1, 1<<20, -1
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	if err := conn.Send(req); err != nil {
		t.Fatal(err)
	}
	lease, body, err := conn.Receive(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Release()
	var w frame.FetchWalker
	if err := w.Reset(body, req.Version); err != nil {
		t.Fatal(err)
	}
	var fp frame.FetchPartition
	next := int64(0)
	for w.Next(&fp) {
		for rest := fp.Records; len(rest) > 0; {
			b, after, err := batch.Next(rest)
			if err == nil {
				err = b.Check()
			}
			if err != nil {
				t.Fatal(err)
			}
			next, rest = b.NextOffset(), after
		}
	}
	if w.Err() != nil || next != 10 {
		t.Errorf("fetched to %d, %v", next, w.Err())
	}
}
