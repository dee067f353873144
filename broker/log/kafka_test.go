package log

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"stet/internal/vfs"
)

const fixture = "testdata/kafka-4.3.1"

// kafkaDir copies the directory that Kafka wrote into memory. As after a kill -9 the marker
// is missing and the index files are preallocated.
func kafkaDir(t *testing.T, clean bool) *vfs.Mem {
	t.Helper()
	mem := vfs.NewMem()
	err := filepath.WalkDir(fixture, func(p string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(fixture, p)
		if err != nil {
			return err
		}
		to := filepath.Join("/data", rel)
		if d.IsDir() {
			return mem.MkdirAll(to, 0o755)
		}
		b, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		if !clean {
			switch {
			case d.Name() == cleanFile || d.Name() == recoveryPointFile || strings.HasSuffix(p, snapshotSuffix):
				return nil
			case strings.HasSuffix(p, indexSuffix) && !strings.HasSuffix(p, txnIndexSuffix):
				b = append(b, make([]byte, 10<<20/8*8-len(b))...)
			case strings.HasSuffix(p, timeIndexSuffix):
				b = append(b, make([]byte, 10<<20/12*12-len(b))...)
			}
		}
		rewrite(t, mem, to, b)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return mem
}

// TestOpensKafkasDirectory: what Kafka wrote is taken over whole, after its clean shutdown
// without a scan, and after its crash with one.
func TestOpensKafkasDirectory(t *testing.T) {
	for _, clean := range []bool{true, false} {
		e := newEnv(t)
		e.cfg.SegmentBytes = 1 << 20
		e.mem = kafkaDir(t, clean)
		e.fs = e.mem
		// The producers of the fixture are of the day it was made.
		e.clock.Advance(1796005735411e6 - 1_700_000_000_000e6)
		e.open()
		if len(e.m.Logs()) != 3 || len(e.m.ClusterID()) != 22 {
			t.Fatalf("%d logs, cluster %s", len(e.m.Logs()), e.m.ClusterID())
		}
		for _, want := range []struct {
			topic          string
			end            int64
			producers, txn int
			aborted        int
		}{{"codecs", 120, 5, 0, 0}, {"plain2", 4, 0, 0, 0}, {"txns", 71, 3, 1, 5}} {
			l := e.m.Get(want.topic, 0)
			if l == nil || l.Err() != nil {
				t.Fatalf("%s: %v", want.topic, l)
			}
			data, err := os.ReadFile(filepath.Join(fixture, want.topic+"-0", "00000000000000000000.log"))
			if err != nil {
				t.Fatal(err)
			}
			if got := readAll(t, l, 0, noOffset); !bytes.Equal(got, data) || l.LogEndOffset() != want.end {
				t.Fatalf("%s: %d bytes of %d, end %d", want.topic, len(got), len(data), l.LogEndOffset())
			}
			if clean && (l.Recovered().ScannedBytes != 0 || l.HighWatermark() != want.end) {
				t.Errorf("%s: scanned %d bytes, high watermark %d", want.topic, l.Recovered().ScannedBytes, l.HighWatermark())
			}
			l.SetHighWatermark(want.end)
			if es := l.EpochEntries(); !slices.Equal(es, []EpochEntry{{0, 0}}) {
				t.Errorf("%s: epochs %v", want.topic, es)
			}
			if l.TopicID() == ([16]byte{}) || l.Incarnation() != noIncarnation {
				t.Errorf("%s: id %x, incarnation %d", want.topic, l.TopicID(), l.Incarnation())
			}
			if n := len(l.ActiveProducers()); n != want.producers {
				t.Errorf("%s: %d producers", want.topic, n)
			}
			if n := len(l.AbortedTxns(0, want.end)); n != want.aborted {
				t.Errorf("%s: %d aborted transactions", want.topic, n)
			}
			open := l.OpenTransactions()
			if len(open) != want.txn || (want.txn == 0) != (l.LastStableOffset() == want.end) {
				t.Errorf("%s: open %v, last stable %d", want.topic, open, l.LastStableOffset())
			}
			if _, ts, _, err := l.MaxTimestamp(); err != nil || ts < 1796005000000 {
				t.Errorf("%s: largest timestamp %d, %v", want.topic, ts, err)
			}
		}
		// It goes on: the open transaction is aborted, and the id of its producer is free.
		l := e.m.Get("txns", 0)
		o := l.OpenTransactions()[0]
		e.lead(l, endTxn(o.ProducerID, o.ProducerEpoch, false, o.CoordinatorEpoch), 7, OriginInternal)
		e.lead(l, pidReset(), 7, OriginInternal)
		l.SetHighWatermark(l.LogEndOffset())
		if l.LastStableOffset() != 73 || len(l.ActiveProducers()) != 0 {
			t.Errorf("last stable %d, producers %v", l.LastStableOffset(), l.ActiveProducers())
		}
		if err := e.m.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWritesWhatKafkaWrote appends Kafka's bytes as a follower does: data, indexes, epochs
// come out byte for byte the same, the snapshot with the same entries.
func TestWritesWhatKafkaWrote(t *testing.T) {
	for _, topic := range []string{"codecs", "plain2", "txns"} {
		e := newEnv(t)
		e.clock.Advance(1796005735411e6 - 1_700_000_000_000e6)
		l := e.create()
		dir := filepath.Join(fixture, topic+"-0")
		data, err := os.ReadFile(filepath.Join(dir, "00000000000000000000.log"))
		if err != nil {
			t.Fatal(err)
		}
		e.follow(l, data)
		if err := e.m.Close(); err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range entries {
			if x.Name() == metadataFile {
				continue
			}
			want, err := os.ReadFile(filepath.Join(dir, x.Name()))
			if err != nil {
				t.Fatal(err)
			}
			got, err := readFile(e.fs, filepath.Join("/data/t-0", x.Name()))
			if err != nil {
				t.Errorf("%s: %v", topic, err)
				continue
			}
			if strings.HasSuffix(x.Name(), snapshotSuffix) {
				compareSnapshots(t, topic, got, want)
			} else if !bytes.Equal(got, want) {
				t.Errorf("%s: %s: %x, Kafka wrote %x", topic, x.Name(), got, want)
			}
		}
	}
}

// compareSnapshots compares by producer: Kafka's order is that of a hash map.
func compareSnapshots(t *testing.T, topic string, got, want []byte) {
	t.Helper()
	g, err := DecodeSnapshot(got)
	if err != nil {
		t.Fatal(err)
	}
	w, err := DecodeSnapshot(want)
	if err != nil {
		t.Fatal(err)
	}
	byID := func(a, b SnapshotEntry) int { return int(a.ProducerID - b.ProducerID) }
	slices.SortFunc(g, byID)
	slices.SortFunc(w, byID)
	if !slices.Equal(g, w) {
		t.Errorf("%s: snapshot %+v, Kafka wrote %+v", topic, g, w)
	}
}
