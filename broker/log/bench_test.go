package log

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"stet/internal/clock"
	"stet/zerocopy/batch"
)

// Figures count as ratios to something measured in the same run; every benchmark here that has
// a limit in the issue or in PERFORMANCE reports the ratio as a metric of its own.

func benchManager(b *testing.B, dir string, cfg Config) *Manager {
	b.Helper()
	m, err := OpenManager(ManagerOptions{Dirs: []string{dir}, NodeID: 1, Clock: clock.System}, func(string) Config { return cfg })
	if err != nil {
		b.Fatal(err)
	}
	return m
}

// BenchmarkFollowerAppendRatio appends batches of 16 KiB in turn with the same bytes checked
// and written bare. Goal: at most 1.2.
func BenchmarkFollowerAppendRatio(b *testing.B) {
	dir := b.TempDir()
	m := benchManager(b, dir, DefaultConfig())
	l, err := m.Create("t", 0, testID, 7, DefaultConfig())
	if err != nil {
		b.Fatal(err)
	}
	raw, err := os.Create(filepath.Join(dir, "raw"))
	if err != nil {
		b.Fatal(err)
	}
	defer raw.Close()
	h := hdr()
	one := batch.Batch(batch.Build(nil, h, batch.KV{Value: make([]byte, 16<<10-80)}))
	const window = 4096 // batches: 64 MiB of page cache each, used again
	var ours, bare time.Duration
	b.SetBytes(int64(len(one)))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%window == 0 {
			if err := l.TruncateFullyAndStartAt(0); err != nil {
				b.Fatal(err)
			}
			if err := raw.Truncate(0); err != nil {
				b.Fatal(err)
			}
		}
		one.SetBaseOffset(int64(i % window))
		t0 := time.Now()
		if err := one.CheckCRC(); err != nil {
			b.Fatal(err)
		}
		if _, err := l.AppendAsFollower(one); err != nil {
			b.Fatal(err)
		}
		t1 := time.Now()
		if err := one.CheckCRC(); err != nil {
			b.Fatal(err)
		}
		if _, err := raw.WriteAt(one, int64(i%window)*int64(len(one))); err != nil {
			b.Fatal(err)
		}
		ours += t1.Sub(t0)
		bare += time.Since(t1)
	}
	b.ReportMetric(float64(ours)/float64(bare), "x-bare-write")
	if err := m.Close(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkCompaction compacts 64 MiB of records of which a tenth is left, and compares with
// reading and checking the same bytes.
func BenchmarkCompaction(b *testing.B) {
	cfg := DefaultConfig()
	cfg.CleanupPolicy, cfg.SegmentBytes, cfg.MinCleanableRatio = "compact", 16<<20, 0
	rnd := rand.New(rand.NewPCG(1, 2))
	value := make([]byte, 1000)
	const size, keys = 64 << 20, 6000
	var work, bare time.Duration
	b.SetBytes(size)
	for b.Loop() {
		b.StopTimer()
		m := benchManager(b, b.TempDir(), cfg)
		l, err := m.Create("t", 0, testID, 7, cfg)
		if err != nil {
			b.Fatal(err)
		}
		for l.Size() < size {
			kvs := make([]batch.KV, 16)
			for i := range kvs {
				kvs[i] = batch.KV{Key: fmt.Appendf(nil, "key-%d", rnd.IntN(keys)), Value: value}
			}
			if _, err := l.AppendAsLeader(batch.Build(nil, hdr(), kvs...), 0, OriginCoordinator); err != nil {
				b.Fatal(err)
			}
		}
		l.SetHighWatermark(l.LogEndOffset())
		roll(b, l)
		t0 := time.Now()
		for _, s := range l.segs {
			w := newWalker(s.file, 0, s.size)
			for {
				p, err := w.whole()
				if err != nil {
					break
				}
				if err := p.CheckCRC(); err != nil {
					b.Fatal(err)
				}
				w.pos += int64(len(p))
			}
			w.close()
		}
		bare += time.Since(t0)
		b.StartTimer()
		t1 := time.Now()
		c, err := l.cleanable(l.nowMs())
		if err == nil {
			_, err = l.compact(context.Background(), c, m.o.Cleaner.forRound(m.clean.io))
		}
		if err != nil {
			b.Fatal(err)
		}
		work += time.Since(t1)
		b.StopTimer()
		if err := m.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(work)/float64(bare), "x-read+crc")
}

// BenchmarkFirstRead finds, in reads of 1 MiB, what a log of 256 MiB holds that was just opened, for the first time (every byte is
// checked) and the second time (nothing is). The bytes themselves are not read a second time: that is sendfile's.
func BenchmarkFirstRead(b *testing.B) {
	dir := b.TempDir()
	cfg := DefaultConfig()
	m := benchManager(b, dir, cfg)
	l, err := m.Create("t", 0, testID, 7, cfg)
	if err != nil {
		b.Fatal(err)
	}
	data := batch.Build(nil, hdr(), batch.KV{Value: make([]byte, 16<<10-80)})
	for l.Size() < 256<<20 {
		if _, err := l.AppendAsLeader(append([]byte(nil), data...), 0, OriginCoordinator); err != nil {
			b.Fatal(err)
		}
	}
	end := l.LogEndOffset()
	pass := func() time.Duration {
		t0 := time.Now()
		for o := int64(0); o < end; {
			s, err := l.Read(o, 1<<20, noOffset, true)
			if err != nil || s.Len() == 0 {
				b.Fatal(s.Len(), err)
			}
			o += int64(s.Len() / len(data))
			s.Release()
		}
		return time.Since(t0)
	}
	var first, second time.Duration
	b.SetBytes(256 << 20)
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		if err := m.Close(); err != nil {
			b.Fatal(err)
		}
		m = benchManager(b, dir, cfg)
		l = m.Get("t", 0)
		b.StartTimer()
		first += pass()
		second += pass()
	}
	b.ReportMetric(first.Seconds()/float64(b.N)*4, "s/GiB-first")
	b.ReportMetric(second.Seconds()/float64(b.N)*4, "s/GiB-second")
	if err := m.Close(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkIndexLookup finds offsets in indexes of a thousand and of a million entries: the
// cost grows with the logarithm.
func BenchmarkIndexLookup(b *testing.B) {
	for _, n := range []int{1_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			x := &index{}
			for i := range n {
				x.offsets = append(x.offsets, offsetEntry{int32(10 * i), int32(100 * i)})
			}
			i := int64(0)
			b.ReportAllocs()
			for b.Loop() {
				if x.floor(i%int64(10*n)) < 0 {
					b.Fatal("no position")
				}
				i += 7919
			}
		})
	}
}

// BenchmarkStart opens 10,000 partitions, after a clean stop and after a kill, on a memory file
// system where there is one, so that it is the broker's work that is measured. Goals: below 5 s and 1 GiB.
func BenchmarkStart(b *testing.B) {
	const partitions = 10_000
	parent := b.TempDir()
	if st, err := os.Stat("/dev/shm"); err == nil && st.IsDir() {
		d, err := os.MkdirTemp("/dev/shm", "stet-bench-")
		if err == nil {
			parent = d
			b.Cleanup(func() { _ = os.RemoveAll(d) })
		}
	}
	dir := filepath.Join(parent, "data")
	m := benchManager(b, dir, DefaultConfig())
	data := batch.Build(nil, hdr(), batch.KV{Value: make([]byte, 4<<10)})
	for p := range int32(partitions) {
		l, err := m.Create("t", p, testID, 7, DefaultConfig())
		if err != nil {
			b.Fatal(err)
		}
		for range 4 {
			if _, err := l.AppendAsLeader(append([]byte(nil), data...), 0, OriginCoordinator); err != nil {
				b.Fatal(err)
			}
		}
	}
	if err := m.Close(); err != nil {
		b.Fatal(err)
	}
	for _, clean := range []bool{true, false} {
		name := "clean"
		if !clean {
			name = "unclean"
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				if !clean {
					for _, f := range []string{cleanFile, recoveryPointFile} {
						if err := os.Remove(filepath.Join(dir, f)); err != nil {
							b.Fatal(err)
						}
					}
				}
				b.StartTimer()
				m := benchManager(b, dir, DefaultConfig())
				b.StopTimer()
				var ms runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&ms)
				b.ReportMetric(float64(ms.HeapAlloc)/(1<<20), "heap-MiB")
				b.ReportMetric(float64(len(m.handles.open)), "open-files")
				if len(m.Logs()) != partitions {
					b.Fatalf("%d partitions", len(m.Logs()))
				}
				if err := m.Close(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}
