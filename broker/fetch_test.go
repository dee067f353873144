package broker_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
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

// fetchFixture is a broker with one topic of two partitions and its id.
func fetchFixture(t *testing.T) (context.Context, *broker.Broker, *kgo.Client, [16]byte) {
	b := testkit.StartBroker(t, "")
	ctx := testkit.Context(t)
	cl := testkit.Client(t, b.Addr())
	r, err := kadm.NewClient(cl).CreateTopic(ctx, 2, 1, nil, "t")
	if err != nil {
		t.Fatal(err)
	}
	return ctx, b, cl, r.ID
}

type want struct {
	part   int32
	offset int64
}

func fetchRequest(id [16]byte, maxWait int32, parts ...want) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID, req.ReplicaState.ID = -1, -1
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = maxWait, 1, 50<<20, -1
	if len(parts) == 0 {
		return req
	}
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID = "t", id
	for _, w := range parts {
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes, rp.CurrentLeaderEpoch, rp.LastFetchedEpoch = w.part, w.offset, 20<<20, -1, -1
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	return req
}

func doFetch(ctx context.Context, t *testing.T, cl *kgo.Client, req *kmsg.FetchRequest, version int16) *kmsg.FetchResponse {
	t.Helper()
	kresp, err := cl.Broker(1).Request(ctx, &pinned{req, version})
	if err != nil {
		t.Fatalf("version %d: %v", version, err)
	}
	return kresp.(*kmsg.FetchResponse)
}

// TestFetchEncodesEveryVersionAsKmsgReadsIt: the hand-written encoder against the generated decoder.
func TestFetchEncodesEveryVersionAsKmsgReadsIt(t *testing.T) {
	ctx, _, cl, id := fetchFixture(t)
	var stored []byte
	for i := range 3 { // small ones go by copy, the large one by sendfile
		b := oneBatch(bytes.Repeat([]byte{byte('a' + i)}, 10+i*200_000))
		if got := produceRaw(ctx, t, cl, "t", 0, -1, b); got.ErrorCode != 0 {
			t.Fatal(kerr.ErrorForCode(got.ErrorCode))
		}
		batch.Batch(b).SetBaseOffset(int64(i))
		batch.Batch(b).SetPartitionLeaderEpoch(0)
		stored = append(stored, b...)
	}
	for v := int16(4); v <= 18; v++ {
		resp := doFetch(ctx, t, cl, fetchRequest(id, 0, want{0, 0}, want{1, 0}), v)
		if resp.Version != v {
			t.Fatalf("answered at version %d, want %d", resp.Version, v)
		}
		if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 2 {
			t.Fatalf("version %d: %+v", v, resp)
		}
		p := resp.Topics[0].Partitions[0]
		if p.ErrorCode != 0 || p.HighWatermark != 3 || p.LastStableOffset != 3 || v >= 5 && p.LogStartOffset != 0 {
			t.Errorf("version %d: %+v", v, p)
		}
		if !bytes.Equal(p.RecordBatches, stored) {
			t.Errorf("version %d: %d record bytes, want %d, or other ones", v, len(p.RecordBatches), len(stored))
		}
		if p1 := resp.Topics[0].Partitions[1]; p1.ErrorCode != 0 || p1.HighWatermark != 0 || len(p1.RecordBatches) != 0 {
			t.Errorf("version %d: the empty partition: %+v", v, p1)
		}
		if v >= 13 && resp.Topics[0].TopicID != id || v < 13 && resp.Topics[0].Topic != "t" {
			t.Errorf("version %d: topic %q %x", v, resp.Topics[0].Topic, resp.Topics[0].TopicID)
		}
	}
}

func TestFetchErrorsPerPartition(t *testing.T) {
	ctx, _, cl, id := fetchFixture(t)
	produceRaw(ctx, t, cl, "t", 0, -1, oneBatch([]byte("v")))
	for name, c := range map[string]struct {
		change func(*kmsg.FetchRequest)
		want   *kerr.Error
	}{
		"beyond the end":       {func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].FetchOffset = 2 }, kerr.OffsetOutOfRange},
		"newer leader epoch":   {func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].CurrentLeaderEpoch = 9 }, kerr.UnknownLeaderEpoch},
		"unknown partition":    {func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].Partition = 9 }, kerr.UnknownTopicOrPartition},
		"unknown topic id":     {func(r *kmsg.FetchRequest) { r.Topics[0].TopicID = [16]byte{1} }, kerr.UnknownTopicID},
		"epoch it never had":   {func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].LastFetchedEpoch = 9 }, kerr.OffsetOutOfRange},
		"older fetched offset": {func(*kmsg.FetchRequest) {}, nil},
	} {
		req := fetchRequest(id, 60_000, want{0, 0}, want{1, 0})
		c.change(req)
		start := time.Now()
		resp := doFetch(ctx, t, cl, req, 16)
		if time.Since(start) > 50*time.Second {
			t.Errorf("%s: an error waited for the whole time", name)
		}
		got := resp.Topics[0].Partitions[0]
		if c.want == nil && got.ErrorCode != 0 || c.want != nil && got.ErrorCode != c.want.Code {
			t.Errorf("%s: %v, want %v", name, kerr.ErrorForCode(got.ErrorCode), c.want)
		}
		if len(resp.Topics[0].Partitions) == 2 && c.want != kerr.UnknownTopicID && resp.Topics[0].Partitions[1].ErrorCode != 0 {
			t.Errorf("%s: the other partition failed too", name)
		}
	}
}

func TestFetchWaitsForRecordsAndIsWokenByThem(t *testing.T) {
	ctx, _, cl, id := fetchFixture(t)
	got := make(chan *kmsg.FetchResponse, 1)
	start := time.Now()
	go func() { got <- doFetch(ctx, t, cl, fetchRequest(id, 30_000, want{0, 0}, want{1, 0}), 12) }()
	if p := produceRaw(ctx, t, testkit.Client(t, clientAddr(t, cl)), "t", 1, -1, oneBatch([]byte("v"))); p.ErrorCode != 0 {
		t.Fatal(kerr.ErrorForCode(p.ErrorCode))
	}
	resp := <-got
	if n := len(resp.Topics[0].Partitions[1].RecordBatches); n == 0 {
		t.Error("woken without records")
	}
	if time.Since(start) > 25*time.Second {
		t.Error("the fetch was not woken by the produce")
	}
}

func clientAddr(t *testing.T, cl *kgo.Client) string {
	t.Helper()
	resp, err := kmsg.NewPtrMetadataRequest().RequestWith(testkit.Context(t), cl)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s:%d", resp.Brokers[0].Host, resp.Brokers[0].Port)
}

// TestFetchSession walks through KIP-227: full fetch, incremental ones that carry
// only what changed, forgotten partitions, wrong epochs and an unknown id.
func TestFetchSession(t *testing.T) {
	ctx, _, cl, id := fetchFixture(t)
	req := fetchRequest(id, 0, want{0, 0}, want{1, 0})
	req.SessionEpoch = 0
	full := doFetch(ctx, t, cl, req, 16)
	if full.SessionID == 0 || len(full.Topics[0].Partitions) != 2 {
		t.Fatalf("full fetch: %+v", full)
	}
	next := func(epoch int32, parts ...want) *kmsg.FetchResponse {
		r := fetchRequest(id, 0, parts...)
		r.SessionID, r.SessionEpoch = full.SessionID, epoch
		return doFetch(ctx, t, cl, r, 16)
	}
	if r := next(1); r.ErrorCode != 0 || len(r.Topics) != 0 {
		t.Errorf("nothing changed, and the answer is %+v", r)
	}
	produceRaw(ctx, t, cl, "t", 1, -1, oneBatch([]byte("v")))
	r := next(2)
	if len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 1 || r.Topics[0].Partitions[0].Partition != 1 || len(r.Topics[0].Partitions[0].RecordBatches) == 0 {
		t.Fatalf("after one produce: %+v", r)
	}
	if r := next(3, want{1, 1}); len(r.Topics) != 0 {
		t.Errorf("after the position moved: %+v", r)
	}
	forget := fetchRequest(id, 0)
	forget.SessionID, forget.SessionEpoch = full.SessionID, 4
	ft := kmsg.NewFetchRequestForgottenTopic()
	ft.TopicID, ft.Partitions = id, []int32{0}
	forget.ForgottenTopics = append(forget.ForgottenTopics, ft)
	doFetch(ctx, t, cl, forget, 16)
	produceRaw(ctx, t, cl, "t", 0, -1, oneBatch([]byte("v")))
	if r := next(5); len(r.Topics) != 0 {
		t.Errorf("a forgotten partition is in %+v", r)
	}
	if r := next(4); r.ErrorCode != kerr.InvalidFetchSessionEpoch.Code {
		t.Errorf("an old epoch: %v", kerr.ErrorForCode(r.ErrorCode))
	}
	bad := fetchRequest(id, 0)
	bad.SessionID, bad.SessionEpoch = full.SessionID+1, 1
	if r := doFetch(ctx, t, cl, bad, 16); r.ErrorCode != kerr.FetchSessionIDNotFound.Code {
		t.Errorf("an unknown id: %v", kerr.ErrorForCode(r.ErrorCode))
	}
	byName := fetchRequest(id, 0)
	byName.SessionID, byName.SessionEpoch = full.SessionID, 6
	if r := doFetch(ctx, t, cl, byName, 12); r.ErrorCode != kerr.FetchSessionTopicIDError.Code {
		t.Errorf("a session of ids asked by name: %v", kerr.ErrorForCode(r.ErrorCode))
	}
}

// TestFetchSendsBySendfile: at least 99 % of a 1 MiB plaintext fetch (goal G10).
func TestFetchSendsBySendfile(t *testing.T) {
	ctx, b, cl, id := fetchFixture(t)
	if got := produceRaw(ctx, t, cl, "t", 0, -1, oneBatch(make([]byte, 1<<20-100))); got.ErrorCode != 0 {
		t.Fatal(kerr.ErrorForCode(got.ErrorCode))
	}
	before := counters(t, b)
	resp := doFetch(ctx, t, cl, fetchRequest(id, 0, want{0, 0}), 16)
	after := counters(t, b)
	n := float64(len(resp.Topics[0].Partitions[0].RecordBatches))
	sent := after["stet_broker_out_sendfile_bytes_total"] - before["stet_broker_out_sendfile_bytes_total"]
	if n < 1<<20-1000 || sent < 0.99*n {
		t.Errorf("%.0f of %.0f bytes by sendfile", sent, n)
	}
}

func counters(t *testing.T, b *broker.Broker) map[string]float64 {
	t.Helper()
	resp, err := http.Get("http://" + b.HTTPAddr() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]float64{}
	for _, line := range strings.Split(string(body), "\n") {
		if name, v, ok := strings.Cut(line, " "); ok && !strings.HasPrefix(line, "#") {
			if f, err := strconv.ParseFloat(v, 64); err == nil {
				m[name] = f
			}
		}
	}
	return m
}

func TestListOffsetsSpecialTimestamps(t *testing.T) {
	ctx, _, cl, _ := fetchFixture(t)
	for _, ts := range []int64{5000, 9000, 7000} {
		b := batch.Build(nil, batch.Header{PartitionLeaderEpoch: -1, Timestamp: ts, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}, batch.KV{Value: []byte("v")})
		if got := produceRaw(ctx, t, cl, "t", 0, -1, b); got.ErrorCode != 0 {
			t.Fatal(kerr.ErrorForCode(got.ErrorCode))
		}
	}
	for _, c := range []struct {
		ts, offset, time int64
		code             int16
	}{
		{-1, 3, -1, 0},
		{-2, 0, -1, 0},
		{-3, 1, 9000, 0},
		{-4, 0, -1, 0},
		{-5, -1, -1, 0},
		{-6, -1, -1, 0},
		{0, 0, 5000, 0},
		{5001, 1, 9000, 0},
		{9000, 1, 9000, 0},
		{9001, -1, -1, 0},
		{-7, -1, -1, kerr.UnsupportedVersion.Code},
	} {
		req := kmsg.NewPtrListOffsetsRequest()
		req.ReplicaID = -1
		rt := kmsg.NewListOffsetsRequestTopic()
		rt.Topic = "t"
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Timestamp = c.ts
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		kresp, err := cl.Broker(1).Request(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		p := kresp.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
		if p.Offset != c.offset || p.Timestamp != c.time || p.ErrorCode != c.code {
			t.Errorf("timestamp %d: offset %d timestamp %d code %d, want %+v", c.ts, p.Offset, p.Timestamp, p.ErrorCode, c)
		}
	}
}
