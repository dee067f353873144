package fetcher_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"stet/fetcher"
	"stet/fetcher/source"
	"stet/zerocopy"
)

// TestAgainstKafka compares what is fetched from a real Apache Kafka with its segment files. It needs
// STET_TEST_KAFKA=host:port and STET_TEST_KAFKA_DATA=the log directory of that (single) broker.
func TestAgainstKafka(t *testing.T) {
	addr, data := os.Getenv("STET_TEST_KAFKA"), os.Getenv("STET_TEST_KAFKA_DATA")
	if addr == "" {
		t.Skip("STET_TEST_KAFKA is not set")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	topic := fmt.Sprintf("fetcher-%d", time.Now().UnixNano())
	admin, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	if _, err := kadm.NewClient(admin).CreateTopic(ctx, 3, 1, map[string]*string{"segment.bytes": kadm.StringPtr("1048576")}, topic); err != nil {
		t.Fatal(err)
	}
	for _, codec := range []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()} {
		cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ProducerBatchCompression(codec), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3000 {
			cl.Produce(ctx, &kgo.Record{
				Topic: topic, Partition: int32(i % 3), Key: []byte{byte(i)}, Value: bytes.Repeat([]byte{byte(i), 7}, 1+i%1900),
				Headers: []kgo.RecordHeader{{Key: "h", Value: nil}},
			}, nil)
		}
		if err := cl.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		cl.Close()
	}
	pool := zerocopy.NewPool(64 << 20)
	src := source.New(source.Options{Mirror: "m", BrokerID: 1, Bootstrap: []string{addr}, Pool: pool})
	defer src.Close()
	events := &eventLog{changed: make(chan struct{})}
	m := fetcher.NewManager(fetcher.Options{Events: events})
	defer m.Close()
	m.SetMirror("m", src, fetcher.DefaultConfig())
	topics, err := src.Topics(ctx, []string{topic})
	if err != nil || topics[0].Err != nil {
		t.Fatal(err, topics)
	}
	for _, p := range topics[0].Partitions {
		end, err := src.Offset(ctx, p.Leader, source.OffsetQuestion{Topic: topic, Partition: p.Index, LeaderEpoch: p.LeaderEpoch, Timestamp: source.Latest})
		if err != nil || end.Err != nil {
			t.Fatal(err, end.Err)
		}
		s := newSink()
		err = m.Add("m", fetcher.Assignment{ID: fetcher.ID{TopicID: topics[0].ID, Topic: topic, Partition: p.Index}, Broker: p.Leader, LeaderEpoch: p.LeaderEpoch, Sink: s})
		if err != nil {
			t.Fatal(err)
		}
		s.untilEnd(t, end.Offset)
		files, _ := filepath.Glob(filepath.Join(data, fmt.Sprintf("%s-%d", topic, p.Index), "*.log"))
		sort.Strings(files)
		var want []byte
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, b...)
		}
		if len(files) < 2 || !bytes.Equal(s.bytes, want) {
			t.Errorf("partition %d: %d bytes, the %d segment files have %d", p.Index, len(s.bytes), len(files), len(want))
		}
	}
}
