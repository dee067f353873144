package broker_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/broker"
	"stet/internal/testkit"
	"stet/zerocopy/batch"
)

func TestProduceAndConsumeEveryCodec(t *testing.T) {
	b := testkit.StartBroker(t, "")
	ctx := testkit.Context(t)
	for _, c := range []struct {
		name  string
		codec kgo.CompressionCodec
	}{{"none", kgo.NoCompression()}, {"gzip", kgo.GzipCompression()}, {"snappy", kgo.SnappyCompression()}, {"lz4", kgo.Lz4Compression()}, {"zstd", kgo.ZstdCompression()}} {
		t.Run(c.name, func(t *testing.T) {
			topic := "t-" + c.name
			p := testkit.Client(t, b.Addr(), kgo.ProducerBatchCompression(c.codec), kgo.AllowAutoTopicCreation())
			want := []*kgo.Record{
				{Topic: topic, Key: []byte("k"), Value: []byte(strings.Repeat("v", 5000)), Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("x")}}},
				{Topic: topic, Key: nil, Value: []byte{1}},
				{Topic: topic, Key: []byte{}, Value: nil},
			}
			if err := p.ProduceSync(ctx, want...).FirstErr(); err != nil {
				t.Fatal(err)
			}
			got := consume(ctx, t, b.Addr(), topic, len(want))
			for i, r := range got {
				w := want[i]
				if r.Offset != int64(i) || !bytes.Equal(r.Key, w.Key) || !bytes.Equal(r.Value, w.Value) || (r.Value == nil) != (w.Value == nil) || len(r.Headers) != len(w.Headers) {
					t.Errorf("record %d: got %v, want %v", i, r, w)
				}
			}
		})
	}
}

// consume reads n records of one topic from its start.
func consume(ctx context.Context, t *testing.T, addr, topic string, n int, opts ...kgo.Opt) []*kgo.Record {
	t.Helper()
	cl := testkit.Client(t, addr, append([]kgo.Opt{kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}, opts...)...)
	var got []*kgo.Record
	for len(got) < n {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatalf("after %d of %d records: %v", len(got), n, err)
		}
		got = append(got, fs.Records()...)
	}
	return got
}

func TestMetadataSurvivesRestart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	b := testkit.StartBroker(t, dir)
	ctx := testkit.Context(t)
	adm := kadm.NewClient(testkit.Client(t, b.Addr()))
	if _, err := adm.CreateTopic(ctx, 3, 1, map[string]*string{"retention.ms": kadm.StringPtr("1234")}, "kept"); err != nil {
		t.Fatal(err)
	}
	if _, err := adm.CreateTopic(ctx, 1, 1, nil, "gone"); err != nil {
		t.Fatal(err)
	}
	if _, err := adm.DeleteTopic(ctx, "gone"); err != nil {
		t.Fatal(err)
	}
	p := testkit.Client(t, b.Addr())
	if err := p.ProduceSync(ctx, &kgo.Record{Topic: "kept", Partition: 0, Value: []byte("v")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	id := b.ClusterID()
	testkit.StopBroker(t, b)

	b = testkit.StartBroker(t, dir)
	if b.ClusterID() != id {
		t.Errorf("cluster id %s after the restart, %s before", b.ClusterID(), id)
	}
	adm = kadm.NewClient(testkit.Client(t, b.Addr()))
	topics, err := adm.ListTopics(ctx, "kept", "gone")
	if err != nil {
		t.Fatal(err)
	}
	if n := len(topics["kept"].Partitions); n != 3 {
		t.Errorf("kept has %d partitions, want 3", n)
	}
	if !errors.Is(topics["gone"].Err, kerr.UnknownTopicOrPartition) {
		t.Errorf("gone: %v", topics["gone"].Err)
	}
	cfg, err := adm.DescribeTopicConfigs(ctx, "kept")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cfg[0].Configs {
		if c.Key == "retention.ms" && c.MaybeValue() != "1234" {
			t.Errorf("retention.ms is %s", c.MaybeValue())
		}
	}
	ends, err := adm.ListEndOffsets(ctx, "kept")
	if err != nil {
		t.Fatal(err)
	}
	var sum int64
	ends.Each(func(o kadm.ListedOffset) { sum += o.Offset })
	if sum != 1 {
		t.Errorf("%d records after the restart, want 1", sum)
	}
}

func TestSecondBrokerOnTheSameDirectoryIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	testkit.StartBroker(t, dir)
	b, err := testkit.TryBroker(dir)
	if err == nil {
		testkit.StopBroker(t, b)
		t.Fatal("a second broker started")
	}
	if !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "another process") {
		t.Errorf("the error does not say what is wrong: %v", err)
	}
}

func TestForeignDirectoryIsRefusedUnchanged(t *testing.T) {
	dir := t.TempDir()
	props := []byte("version=1\ncluster.id=someoneelse\nnode.id=1\n")
	if err := os.WriteFile(filepath.Join(dir, "meta.properties"), props, 0o644); err != nil {
		t.Fatal(err)
	}
	if b, err := testkit.TryBroker(dir); err == nil {
		testkit.StopBroker(t, b)
		t.Fatal("it started")
	} else if !strings.Contains(err.Error(), dir) {
		t.Errorf("the error does not name the directory: %v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 {
		t.Errorf("the directory was changed: %v", entries)
	}
}

func TestAnotherNodeIDIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	testkit.StopBroker(t, testkit.StartBroker(t, dir))
	if b, err := testkit.TryBroker(dir, "node.id=7"); err == nil {
		testkit.StopBroker(t, b)
		t.Fatal("it started")
	} else if !strings.Contains(err.Error(), "node") {
		t.Errorf("the error does not say what is wrong: %v", err)
	}
}

func TestPortInUse(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	dir := filepath.Join(t.TempDir(), "data")
	b, err := testkit.TryBroker(dir, "listeners=PLAINTEXT://"+ln.Addr().String())
	if err == nil {
		testkit.StopBroker(t, b)
		t.Fatal("it started")
	}
	if !strings.Contains(err.Error(), ln.Addr().String()) {
		t.Errorf("the error does not name the address: %v", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Error("the data directory was made before the port was known to be free")
	}
}

func TestConfigErrorsNameFileLineKeyAndNearest(t *testing.T) {
	file := filepath.Join(t.TempDir(), "server.properties")
	for _, c := range []struct{ text, want string }{
		{"# comment\nnode.id=1\nlistenrs=PLAINTEXT://:9092\n", "server.properties:3"},
		{"listenrs=x\n", "listeners"},
		{"node.id=one\n", "node.id"},
		{"num.partitions=0\n", "num.partitions"},
		{"listeners=PLAINTEXT:9092\n", "NAME://HOST:PORT"},
		{"listeners=SSL://:9093\n", "SSL"},
		{"controller.quorum.voters=1@a:1,2@b:1\n", "controller.quorum.voters"},
		{"mirror.replication.throttled.rate=0\n", "mirror.replication.throttled.rate"},
		{"sasl.enabled.mechanisms=PLAIN\n", "sasl.enabled.mechanisms"},
	} {
		if err := os.WriteFile(file, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := broker.LoadConfig(file, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: the error %v lacks %q", c.text, err, c.want)
		}
	}
	if err := os.WriteFile(file, []byte("zookeeper.connect=localhost:2181\nnum.network.threads=3\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	cfg, err := broker.LoadConfig(file, nil)
	if err != nil {
		t.Fatalf("known Kafka keys without a meaning: %v", err)
	}
	if len(cfg.Warnings) != 2 {
		t.Errorf("warnings: %v", cfg.Warnings)
	}
}

func TestEndpoints(t *testing.T) {
	b := testkit.StartBroker(t, "")
	for path, want := range map[string]string{
		"/healthz": "ok", "/readyz": "ready", "/metrics": "stet_broker_metadata_offset", "/debug/pprof/": "goroutine",
	} {
		resp, err := http.Get("http://" + b.HTTPAddr() + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(body), want) {
			t.Errorf("%s: status %d, error %v, lacks %q", path, resp.StatusCode, err, want)
		}
	}
}

// TestHostileConnections: each one is closed, the others go on, memory does not grow with claims.
func TestHostileConnections(t *testing.T) {
	b := testkit.StartBroker(t, "")
	frame := func(size uint32, body []byte) []byte {
		return append(binary.BigEndian.AppendUint32(nil, size), body...)
	}
	ok := kmsg.NewRequestFormatter().AppendRequest(nil, kmsg.NewPtrApiVersionsRequest(), 1)
	for name, bytes := range map[string][]byte{
		"garbage":            []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"2 GiB claim":        frame(1<<31-1, nil),
		"negative size":      frame(1<<31, nil),
		"tiny frame":         frame(3, []byte{1, 2, 3}),
		"unknown key":        frame(10, []byte{0x30, 0, 0, 0, 0, 0, 0, 1, 0xff, 0xff}),
		"client id too long": frame(10, []byte{0, 18, 0, 0, 0, 0, 0, 1, 0x7f, 0xff}),
		"unserved version":   frame(10, []byte{0, 3, 0x7f, 0xff, 0, 0, 0, 1, 0xff, 0xff}),
		"body cut off":       frame(12, []byte{0, 3, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0x7f, 0xff}),
		"array of 2 billion": frame(14, []byte{0, 3, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff}),
	} {
		t.Run(name, func(t *testing.T) {
			c, err := net.Dial("tcp", b.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := c.Write(bytes); err != nil {
				t.Fatal(err)
			}
			_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
			if n, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the connection was not closed: read %d bytes, %v", n, err)
			}
		})
	}
	c, err := net.Dial("tcp", b.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write(ok); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.ReadFull(c, make([]byte, 8)); err != nil {
		t.Errorf("a proper client is not served any more: %v", err)
	}
}

func TestPipelinedRequestsAreAnsweredInOrder(t *testing.T) {
	b := testkit.StartBroker(t, "")
	c, err := net.Dial("tcp", b.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	f := kmsg.NewRequestFormatter()
	var all []byte
	const n = 50
	for i := range int32(n) {
		var req kmsg.Request = kmsg.NewPtrApiVersionsRequest()
		if i%2 == 1 {
			req = kmsg.NewPtrMetadataRequest()
		}
		all = append(all, f.AppendRequest(nil, req, i)...)
	}
	if _, err := c.Write(all); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	for i := range int32(n) {
		var head [8]byte
		if _, err := io.ReadFull(c, head[:]); err != nil {
			t.Fatal(err)
		}
		if got := int32(binary.BigEndian.Uint32(head[4:])); got != i {
			t.Fatalf("answer %d has correlation id %d", i, got)
		}
		if _, err := io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint32(head[:]))-4); err != nil {
			t.Fatal(err)
		}
	}
}

func TestApiVersionsAnswersAnUnknownVersionWithVersionZero(t *testing.T) {
	b := testkit.StartBroker(t, "")
	c, err := net.Dial("tcp", b.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	req := kmsg.NewPtrApiVersionsRequest()
	req.Version = 99
	if _, err := c.Write(kmsg.NewRequestFormatter().AppendRequest(nil, req, 7)); err != nil {
		t.Fatal(err)
	}
	var size [4]byte
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.ReadFull(c, size[:]); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(c, body); err != nil {
		t.Fatal(err)
	}
	resp := kmsg.NewPtrApiVersionsResponse()
	if err := resp.ReadFrom(body[4:]); err != nil {
		t.Fatal(err)
	}
	if resp.ErrorCode != kerr.UnsupportedVersion.Code || len(resp.ApiKeys) != 1 || resp.ApiKeys[0].ApiKey != 18 {
		t.Errorf("answer %+v", resp)
	}
}

// TestAdvertised holds the advertised versions against PROTOCOL.md's 4.2 column and its lower bounds.
func TestAdvertised(t *testing.T) {
	b := testkit.StartBroker(t, "")
	req := kmsg.NewPtrApiVersionsRequest()
	resp, err := req.RequestWith(testkit.Context(t), testkit.Client(t, b.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	want := map[int16][2]int16{
		0: {0, 13}, 1: {4, 18}, 2: {1, 11}, 3: {0, 13}, 8: {2, 10}, 9: {1, 10}, 10: {0, 6}, 11: {0, 9}, 12: {0, 4}, 13: {0, 5}, 14: {0, 5},
		15: {0, 6}, 16: {0, 5}, 18: {0, 4}, 19: {2, 7}, 20: {1, 6}, 21: {0, 2}, 22: {0, 5}, 23: {2, 4}, 32: {1, 4}, 35: {1, 4}, 37: {0, 3}, 42: {0, 2},
		44: {0, 1}, 47: {0, 0}, 60: {0, 2}, 75: {0, 0},
	}
	for k := int16(1279); k <= 1289; k++ {
		want[k] = [2]int16{0, 0}
	}
	for _, k := range resp.ApiKeys {
		w, ok := want[k.ApiKey]
		if !ok {
			t.Errorf("key %d is advertised and not in the list", k.ApiKey)
			continue
		}
		if k.MinVersion != w[0] || k.MaxVersion != w[1] {
			t.Errorf("key %d: %d to %d, want %d to %d", k.ApiKey, k.MinVersion, k.MaxVersion, w[0], w[1])
		}
		delete(want, k.ApiKey)
	}
	for k := range want {
		t.Errorf("key %d is not advertised", k)
	}
}

func TestProduceIsRefused(t *testing.T) {
	b := testkit.StartBroker(t, "", "auto.create.topics.enable=false")
	ctx := testkit.Context(t)
	cl := testkit.Client(t, b.Addr())
	if _, err := kadm.NewClient(cl).CreateTopic(ctx, 1, 1, map[string]*string{"max.message.bytes": kadm.StringPtr("200")}, "t"); err != nil {
		t.Fatal(err)
	}
	good := oneBatch([]byte("v"))
	flipped := bytes.Clone(good)
	flipped[len(flipped)-1] ^= 1
	old := bytes.Clone(good)
	old[16] = 1
	control := batch.BuildEndTxn(nil, batch.Header{ProducerID: 5}, false, 0)
	for name, c := range map[string]struct {
		records []byte
		topic   string
		part    int32
		acks    int16
		want    *kerr.Error
	}{
		"unknown topic":     {good, "nope", 0, -1, kerr.UnknownTopicOrPartition},
		"unknown partition": {good, "t", 9, -1, kerr.UnknownTopicOrPartition},
		"flipped byte":      {flipped, "t", 0, -1, kerr.CorruptMessage},
		"old format":        {old, "t", 0, -1, kerr.InvalidRecord},
		"two batches":       {append(bytes.Clone(good), good...), "t", 0, -1, kerr.InvalidRecord},
		"no batch":          {nil, "t", 0, -1, kerr.InvalidRecord},
		"half a batch":      {good[:40], "t", 0, -1, kerr.CorruptMessage},
		"control batch":     {control, "t", 0, -1, kerr.InvalidRecord},
		"too large":         {oneBatch(make([]byte, 300)), "t", 0, -1, kerr.MessageTooLarge},
		"bad acks":          {good, "t", 0, 5, kerr.InvalidRequiredAcks},
		"internal topic":    {good, "__consumer_offsets", 0, -1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if c.topic == "__consumer_offsets" {
				req := kmsg.NewPtrFindCoordinatorRequest()
				req.CoordinatorKeys = []string{"g"}
				if _, err := req.RequestWith(ctx, cl); err != nil {
					t.Fatal(err)
				}
				c.want = kerr.InvalidTopicException
			}
			got := produceRaw(ctx, t, cl, c.topic, c.part, c.acks, c.records)
			if got.ErrorCode != c.want.Code {
				t.Errorf("code %d (%v), want %v", got.ErrorCode, kerr.ErrorForCode(got.ErrorCode), c.want)
			}
			if got.ErrorMessage == nil || *got.ErrorMessage == "" {
				t.Error("no message")
			}
		})
	}
	if got := produceRaw(ctx, t, cl, "t", 0, -1, good); got.ErrorCode != 0 || got.BaseOffset != 0 {
		t.Errorf("after all refusals: code %d, offset %d", got.ErrorCode, got.BaseOffset)
	}
}

func oneBatch(value []byte) []byte {
	return batch.Build(nil, batch.Header{PartitionLeaderEpoch: -1, Timestamp: time.Now().UnixMilli(), ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}, batch.KV{Value: value})
}

// produceRaw sends one partition's records as they are.
func produceRaw(ctx context.Context, t *testing.T, cl *kgo.Client, topic string, part int32, acks int16, records []byte) kmsg.ProduceResponseTopicPartition {
	t.Helper()
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = acks, 5000
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = part, records
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	kresp, err := cl.Broker(1).Request(ctx, &pinned{req, 9})
	if err != nil {
		t.Fatal(fmt.Errorf("produce: %w", err))
	}
	return kresp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
}

// pinned keeps a request at a version at most.
type pinned struct {
	kmsg.Request
	version int16
}

func (p *pinned) MaxVersion() int16 { return p.version }
