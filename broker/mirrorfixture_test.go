package broker_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"stet/broker"
	"stet/broker/mirrormsg"
	"stet/internal/testkit"
	"stet/internal/testkit/scripted"
	"stet/internal/vfs"
	"stet/zerocopy/batch"
)

// world is a scripted source cluster and a Stet broker in the process that mirrors it.
type world struct {
	t    *testing.T
	ctx  context.Context
	src  *scripted.Cluster
	dir  string
	fs   vfs.FS // of the logs, nil: the operating system's
	sets []string
	b    *broker.Broker
	cl   *kgo.Client
	from string // bootstrap servers of another source than src
}

const mirrorName = "m"

func newWorld(t *testing.T, sets ...string) *world { return newWorldOn(t, nil, sets...) }

// newWorldOn is a world whose logs are on a file system that fails when told to; the broker is not stopped cleanly then.
func newWorldOn(t *testing.T, fs vfs.FS, sets ...string) *world {
	w := &world{t: t, fs: fs, ctx: testkit.Context(t), src: scripted.NewCluster(t, 2), dir: filepath.Join(t.TempDir(), "data")}
	w.sets = append([]string{"mirror.metadata.refresh.interval.ms=100", "mirror.failed.retry.max.backoff.ms=200"}, sets...)
	w.start()
	t.Cleanup(func() {
		if w.b != nil && fs != nil {
			_ = w.b.Close(w.ctx)
		} else if w.b != nil {
			testkit.StopBroker(t, w.b)
		}
	})
	return w
}

func (w *world) start() {
	w.t.Helper()
	b, err := w.tryBroker()
	if err != nil {
		w.t.Fatal(err)
	}
	w.b, w.cl = b, testkit.Client(w.t, b.Addr(), kgo.RecordPartitioner(kgo.ManualPartitioner()))
}

func (w *world) tryBroker() (*broker.Broker, error) {
	if w.fs == nil {
		return testkit.TryBroker(w.dir, w.sets...)
	}
	cfg, err := broker.LoadConfig("", append([]string{"listeners=PLAINTEXT://127.0.0.1:0", "http.listener=127.0.0.1:0", "log.dirs=" + w.dir}, w.sets...))
	if err != nil {
		return nil, err
	}
	cfg.UseLogFS(w.fs)
	return broker.Start(w.ctx, cfg, slog.New(slog.DiscardHandler), "test")
}

// restart stops the broker cleanly, lets f change its files, and starts it again.
func (w *world) restart(f func(dir string)) {
	w.t.Helper()
	testkit.StopBroker(w.t, w.b)
	w.b = nil
	if f != nil {
		f(w.dir)
	}
	w.start()
}

func (w *world) create(configs ...string) {
	w.t.Helper()
	req := mirrormsg.NewPtrCreateMirrorRequest()
	req.MirrorName = mirrorName
	from := w.from
	if from == "" {
		from = w.src.Bootstrap()
	}
	all := append([]string{"bootstrap.servers", from, "fetch.wait.max.ms", "100", "fetch.backoff.ms", "50"}, configs...)
	for i := 0; i+1 < len(all); i += 2 {
		c := mirrormsg.NewCreateMirrorRequestConfig()
		c.Name, c.Value = all[i], &all[i+1]
		req.Config = append(req.Config, c)
	}
	resp, err := req.RequestWith(w.ctx, w.cl)
	if err == nil {
		err = mirrormsg.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		w.t.Fatalf("create: %v", err)
	}
}

func (w *world) tryStart(change func(*mirrormsg.StartMirrorTopicsRequest), topics ...string) (*mirrormsg.StartMirrorTopicsResponse, error) {
	req := mirrormsg.NewPtrStartMirrorTopicsRequest()
	req.MirrorName = mirrorName
	for _, n := range topics {
		t := mirrormsg.NewStartMirrorTopicsRequestTopic()
		t.TopicName = n
		req.Topics = append(req.Topics, t)
	}
	if change != nil {
		change(req)
	}
	resp, err := req.RequestWith(w.ctx, w.cl)
	if err != nil {
		return nil, err
	}
	if err := mirrormsg.ErrorForCode(resp.ErrorCode); err != nil {
		return resp, err
	}
	for i := range resp.Topics {
		if err := mirrormsg.ErrorForCode(resp.Topics[i].ErrorCode); err != nil {
			return resp, fmt.Errorf("%s: %w", resp.Topics[i].Name, err)
		}
	}
	return resp, nil
}

func (w *world) startTopics(topics ...string) {
	w.t.Helper()
	if _, err := w.tryStart(nil, topics...); err != nil {
		w.t.Fatalf("start: %v", err)
	}
}

func (w *world) stop(topics ...string) *mirrormsg.StopMirrorTopicsResponse {
	w.t.Helper()
	req := mirrormsg.NewPtrStopMirrorTopicsRequest()
	req.MirrorName = mirrorName
	for _, n := range topics {
		t := mirrormsg.NewStopMirrorTopicsRequestTopic()
		t.TopicName = n
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(w.ctx, w.cl)
	if err == nil {
		err = mirrormsg.ErrorForCode(resp.ErrorCode)
	}
	for i := 0; err == nil && i < len(resp.Topics); i++ {
		err = mirrormsg.ErrorForCode(resp.Topics[i].ErrorCode)
	}
	if err != nil {
		w.t.Fatalf("stop: %v", err)
	}
	return resp
}

func (w *world) pause(topic string) {
	w.t.Helper()
	req := mirrormsg.NewPtrPauseMirrorTopicsRequest()
	req.MirrorName = mirrorName
	t := mirrormsg.NewPauseMirrorTopicsRequestTopic()
	t.TopicName = topic
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(w.ctx, w.cl)
	if err != nil || resp.ErrorCode != 0 || resp.Topics[0].ErrorCode != 0 {
		w.t.Fatalf("pause: %v %+v", err, resp)
	}
	w.wait("PAUSED", func(p part) bool { return p.topic != topic || p.State == "PAUSED" })
}

func (w *world) resume(topic string) {
	w.t.Helper()
	req := mirrormsg.NewPtrResumeMirrorTopicsRequest()
	req.MirrorName = mirrorName
	t := mirrormsg.NewResumeMirrorTopicsRequestTopic()
	t.TopicName = topic
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(w.ctx, w.cl)
	if err != nil || resp.ErrorCode != 0 || resp.Topics[0].ErrorCode != 0 {
		w.t.Fatalf("resume: %v %+v", err, resp)
	}
}

// part is a partition as DescribeMirrors shows it.
type part struct {
	topic string
	mirrormsg.DescribeMirrorsResponseMirrorTopicPartition
}

func (p part) String() string {
	msg := ""
	if p.ErrorMessage != nil {
		msg = *p.ErrorMessage
	}
	return fmt.Sprintf("%s-%d %s source %d destination %d lag %d attempt %d %s", p.topic, p.PartitionIndex, p.State, p.SourceOffset, p.DestinationOffset, p.Lag, p.RetryAttempt, msg)
}

func (w *world) describe() []part {
	w.t.Helper()
	resp, err := mirrormsg.NewPtrDescribeMirrorsRequest().RequestWith(w.ctx, w.cl)
	if err != nil {
		w.t.Fatalf("describe: %v", err)
	}
	var out []part
	for i := range resp.Mirrors {
		for j := range resp.Mirrors[i].Topics {
			t := &resp.Mirrors[i].Topics[j]
			for k := range t.Partitions {
				out = append(out, part{t.TopicName, t.Partitions[k]})
			}
		}
	}
	return out
}

// wait returns when every partition satisfies ok.
func (w *world) wait(what string, ok func(part) bool) []part {
	w.t.Helper()
	var last []part
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		last = w.describe()
		good := len(last) > 0
		for _, p := range last {
			good = good && ok(p)
		}
		if good && w.readable(last) {
			return last
		}
		<-time.After(10 * time.Millisecond)
	}
	for _, p := range last {
		w.t.Log(p)
	}
	w.t.Fatalf("not %s after a minute", what)
	return nil
}

// readable says whether consumers can read all that the partitions hold: the high
// watermark follows the log end, a moment later.
func (w *world) readable(parts []part) bool {
	w.t.Helper()
	topics := map[string]bool{}
	for _, p := range parts {
		topics[p.topic] = true
	}
	ends, err := kadm.NewClient(w.cl).ListEndOffsets(w.ctx, slices.Collect(maps.Keys(topics))...)
	if err != nil {
		w.t.Fatalf("end offsets: %v", err)
	}
	for _, p := range parts {
		if o, ok := ends.Lookup(p.topic, p.PartitionIndex); ok && o.Err == nil && o.Offset < p.DestinationOffset {
			return false
		}
	}
	return true
}

func mirroring(p part) bool { return p.State == "MIRRORING" && p.Lag == 0 && p.SourceOffset >= 0 }

func (w *world) caughtUp() { w.t.Helper(); w.wait("caught up", mirroring) }

// nothingLeased waits until nothing is; a request that the source holds brings an empty answer still.
func (w *world) nothingLeased() {
	w.t.Helper()
	w.until("nothing is leased while nothing is fetched", func() bool { return w.b.LeasedBytes() == 0 })
}

// failedForGood waits until the partition is FAILED and is not tried again.
func (w *world) failedForGood(topic string, partition int32) part {
	w.t.Helper()
	return w.failedWhen(topic, partition, func(p part) bool { return p.RetryAttempt == -1 })
}

func (w *world) failed(topic string, partition int32) part {
	w.t.Helper()
	return w.failedWhen(topic, partition, func(part) bool { return true })
}

func (w *world) failedWhen(topic string, partition int32, ok func(part) bool) (f part) {
	w.t.Helper()
	w.wait(fmt.Sprintf("%s-%d FAILED as wanted", topic, partition), func(p part) bool {
		if p.topic == topic && p.PartitionIndex == partition {
			f = p
			return p.State == "FAILED" && ok(p)
		}
		return true
	})
	return f
}

// stored reads the raw batches of a partition of the broker from an offset on.
func (w *world) stored(topic string, partition int32, from int64) []byte {
	w.t.Helper()
	return fetchAll(w.ctx, w.t, w.cl, 1, topic, partition, from)
}

// same is the byte comparison that ends every test: what the source has, from its
// log start on. The log end is published before the high watermark that readers are
// bound by, so the last batch may come a moment later.
func (w *world) same(t *scripted.Topic) {
	w.t.Helper()
	for i := range t.Logs {
		var start int64
		w.src.Change(func() { start = t.Logs[i].Start })
		want := w.src.Bytes(t, int32(i))
		got := w.stored(t.Name, int32(i), start)
		for deadline := time.Now().Add(5 * time.Second); len(got) < len(want) && time.Now().Before(deadline); {
			got = w.stored(t.Name, int32(i), start)
		}
		if !bytes.Equal(got, want) {
			w.t.Errorf("%s-%d: %d bytes are stored, the source has %d, or other ones", t.Name, i, len(got), len(want))
		}
	}
}

// kinds names the batches from an offset on: "3 ABORT 7/1" is offset, kind, producer id and leader epoch.
func kinds(t *testing.T, raw []byte) string {
	t.Helper()
	var out []string
	for len(raw) > 0 {
		b, rest, err := batch.Next(raw)
		if err != nil {
			t.Fatal(err)
		}
		raw = rest
		kind := "DATA"
		if b.IsControl() {
			typ, err := b.ControlType()
			if err != nil {
				t.Fatal(err)
			}
			kind = map[int16]string{batch.ControlAbort: "ABORT", batch.ControlCommit: "COMMIT", batch.ControlMirrorPIDReset: "RESET"}[typ]
		}
		out = append(out, fmt.Sprintf("%d %s %d", b.BaseOffset(), kind, b.ProducerID()))
	}
	return strings.Join(out, ", ")
}

// data builds a batch of a producer for the source.
func data(offset int64, epoch int32, pid int64, pepoch int16, seq int32, txn bool, values ...string) []byte {
	h := batch.Header{BaseOffset: offset, PartitionLeaderEpoch: epoch, Timestamp: time.Now().UnixMilli(), ProducerID: pid, ProducerEpoch: pepoch, BaseSequence: seq}
	if txn {
		h.Attributes = batch.AttrTransactional
	}
	var kvs []batch.KV
	for _, v := range values {
		kvs = append(kvs, batch.KV{Value: []byte(v)})
	}
	return batch.Build(nil, h, kvs...)
}

func marker(offset int64, epoch int32, pid int64, commit bool) []byte {
	return batch.BuildEndTxn(nil, batch.Header{BaseOffset: offset, PartitionLeaderEpoch: epoch, Timestamp: time.Now().UnixMilli(), ProducerID: pid}, commit, 0)
}

// lastStable is partition 0's last stable offset.
func (w *world) lastStable(topic string) int64 {
	w.t.Helper()
	ends, err := kadm.NewClient(w.cl).ListCommittedOffsets(w.ctx, topic)
	if err != nil {
		w.t.Fatal(err)
	}
	o, _ := ends.Lookup(topic, 0)
	return o.Offset
}
