package main_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/internal/testkit"
	"stet/loadgen/verify"
)

// Real clusters are started once and used by all tests that do not break them.
var shared struct {
	mu   sync.Mutex
	made map[string]func() (*testkit.Kafka, error)
}

func TestMain(m *testing.M) {
	code := m.Run()
	for _, made := range shared.made {
		if k, err := made(); err == nil {
			k.End()
			_ = os.RemoveAll(k.Dir)
		}
	}
	os.Exit(code)
}

// sharedKafka is a cluster of a version and size that tests only add topics to, under names of their own. A test that finds
// it dead fails, whoever killed it.
func sharedKafka(t *testing.T, version string, brokers int) *testkit.Kafka {
	t.Helper()
	testkit.NeedKafka(t)
	name := fmt.Sprintf("%s-%d", version, brokers)
	shared.mu.Lock()
	made := shared.made[name]
	if made == nil {
		made = sync.OnceValues(func() (*testkit.Kafka, error) {
			dir, err := os.MkdirTemp("", "stet-kafka-")
			if err != nil {
				return nil, err
			}
			// The cleaner comes soon to whom it may: topics are not compacted by default.
			return testkit.NewKafka(dir, version, brokers, fmt.Sprintf("default.replication.factor=%d", brokers), "log.cleaner.backoff.ms=50", "log.initial.task.delay.ms=50")
		})
		if shared.made == nil {
			shared.made = map[string]func() (*testkit.Kafka, error){}
		}
		shared.made[name] = made
	}
	shared.mu.Unlock()
	k, err := made()
	if err != nil {
		t.Fatal(err)
	}
	alive := func() {
		t.Helper()
		if err := k.Check(); err != nil {
			t.Fatalf("the cluster that tests share: %v", err)
		}
	}
	alive()
	t.Cleanup(alive)
	return k
}

func contextFor(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func createTopic(ctx context.Context, t *testing.T, addr, topic string, partitions int32, configs ...string) {
	t.Helper()
	m := map[string]*string{}
	for i := 0; i+1 < len(configs); i += 2 {
		m[configs[i]] = &configs[i+1]
	}
	if _, err := kadm.NewClient(testkit.Client(t, addr)).CreateTopic(ctx, partitions, -1, m, topic); err != nil {
		t.Fatalf("topic %s: %v", topic, err)
	}
	awaitTopic(ctx, t, addr, topic)
}

// awaitTopic waits until each broker of a cluster knows the topic and its leaders: each learns of it by itself, after the answer to who created it.
func awaitTopic(ctx context.Context, t *testing.T, addr, topic string) {
	t.Helper()
	cl := testkit.Client(t, addr)
	brokers, err := kadm.NewClient(cl).ListBrokers(ctx)
	if err != nil {
		t.Fatal(err)
	}
	knows := func(node int32) bool {
		md := kmsg.NewPtrMetadataRequest()
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = kmsg.StringPtr(topic)
		md.Topics = append(md.Topics, rt)
		resp, err := cl.Broker(int(node)).Request(ctx, md)
		if err != nil {
			return false
		}
		d := resp.(*kmsg.MetadataResponse).Topics[0]
		return d.ErrorCode == 0 && !slices.ContainsFunc(d.Partitions, func(p kmsg.MetadataResponseTopicPartition) bool { return p.Leader < 0 })
	}
	for _, b := range brokers {
		for !knows(b.NodeID) {
			if ctx.Err() != nil {
				t.Fatalf("broker %d does not know topic %s", b.NodeID, topic)
			}
			<-time.After(10 * time.Millisecond) // a condition is polled
		}
	}
}

var codecs = []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}

// fill makes topics below a prefix that hold everything that a record batch can:
// every codec, headers, null keys and values, 1-byte and 900 kB records, idempotent
// producers, committed, aborted and open transactions. The open ones stay open
// until the test ends.
func fill(ctx context.Context, t *testing.T, addr, prefix string) (topics []string) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(1, 2))
	big := make([]byte, 900_000)
	for i := range big {
		big[i] = byte(rnd.Uint32())
	}
	topic := prefix + "codecs"
	createTopic(ctx, t, addr, topic, int32(len(codecs)))
	for p, codec := range codecs {
		for _, idempotent := range []bool{true, false} {
			opts := []kgo.Opt{kgo.ProducerBatchCompression(codec), kgo.RecordPartitioner(kgo.ManualPartitioner())}
			if !idempotent {
				opts = append(opts, kgo.DisableIdempotentWrite())
			}
			cl := testkit.Client(t, addr, opts...)
			var rs []*kgo.Record
			add := func(key, value []byte, h ...kgo.RecordHeader) {
				rs = append(rs, &kgo.Record{Topic: topic, Partition: int32(p), Key: key, Value: value, Headers: h})
			}
			add([]byte("key"), []byte("value"), kgo.RecordHeader{Key: "h1", Value: []byte("x")}, kgo.RecordHeader{Key: "h2"})
			add(nil, []byte{7})
			add([]byte("tombstone"), nil)
			add(nil, nil)
			add([]byte{}, []byte{})
			add([]byte("big"), big)
			for i := range 200 {
				add([]byte(fmt.Sprint(i)), []byte(fmt.Sprintf("%d %x", i, rnd.Uint64())))
			}
			for _, r := range rs { // a batch each for some, shared ones for the rest
				if len(r.Value) > 1000 || r.Key == nil {
					if err := cl.ProduceSync(ctx, r).FirstErr(); err != nil {
						t.Fatal(err)
					}
					continue
				}
				cl.Produce(ctx, r, nil)
			}
			if err := cl.Flush(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	topics = append(topics, topic)

	topic = prefix + "txns"
	createTopic(ctx, t, addr, topic, 2)
	for i, end := range []string{"commit", "abort", "commit", "open", "abort", "commit"} {
		transact(ctx, t, addr, fmt.Sprintf("%s%d", prefix, i), topic, end, 3)
	}
	plain := testkit.Client(t, addr, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err := plain.ProduceSync(ctx, &kgo.Record{Topic: topic, Partition: 0, Value: []byte("after the transactions")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	return append(topics, topic)
}

// transact writes n records per partition (0 and 1) in a transaction and ends it.
func transact(ctx context.Context, t *testing.T, addr, id, topic, end string, n int) *kgo.Client {
	t.Helper()
	cl := testkit.Client(t, addr, kgo.TransactionalID(id), kgo.TransactionTimeout(10*time.Minute), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		for p := range int32(2) {
			if err := cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Partition: p, Value: []byte(fmt.Sprintf("%s %s %d", id, end, i))}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	switch end {
	case "commit":
		if err := cl.EndTransaction(ctx, kgo.TryCommit); err != nil {
			t.Fatal(err)
		}
		awaitTransaction(ctx, t, cl, id, "CompleteCommit")
	case "abort":
		if err := cl.EndTransaction(ctx, kgo.TryAbort); err != nil {
			t.Fatal(err)
		}
		awaitTransaction(ctx, t, cl, id, "CompleteAbort")
	}
	return cl
}

// awaitTransaction waits until the markers are written, which comes after the answer to who ended the transaction.
func awaitTransaction(ctx context.Context, t *testing.T, cl *kgo.Client, id, state string) {
	t.Helper()
	for {
		got, err := kadm.NewClient(cl).DescribeTransactions(ctx, id)
		if err == nil && got[id].State == state {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("transaction %s is %q, %v; want %s", id, got[id].State, err, state)
		}
		<-time.After(10 * time.Millisecond) // a condition is polled
	}
}

// mirror creates a mirror of a source on a Stet process and starts topics.
func mirror(t *testing.T, p *testkit.Process, name, source, topics string, configs ...string) {
	t.Helper()
	createMirror(t, p, name, source, configs...)
	testkit.MustStet(t, "mirrors", "--bootstrap-server", p.Addr, "--start", "--topics", topics, "--mirror", name)
}

func createMirror(t *testing.T, p *testkit.Process, name, source string, configs ...string) {
	t.Helper()
	text := "bootstrap.servers=" + source + "\n"
	for _, c := range configs {
		text += c + "\n"
	}
	file := filepath.Join(t.TempDir(), name+".properties")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	testkit.MustStet(t, "mirrors", "--bootstrap-server", p.Addr, "--create", "--mirror", name, "--mirror-config", file)
}

// waitFor waits until every partition of the mirror is in a state, or lag-zero.
func waitFor(t *testing.T, p *testkit.Process, mirror, state string) {
	t.Helper()
	testkit.MustStet(t, "mirrors", "--bootstrap-server", p.Addr, "--describe", "--mirror", mirror, "--wait", state, "--timeout", "60s")
}

// sameFiles compares the segment files of a Kafka node with Stet's.
func sameFiles(t *testing.T, kafkaDir, stetDir string, topics []string) {
	t.Helper()
	want := map[string]bool{}
	for _, n := range topics {
		want[n] = true
	}
	r, err := verify.Dirs(kafkaDir, stetDir, func(topic string) bool { return want[topic] })
	if err != nil {
		t.Fatal(err)
	}
	if !r.Equal {
		t.Fatal(r.Conclude())
	}
	for _, p := range r.Partitions {
		if p.Source != p.Destination {
			t.Errorf("%s-%d: source holds %v, destination %v", p.Topic, p.Partition, p.Source, p.Destination)
		}
		if p.Batches == 0 && p.Source.End > p.Source.Start {
			t.Errorf("%s-%d: nothing was compared", p.Topic, p.Partition)
		}
	}
	t.Log(r.Conclude())
}

// readAll reads a topic to its end (high watermark, or last stable offset) with franz-go.
func readAll(ctx context.Context, t *testing.T, addr, topic string, committed bool) map[int32][]string {
	t.Helper()
	cl := testkit.Client(t, addr)
	adm := kadm.NewClient(cl)
	list := adm.ListEndOffsets
	level := kgo.ReadUncommitted()
	if committed {
		list, level = adm.ListCommittedOffsets, kgo.ReadCommitted()
	}
	ends, err := list(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	starts, err := adm.ListStartOffsets(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	c := testkit.Client(t, addr, kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(level), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.KeepControlRecords())
	out := map[int32][]string{}
	left := map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if s, _ := starts.Lookup(topic, o.Partition); o.Offset > s.Offset {
			left[o.Partition] = o.Offset
		}
	})
	for len(left) > 0 {
		fs := c.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatalf("%s %s: %v (not yet read to the end: %v)", addr, topic, err, left)
		}
		fs.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				out[r.Partition] = append(out[r.Partition], fmt.Sprintf("%d %d %q=%q %v %d", r.Offset, r.LeaderEpoch, r.Key, r.Value, r.Headers, r.Timestamp.UnixMilli()))
			}
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
		})
	}
	return out
}

// copiedTo matches a --describe in which all partitions of a topic have reached an offset without lag.
func copiedTo(topic string, partitions, offset int) *regexp.Regexp {
	re := "(?s)"
	for i := range partitions {
		re += fmt.Sprintf(`.*%s +%d +%d +%d +0 +MIRRORING`, topic, i, offset, offset)
	}
	return regexp.MustCompile(re)
}
