package broker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/broker"
	"stet/broker/mirrormsg"
	"stet/internal/testkit"
	"stet/internal/vfs"
	"stet/zerocopy/batch"
)

// writes are the operations that a full disk, or one that became read-only, refuses.
var writes = map[vfs.Op]bool{vfs.OpWrite: true, vfs.OpMkdir: true, vfs.OpRename: true, vfs.OpTruncate: true, vfs.OpSync: true, vfs.OpSyncDir: true, vfs.OpRemove: true}

// TestDirectoryFailsOverTheWire: of two log directories one fails under clients. Its partitions answer
// KAFKA_STORAGE_ERROR, the others go on, DescribeLogDirs tells which directory it is, and after a restart
// with a healthy disk the partitions are back with all that was acknowledged.
func TestDirectoryFailsOverTheWire(t *testing.T) {
	for name, c := range map[string]struct {
		errno syscall.Errno
		hits  func(vfs.Op) bool
	}{
		"EIO":    {syscall.EIO, func(op vfs.Op) bool { return op != vfs.OpCloseFile }},
		"ENOSPC": {syscall.ENOSPC, func(op vfs.Op) bool { return writes[op] }},
		"EROFS":  {syscall.EROFS, func(op vfs.Op) bool { return writes[op] }},
		// The directory is gone: what is open stays usable, until a segment is full.
		"ENOENT": {syscall.ENOENT, func(op vfs.Op) bool {
			return op != vfs.OpWrite && op != vfs.OpRead && op != vfs.OpSync && op != vfs.OpCloseFile
		}},
	} {
		t.Run(name, func(t *testing.T) { directoryFails(t, c.errno, c.hits) })
	}
}

type failingDir struct {
	t      *testing.T
	ctx    context.Context
	dirs   []string
	broken atomic.Bool
	fs     vfs.FS
	b      *broker.Broker
	cl     *kgo.Client
	id     [16]byte
	acked  map[int32]int // records by partition
}

func directoryFails(t *testing.T, errno syscall.Errno, hits func(vfs.Op) bool) {
	root := t.TempDir()
	f := &failingDir{t: t, ctx: testkit.Context(t), dirs: []string{filepath.Join(root, "a"), filepath.Join(root, "b")}, acked: map[int32]int{}}
	f.fs = vfs.Inject(vfs.OS, func(op vfs.Op, path string) error {
		if f.broken.Load() && hits(op) && strings.HasPrefix(path, f.dirs[1]) {
			return errno
		}
		return nil
	})
	f.start()
	size := "1048576"
	r, err := kadm.NewClient(f.cl).CreateTopic(f.ctx, 4, 1, map[string]*string{"segment.bytes": &size}, "t")
	if err != nil {
		t.Fatal(err)
	}
	f.id = r.ID
	for i := range 3 {
		for p := range int32(4) {
			if code := f.produce(p, i*100); code != 0 {
				t.Fatalf("partition %d: %v", p, kerr.ErrorForCode(code))
			}
		}
	}
	at := f.place()
	if len(at[f.dirs[0]]) != 2 || len(at[f.dirs[1]]) != 2 {
		t.Fatalf("placement %v", at)
	}
	good, bad := at[f.dirs[0]], at[f.dirs[1]]

	f.broken.Store(true)
	code := int16(0)
	for i := 0; i < 4 && code == 0; i++ { // up to a segment that is full
		code = f.produce(bad[0], 600_000)
	}
	if code != kerr.KafkaStorageError.Code {
		t.Fatalf("produce to the failing directory: %v", kerr.ErrorForCode(code))
	}
	for _, p := range bad {
		for what, code := range map[string]int16{"produce": f.produce(p, 10), "fetch": f.fetch(p), "list offsets": f.listOffsets(p)} {
			if code != kerr.KafkaStorageError.Code {
				t.Errorf("%s of partition %d in the failed directory: %v", what, p, kerr.ErrorForCode(code))
			}
		}
	}
	for _, p := range good {
		for what, code := range map[string]int16{"produce": f.produce(p, 10), "fetch": f.fetch(p), "list offsets": f.listOffsets(p)} {
			if code != 0 {
				t.Errorf("%s of partition %d in the healthy directory: %v", what, p, kerr.ErrorForCode(code))
			}
		}
	}
	for _, d := range f.describe() {
		if want := map[bool]int16{true: kerr.KafkaStorageError.Code}[d.Dir == f.dirs[1]]; d.ErrorCode != want {
			t.Errorf("DescribeLogDirs: %s: %v", d.Dir, kerr.ErrorForCode(d.ErrorCode))
		}
		if d.ErrorCode != 0 && (len(d.Topics) > 0 || d.TotalBytes != -1) {
			t.Errorf("DescribeLogDirs: the failed directory has %d topics and %d bytes", len(d.Topics), d.TotalBytes)
		}
	}

	f.stop(true)
	f.broken.Store(false)
	f.start()
	for _, p := range append(good, bad...) {
		if code := f.produce(p, 10); code != 0 {
			t.Errorf("partition %d after the restart: %v", p, kerr.ErrorForCode(code))
		}
		f.holdsAll(p)
	}
	for _, d := range f.describe() {
		if d.ErrorCode != 0 {
			t.Errorf("after the restart: %s: %v", d.Dir, kerr.ErrorForCode(d.ErrorCode))
		}
	}
	f.stop(false)
}

func (f *failingDir) start() {
	f.t.Helper()
	cfg, err := broker.LoadConfig("", []string{"listeners=PLAINTEXT://127.0.0.1:0", "http.listener=127.0.0.1:0", "log.dirs=" + strings.Join(f.dirs, ",")})
	if err != nil {
		f.t.Fatal(err)
	}
	cfg.UseLogFS(f.fs)
	if f.b, err = broker.Start(f.ctx, cfg, slog.New(slog.NewTextHandler(io.Discard, nil)), "test"); err != nil {
		f.t.Fatal(err)
	}
	f.cl = testkit.Client(f.t, f.b.Addr())
}

// stop ends the broker; one with a failed disk says that it could not shut down cleanly.
func (f *failingDir) stop(failed bool) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.ctx, 20*time.Second)
	defer cancel()
	if err := f.b.Close(ctx); (err != nil) != failed {
		f.t.Errorf("stop: %v", err)
	}
}

func (f *failingDir) ask(req kmsg.Request) kmsg.Response {
	f.t.Helper()
	resp, err := f.cl.Broker(1).Request(f.ctx, req)
	if err != nil {
		f.t.Fatalf("%T: %v", req, err)
	}
	return resp
}

// produce writes one record and counts it if it was acknowledged.
func (f *failingDir) produce(p int32, size int) int16 {
	f.t.Helper()
	value := fmt.Appendf(nil, "%d-%d %0*d", p, f.acked[p], size, 0)
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Partition = p
	rp.Records = batch.Build(nil, batch.Header{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, Timestamp: time.Now().UnixMilli()}, batch.KV{Value: value})
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic, rt.TopicID, rt.Partitions = "t", f.id, append(rt.Partitions, rp)
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis, req.Topics = -1, 10000, append(req.Topics, rt)
	code := f.ask(req).(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode
	if code == 0 {
		f.acked[p]++
	}
	return code
}

func (f *failingDir) fetch(p int32) int16 {
	f.t.Helper()
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.PartitionMaxBytes, rp.CurrentLeaderEpoch = p, 1<<20, -1
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID, rt.Partitions = "t", f.id, append(rt.Partitions, rp)
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MaxBytes, req.SessionEpoch, req.Topics = 100, 1<<20, -1, append(req.Topics, rt)
	resp := f.ask(req).(*kmsg.FetchResponse)
	if len(resp.Topics) == 0 {
		return resp.ErrorCode
	}
	return resp.Topics[0].Partitions[0].ErrorCode
}

func (f *failingDir) listOffsets(p int32) int16 {
	f.t.Helper()
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Partition, rp.Timestamp, rp.CurrentLeaderEpoch = p, -1, -1
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic, rt.Partitions = "t", append(rt.Partitions, rp)
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID, req.Topics = -1, append(req.Topics, rt)
	return f.ask(req).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0].ErrorCode
}

func (f *failingDir) describe() []kmsg.DescribeLogDirsResponseDir {
	f.t.Helper()
	return f.ask(kmsg.NewPtrDescribeLogDirsRequest()).(*kmsg.DescribeLogDirsResponse).Dirs
}

// place says which of the topic's partitions are in which directory.
func (f *failingDir) place() map[string][]int32 {
	f.t.Helper()
	at := map[string][]int32{}
	for _, d := range f.describe() {
		for _, tp := range d.Topics {
			for _, p := range tp.Partitions {
				if tp.Topic == "t" {
					at[d.Dir] = append(at[d.Dir], p.Partition)
				}
			}
		}
	}
	return at
}

// holdsAll reads a partition: every acknowledged record is there once and in order. One that was written
// without an acknowledgement may be between them.
func (f *failingDir) holdsAll(p int32) {
	f.t.Helper()
	cl := testkit.Client(f.t, f.b.Addr(), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"t": {p: kgo.NewOffset().AtStart()}}))
	next := 0
	for next < f.acked[p] {
		fs := cl.PollFetches(f.ctx)
		if err := fs.Err(); err != nil {
			f.t.Fatal(errors.Join(err, fmt.Errorf("partition %d after %d of %d records", p, next, f.acked[p])))
		}
		for _, r := range fs.Records() {
			if strings.HasPrefix(string(r.Value), fmt.Sprintf("%d-%d ", p, next)) {
				next++
			} else if !strings.HasPrefix(string(r.Value), fmt.Sprintf("%d-%d ", p, next-1)) {
				f.t.Fatalf("partition %d offset %d: %.20q, want record %d", p, r.Offset, r.Value, next)
			}
		}
	}
}

// TestNoDirectoryLeft: with the last directory gone CreateTopics says so, and makes no topic that could not be used.
func TestNoDirectoryLeft(t *testing.T) {
	f := &failingDir{t: t, ctx: testkit.Context(t), dirs: []string{filepath.Join(t.TempDir(), "a")}, acked: map[int32]int{}}
	f.fs = vfs.Inject(vfs.OS, func(op vfs.Op, _ string) error {
		if f.broken.Load() && writes[op] {
			return syscall.ENOSPC
		}
		return nil
	})
	f.start()
	r, err := kadm.NewClient(f.cl).CreateTopic(f.ctx, 1, 1, nil, "t")
	if err != nil {
		t.Fatal(err)
	}
	f.id = r.ID
	f.broken.Store(true)
	if code := f.produce(0, 10); code != kerr.KafkaStorageError.Code {
		t.Fatalf("produce: %v", kerr.ErrorForCode(code))
	}
	if _, err := kadm.NewClient(f.cl).CreateTopic(f.ctx, 1, 1, nil, "new"); !errors.Is(err, kerr.KafkaStorageError) {
		t.Errorf("create: %v", err)
	}
	f.broken.Store(false)
	f.stop(true)
}

// TestMirrorOnAFullDisk: with the directory of a mirror's partitions offline nobody is told that they are MIRRORING, also
// where nothing can be stored any more.
func TestMirrorOnAFullDisk(t *testing.T) {
	var full atomic.Bool
	w := newWorldOn(t, vfs.Inject(vfs.OS, func(op vfs.Op, _ string) error {
		if full.Load() && writes[op] {
			return syscall.ENOSPC
		}
		return nil
	}))
	busy, idle := w.src.CreateTopic("busy", 1), w.src.CreateTopic("idle", 1)
	w.src.Produce(busy, 0, 2, 50)
	w.src.Produce(idle, 0, 2, 50)
	w.create()
	w.startTopics("busy", "idle")
	w.caughtUp()
	full.Store(true)
	w.src.Produce(busy, 0, 2, 50)
	for deadline := time.Now().Add(20 * time.Second); ; <-time.After(10 * time.Millisecond) {
		resp, err := mirrormsg.NewPtrDescribeMirrorsRequest().RequestWith(w.ctx, w.cl)
		if err != nil {
			t.Fatal(err)
		}
		failed := 0
		for _, p := range w.describe() {
			if p.State == "FAILED" && p.ErrorCode == kerr.KafkaStorageError.Code && strings.Contains(kmsgText(p.ErrorMessage), "no space left") && p.DestinationOffset == 2 {
				failed++
			}
		}
		if failed == 2 && resp.ErrorMessage != nil && strings.Contains(*resp.ErrorMessage, "partitions of __mirror_state are offline") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v, message %s", w.describe(), kmsgText(resp.ErrorMessage))
		}
	}
	if m := counters(t, w.b); m[`stet_mirror_partitions{mirror="m",state="FAILED"}`] != 2 || m[`stet_mirror_partitions{mirror="m",state="MIRRORING"}`] != 0 {
		t.Error("/metrics does not say FAILED")
	}
}
