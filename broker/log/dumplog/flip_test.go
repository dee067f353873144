package dumplog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"stet/broker/log"
	"stet/internal/clock"
	"stet/zerocopy/batch"
)

// wholeDir is a log directory as a clean shutdown leaves it, with a partition of two segments and
// everything that its files can hold.
func wholeDir(t *testing.T) (dir, part string) {
	t.Helper()
	dir = t.TempDir()
	cfg := log.DefaultConfig()
	cfg.SegmentBytes, cfg.IndexIntervalBytes = 700, 100
	m, err := log.OpenManager(log.ManagerOptions{Dirs: []string{dir}, NodeID: 1, Clock: clock.NewManual(time.UnixMilli(ts))}, func(string) log.Config { return cfg })
	if err != nil {
		t.Fatal(err)
	}
	l, err := m.Create("t", 0, [16]byte{1}, 1, cfg)
	if err != nil {
		t.Fatal(err)
	}
	add := func(epoch int32, b []byte, o log.Origin) {
		t.Helper()
		if _, err := l.AppendAsLeader(b, epoch, o); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		at, epoch := int64(ts+10*i), int32(i/2)
		h := batch.Header{Timestamp: at, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}
		add(epoch, batch.Build(nil, h, batch.KV{Key: []byte("k"), Value: []byte("v")}, batch.KV{Value: []byte("w")}), log.OriginClient)
		for id := int64(5); id < 7; id++ {
			x := batch.Header{Timestamp: at + 1, ProducerID: id, ProducerEpoch: int16(i), BaseSequence: 0, Attributes: batch.AttrTransactional}
			add(epoch, batch.Build(nil, x, batch.KV{Value: []byte("in a transaction")}), log.OriginClient)
		}
		for id := int64(5); id < 7; id++ {
			x := batch.Header{Timestamp: at + 2, ProducerID: id, ProducerEpoch: int16(i), BaseSequence: -1, Attributes: batch.AttrTransactional}
			add(epoch, batch.BuildEndTxn(nil, x, id == 5 && i%2 == 0, 2), log.OriginCoordinator)
		}
	}
	open := batch.Header{Timestamp: ts + 99, ProducerID: 9, ProducerEpoch: 1, Attributes: batch.AttrTransactional}
	add(1, batch.Build(nil, open, batch.KV{Value: []byte("open")}, batch.KV{Value: []byte("open")}), log.OriginClient)
	l.SetHighWatermark(l.LogEndOffset())
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, filepath.Join(dir, "t-0")
}

func checkDir(dir string) (findings string, err error) {
	var errs bytes.Buffer
	err = Run(io.Discard, &errs, []string{dir}, Options{VerifyIndexOnly: true})
	return errs.String(), err
}

// TestEveryFlippedBitIsFound flips every byte, and of small files every bit, of every file of a log directory: dump-log names the file
// (or the other file that contradicts it) and the place.
func TestEveryFlippedBitIsFound(t *testing.T) {
	dir, part := wholeDir(t)
	if errs, err := checkDir(dir); err != nil || errs != "" {
		t.Fatalf("the untouched directory: %v\n%s", err, errs)
	}
	kinds := map[string]int{}
	for _, d := range []string{dir, part} {
		es, err := os.ReadDir(d)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range es {
			if !e.IsDir() && known(e.Name()) {
				kinds[filepath.Ext(e.Name())] += flipAll(t, dir, filepath.Join(d, e.Name()))
			}
		}
	}
	for _, k := range []string{".log", ".index", ".timeindex", ".txnindex", ".snapshot", ""} {
		if kinds[k] == 0 {
			t.Errorf("no bits of %q", k)
		}
	}
	t.Logf("bits flipped, by kind of file: %v", kinds)
}

// flipAll flips each bit of a file in turn and returns how many that were.
func flipAll(t *testing.T, dir, name string) int {
	t.Helper()
	good, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	// In place: to replace a file waits for the disk each time.
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	put := func(b byte, at int) {
		t.Helper()
		if _, err := f.WriteAt([]byte{b}, int64(at)); err != nil {
			t.Fatal(err)
		}
	}
	n, all := 0, len(good)
	switch filepath.Ext(name) { // the larger ones: all bits of the first batch or entry, then one of each byte
	case ".log":
		all = int(batch.SizeOf(good))
	case ".snapshot":
		all = snapshotHead + snapshotEntry
	}
	for i := range good {
		for bit := range 8 {
			bad := bytes.Clone(good)
			bad[i] ^= 1 << bit
			if undetectable(name, bad, 20) || (i >= all && bit != i%8) {
				continue
			}
			n++
			put(bad[i], i)
			errs, err := checkDir(dir)
			put(good[i], i)
			if !errors.Is(err, ErrBad) {
				t.Errorf("%s byte %d (%#x), bit %d: not found: %v", name, i, good[i], bit, err)
				continue
			}
			located(t, name, good, i, bit, errs)
		}
	}
	return n
}

// located: a finding names the file with the place of the byte.
func located(t *testing.T, name string, good []byte, i, bit int, errs string) {
	t.Helper()
	var want []string
	switch ext := filepath.Ext(name); ext {
	case ".log":
		pos := 0
		for pos+int(batch.SizeOf(good[pos:])) <= i {
			pos += int(batch.SizeOf(good[pos:]))
		}
		// The leader epoch and the base offset are no part of the CRC: the epoch checkpoint and the
		// following batch contradict them, and name the batch, too.
		want = []string{
			fmt.Sprintf("%s is bad at position %d,", name, pos), fmt.Sprintf("%s is bad at position %d:", name, pos), fmt.Sprintf("(position %d of %s)", pos, filepath.Base(name)),
			fmt.Sprintf("%s is bad at position %d,", name, pos+int(batch.SizeOf(good[pos:]))),
		}
	case ".index":
		want = []string{fmt.Sprintf("%s is bad at position %d, entry %d:", name, i/offsetEntry*offsetEntry, i/offsetEntry)}
	case ".timeindex":
		want = []string{fmt.Sprintf("%s is bad at position %d, entry %d:", name, i/timeEntry*timeEntry, i/timeEntry)}
	case ".txnindex":
		want = []string{fmt.Sprintf("%s is bad at position %d, entry %d:", name, i/txnEntry*txnEntry, i/txnEntry), fmt.Sprintf("%s is bad: transaction index entry %d", name, i/txnEntry)}
	case ".snapshot":
		if e := i - snapshotHead; e >= 0 {
			e /= snapshotEntry
			want = []string{fmt.Sprintf("%s is bad at position %d, entry %d:", name, snapshotHead+e*snapshotEntry, e)}
		} else {
			want = []string{name + " is bad: producer snapshot "}
		}
	default:
		want = []string{name + " is bad"}
	}
	for _, w := range want {
		if strings.Contains(errs, w) {
			return
		}
	}
	t.Errorf("%s byte %d bit %d: lacks one of %q:\n%s", name, i, bit, want, errs)
}

// undetectable are bits that nothing else in the directory contradicts. Only this is left: a high watermark
// that becomes another one below the log end. It is true of a partition whose followers lag, and what the
// replication of a topic is does not stand in the directory.
func undetectable(name string, bad []byte, end int64) bool {
	if filepath.Base(name) != highWatermarks {
		return false
	}
	rows, err := log.DecodeCheckpoint(bad)
	return err == nil && len(rows) == 1 && rows[0].Topic == "t" && rows[0].Partition == 0 && rows[0].Offset < end
}
