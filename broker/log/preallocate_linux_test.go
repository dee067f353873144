package log

import (
	"os"
	"syscall"
	"testing"

	"stet/internal/clock"
)

// TestPreallocate: a new segment has its blocks at once and no other size than its bytes; a
// rolled one gives the rest back.
func TestPreallocate(t *testing.T) {
	dir := t.TempDir()
	cfg := DefaultConfig()
	cfg.Preallocate, cfg.SegmentBytes = true, 4<<20
	m, err := OpenManager(ManagerOptions{Dirs: []string{dir}, NodeID: 1, Clock: clock.System}, func(string) Config { return cfg })
	if err != nil {
		t.Fatal(err)
	}
	l, err := m.Create("t", 0, testID, 7, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.AppendAsLeader(plain(3, "a"), 0, OriginClient); err != nil {
		t.Fatal(err)
	}
	roll(t, l)
	blocks := func(base int64) (size, allocated int64) {
		st, err := os.Stat(segmentPath(l.dir, base) + logSuffix)
		if err != nil {
			t.Fatal(err)
		}
		return st.Size(), st.Sys().(*syscall.Stat_t).Blocks * 512
	}
	size, allocated := blocks(3)
	if allocated < 4<<20 {
		if allocated == 0 {
			t.Skip("the file system does not preallocate")
		}
		t.Errorf("the new segment has %d bytes of blocks", allocated)
	}
	if size != 0 {
		t.Errorf("the new segment has size %d", size)
	}
	if size, allocated = blocks(0); size != l.segs[0].size || allocated > 1<<20 {
		t.Errorf("the rolled segment has size %d, %d bytes of blocks", size, allocated)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestSegmentJitter: segments are rolled up to segment.jitter.ms earlier, not all alike.
func TestSegmentJitter(t *testing.T) {
	cfg := DefaultConfig()
	cfg.SegmentMs, cfg.SegmentJitterMs = 1000, 5000
	seen := map[int64]bool{}
	for range 100 {
		j := cfg.jitter()
		if j < 0 || j >= 1000 {
			t.Fatalf("jitter %d", j)
		}
		seen[j] = true
	}
	if len(seen) < 10 {
		t.Errorf("only %d values", len(seen))
	}
	cfg.CleanupPolicy, cfg.MaxCompactionLagMs = "compact", 300
	if cfg.rollMs() != 300 {
		t.Errorf("roll after %d ms", cfg.rollMs())
	}
}
