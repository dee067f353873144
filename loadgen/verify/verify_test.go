package verify_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"stet/loadgen/verify"
	"stet/zerocopy/batch"
)

// segment is three batches of two records each, from an offset on.
func segment(base int64) []byte {
	var out []byte
	for i := range int64(3) {
		out = batch.Build(out, batch.Header{BaseOffset: base + 2*i, PartitionLeaderEpoch: 1, Timestamp: 5, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1},
			batch.KV{Value: []byte("a")}, batch.KV{Value: []byte("b")})
	}
	return out
}

func write(t *testing.T, dir, partition string, segments map[int64][]byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, partition), 0o755); err != nil {
		t.Fatal(err)
	}
	for base, b := range segments {
		if err := os.WriteFile(filepath.Join(dir, partition, fmt.Sprintf("%020d.log", base)), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func all(string) bool { return true }

func TestSegmentsMayRollElsewhere(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	s := segment(0)
	n := len(s) / 3
	write(t, a, "orders-3", map[int64][]byte{0: s})
	write(t, b, "orders-3", map[int64][]byte{0: s[:n], 2: s[n:]})
	r, err := verify.Dirs(a, b, all)
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("equal: 1 partitions, 3 batches, %d bytes", len(s)); r.Conclude() != want || !r.Equal {
		t.Errorf("%s, want %s", r.Conclude(), want)
	}
}

// TestOneFlippedByte: every byte of every batch, found with its offset and place.
func TestOneFlippedByte(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	s := segment(10)
	n := len(s) / 3
	write(t, a, "orders-3", map[int64][]byte{10: s})
	for i := range s {
		at := i % n
		if at >= 8 && at < 12 || at == 16 || i < 8 || at >= 23 && at < 27 {
			continue // length, magic, last offset delta and the first offset: another error, tested below
		}
		if at < 8 {
			continue // another base offset
		}
		bad := append([]byte(nil), s...)
		bad[i] ^= 0x40
		write(t, b, "orders-3", map[int64][]byte{10: bad})
		r, err := verify.Dirs(a, b, all)
		if err != nil {
			t.Fatalf("byte %d: %v", i, err)
		}
		want := fmt.Sprintf("different: orders-3 offset %d byte %d of the batch: source 0x%02x, destination 0x%02x", 10+2*(i/n), at, s[i], bad[i])
		if r.Equal || r.Conclude() != want {
			t.Fatalf("byte %d: %s, want %s", i, r.Conclude(), want)
		}
	}
}

func TestOnlyOneSide(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	s := segment(0)
	n := len(s) / 3
	write(t, a, "t-0", map[int64][]byte{0: s})
	write(t, b, "t-0", map[int64][]byte{2: s[n : 2*n]})
	r, err := verify.Dirs(a, b, all)
	if err != nil {
		t.Fatal(err)
	}
	if !r.Equal || r.Partitions[0].Batches != 1 {
		t.Errorf("the common range is equal: %s", r.Conclude())
	}
	if notes := strings.Join(r.Partitions[0].Notes, "; "); notes != "only the source has 0 to 1 (older); only the source has 4 to 5 (newer)" {
		t.Errorf("notes: %s", notes)
	}
	write(t, b, "u-0", map[int64][]byte{0: s})
	if r, err = verify.Dirs(a, b, all); err != nil || r.Equal || !strings.Contains(r.Conclude(), "only the destination has this partition") {
		t.Errorf("a partition of one side only: %v %v", r, err)
	}
}

func TestMissingBatch(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	s := segment(0)
	n := len(s) / 3
	write(t, a, "t-0", map[int64][]byte{0: s})
	write(t, b, "t-0", map[int64][]byte{0: append(append([]byte(nil), s[:n]...), s[2*n:]...)})
	r, err := verify.Dirs(a, b, all)
	if err != nil {
		t.Fatal(err)
	}
	if r.Equal || !strings.HasPrefix(r.Conclude(), "different: t-0 offset 2") {
		t.Errorf("a missing batch: %s", r.Conclude())
	}
}

func TestNothingToCompare(t *testing.T) {
	if _, err := verify.Dirs(t.TempDir(), t.TempDir(), all); err == nil {
		t.Error("two empty folders are equal")
	}
	a := t.TempDir()
	write(t, a, "t-0", map[int64][]byte{0: segment(0)[:100]})
	if _, err := verify.Dirs(a, a, all); err == nil {
		t.Error("a torn segment was compared")
	}
	if _, err := verify.Dirs("/no/such/folder", a, all); err == nil || !strings.Contains(err.Error(), "/no/such/folder") {
		t.Errorf("a folder that is not there: %v", err)
	}
}
