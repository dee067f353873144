package main_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"stet/broker/log"
	"stet/broker/log/records"
	"stet/internal/testkit"
	"stet/zerocopy/batch"
)

// TestKafkaCompactsTheSame gives the same uncompacted partition to the cleaner of real Apache
// Kafka and to ours: every record that is left is the same, and so is what a read-committed
// client sees. Then Kafka serves the directory that Stet compacted, after a clean stop and after
// one that makes it scan everything.
func TestKafkaCompactsTheSame(t *testing.T) {
	t.Parallel()
	for _, version := range []string{testkit.Kafka43, testkit.Kafka39} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			compactsTheSame(t, version)
		})
	}
}

func compactsTheSame(t *testing.T, version string) {
	ctx := contextFor(t, 4*time.Minute)
	k := testkit.StartKafka(t, version, 1, "log.cleaner.backoff.ms=100", "log.cleaner.min.cleanable.ratio=0.01")
	const topic, part = "compact", "compact-0"
	createTopic(ctx, t, k.Bootstrap, topic, 1, "cleanup.policy", "compact", "min.compaction.lag.ms", "86400000", "segment.bytes", "1048576", "max.compaction.lag.ms", "864000000")
	fillCompacted(ctx, t, k.Bootstrap, topic)
	if err := k.Kill(1); err != nil { // so that either side opens what an unclean stop leaves
		t.Fatal(err)
	}
	ours := filepath.Join(t.TempDir(), "data")
	if err := os.CopyFS(ours, os.DirFS(k.DataDir(1))); err != nil {
		t.Fatal(err)
	}
	before := partitionRecords(t, filepath.Join(ours, part))

	if err := k.StartNode(1); err != nil {
		t.Fatal(err)
	}
	zero := "0"
	if _, err := kadm.NewClient(testkit.Client(t, k.Bootstrap)).AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "min.compaction.lag.ms", Value: &zero}}, topic); err != nil {
		t.Fatal(err)
	}
	awaitCleaner(ctx, t, k.DataDir(1), topic)
	wantRead := readAll(ctx, t, k.Bootstrap, topic, true)
	if err := k.StopNode(1); err != nil {
		t.Fatal(err)
	}
	want := partitionRecords(t, filepath.Join(k.DataDir(1), part))

	compactHere(t, ours, topic)
	got := partitionRecords(t, filepath.Join(ours, part))
	if len(got) >= len(before) || len(got) < 50 {
		t.Fatalf("%d records of %d are left", len(got), len(before))
	}
	if !reflect.DeepEqual(got, want) {
		for i := range min(len(got), len(want)) {
			if got[i] != want[i] {
				t.Fatalf("record %d of %d and %d: %s, Kafka has %s", i, len(got), len(want), got[i], want[i])
			}
		}
		t.Fatalf("%d records, Kafka has %d", len(got), len(want))
	}
	t.Logf("%d records, %d after compaction by either", len(before), len(got))

	for _, scan := range []bool{false, true} {
		kafkaPart := filepath.Join(k.DataDir(1), part)
		if err := os.RemoveAll(kafkaPart); err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(kafkaPart, os.DirFS(filepath.Join(ours, part))); err != nil {
			t.Fatal(err)
		}
		if scan {
			for _, f := range []string{".kafka_cleanshutdown", "recovery-point-offset-checkpoint"} {
				if err := os.Remove(filepath.Join(k.DataDir(1), f)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := k.StartNode(1); err != nil {
			t.Fatal(err)
		}
		if read := readAll(ctx, t, k.Bootstrap, topic, true); !reflect.DeepEqual(read, wantRead) {
			t.Errorf("scan %v: Kafka serves other records from Stet's directory: %d, want %d", scan, len(read[0]), len(wantRead[0]))
		}
		if err := k.StopNode(1); err != nil {
			t.Fatal(err)
		}
	}
	var indexes []string
	for _, ext := range []string{"*.index", "*.timeindex"} {
		m, err := filepath.Glob(filepath.Join(ours, part, ext))
		if err != nil {
			t.Fatal(err)
		}
		indexes = append(indexes, m...)
	}
	out := testkit.Tool(t, "dump-log", "--index-sanity-check", "--files", strings.Join(indexes, ","))
	if strings.Count(out, "passed sanity check")+strings.Count(out, "is empty") != len(indexes) {
		t.Errorf("Kafka's dump-log of %d indexes:\n%s", len(indexes), out)
	}
}

// fillCompacted writes several segments of every codec: overwritten keys, tombstones, committed and aborted transactions.
func fillCompacted(ctx context.Context, t *testing.T, addr, topic string) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(7, 8))
	value := func() []byte {
		b := make([]byte, 600+rnd.IntN(600))
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		return b
	}
	record := func(i int) *kgo.Record {
		r := &kgo.Record{Topic: topic, Key: fmt.Appendf(nil, "k%d", rnd.IntN(80)), Value: value(), Headers: []kgo.RecordHeader{{Key: "h", Value: []byte{byte(i)}}}}
		if i%9 == 0 {
			r.Value = nil
		}
		return r
	}
	for n, codec := range codecs {
		plain := testkit.Client(t, addr, kgo.ProducerBatchCompression(codec), kgo.ProducerLinger(5*time.Millisecond))
		for i := range 700 {
			plain.Produce(ctx, record(i), nil)
		}
		if err := plain.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		txn := testkit.Client(t, addr, kgo.ProducerBatchCompression(codec), kgo.TransactionalID(fmt.Sprint(topic, n)))
		for _, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit} {
			if err := txn.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			for i := range 60 {
				txn.Produce(ctx, record(i+1), nil)
			}
			if err := txn.Flush(ctx); err != nil {
				t.Fatal(err)
			}
			if err := txn.EndTransaction(ctx, end); err != nil {
				t.Fatal(err)
			}
		}
	}
	last := testkit.Client(t, addr)
	if err := last.ProduceSync(ctx, &kgo.Record{Topic: topic, Key: []byte("last"), Value: []byte("in the active segment")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// awaitCleaner waits until the cleaner of a topic with one partition, Kafka's or Stet's, has nothing left to do: what is dirty before the active
// segment is at most a hundredth, the topic's min.cleanable.dirty.ratio.
func awaitCleaner(ctx context.Context, t *testing.T, dir, topic string) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		p, _ := os.ReadFile(filepath.Join(dir, "cleaner-offset-checkpoint"))
		for line := range strings.Lines(string(p)) {
			if f := strings.Fields(line); len(f) == 3 && f[0] == topic && f[2] != "0" {
				upTo, err := strconv.ParseInt(f[2], 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				if clean, dirty := cleanAndDirty(t, filepath.Join(dir, topic+"-0"), upTo); clean > 0 && dirty*100 <= clean+dirty {
					return
				}
			}
		}
		select {
		case <-ctx.Done():
			t.Fatal("the cleaner did not finish with the topic")
		case <-tick.C:
		}
	}
}

// cleanAndDirty are the bytes of segments below an offset, and of those from it on without the active one.
func cleanAndDirty(t *testing.T, dir string, upTo int64) (clean, dirty int64) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(logs)
	for i, l := range logs {
		st, err := os.Stat(l)
		if err != nil { // exchanged just now
			return 0, 0
		}
		base, err := strconv.ParseInt(strings.TrimSuffix(filepath.Base(l), ".log"), 10, 64)
		switch {
		case err != nil:
			t.Fatal(err)
		case base < upTo:
			clean += st.Size()
		case i < len(logs)-1:
			dirty += st.Size()
		}
	}
	return clean, dirty
}

// compactHere opens a directory of Kafka's and compacts it until nothing is left to do.
func compactHere(t *testing.T, dir, topic string) {
	t.Helper()
	cfg := log.DefaultConfig()
	cfg.CleanupPolicy, cfg.SegmentBytes, cfg.MinCleanableRatio = "compact", 1<<20, 0.01
	m, err := log.OpenManager(log.ManagerOptions{Dirs: []string{dir}, NodeID: 1}, func(string) log.Config { return cfg })
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range m.Logs() {
		if err := l.Err(); err != nil {
			t.Fatal(err)
		}
		l.SetHighWatermark(l.LogEndOffset())
	}
	for m.CompactOnce(t.Context()) {
	}
	l := m.Get(topic, 0)
	if l.CleanerCheckpoint() <= 0 || l.Err() != nil {
		t.Fatalf("checkpoint %d: %v", l.CleanerCheckpoint(), l.Err())
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
}

// partitionRecords decodes all records of a partition's segments, control records too.
func partitionRecords(t *testing.T, dir string) (out []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(files)
	for _, f := range files {
		p, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for len(p) > 0 {
			b, rest, err := batch.Next(p)
			if err == nil {
				err = b.Check()
			}
			if err != nil {
				t.Fatalf("%s: %v", f, err)
			}
			p = rest
			it := records.New(b, true)
			for it.Next() {
				r := it.Record()
				out = append(out, fmt.Sprintf("%d key %q value %d %x headers %v time %d sequence %d producer %d %d codec %d control %v horizon %v", r.Offset, r.Key, r.ValueSize, r.Value,
					r.Headers, r.Timestamp, r.Sequence, b.ProducerID(), b.ProducerEpoch(), b.Compression(), b.IsControl(), b.HasDeleteHorizon()))
			}
			if err := it.Err(); err != nil {
				t.Fatalf("%s: %v", f, err)
			}
			it.Close()
		}
	}
	return out
}
