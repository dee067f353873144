package log

import (
	"testing"

	"stet/internal/invariant"
	"stet/internal/vfs"
	"stet/zerocopy/batch"
)

// sinkFS makes files that count bytes and keep none, so that the file system does not
// allocate in the tests below. Reads are not expected.
type sinkFile struct {
	vfs.File
	writes int
	bytes  int64
}

func (f *sinkFile) WriteAt(p []byte, off int64) (int, error) {
	f.writes++
	f.bytes += int64(len(p))
	return len(p), nil
}

// skipWhenChecked skips where the race detector or invariants make allocations of their own.
func skipWhenChecked(t *testing.T) {
	if invariant.Enabled {
		t.Skip("allocations are counted without -race and invariants")
	}
}

// hotLog is a log whose active segment writes to a sinkFile.
func hotLog(t testing.TB) (*env, *Log, *sinkFile) {
	e := newEnv(t)
	l := e.create()
	e.follow(l, at(0, 0, 1)) // the epoch is known
	sink := &sinkFile{File: l.active().file.f}
	l.active().file.f = sink
	return e, l, sink
}

// TestFollowerAppendCounts: goal G10. One positional write for all batches of an append, no
// allocation per batch, not one byte changed.
func TestFollowerAppendCounts(t *testing.T) {
	skipWhenChecked(t)
	_, l, sink := hotLog(t)
	const batches, runs = 64, 200
	var buf []byte
	for i := range batches {
		buf = append(buf, at(int64(i*3), 0, 3)...)
	}
	var starts []int
	for at := 0; at < len(buf); at += int(batch.SizeOf(buf[at:])) {
		starts = append(starts, at)
	}
	next := l.LogEndOffset()
	run := func() {
		for _, s := range starts {
			b := batch.Batch(buf[s:])
			b.SetBaseOffset(next)
			next = b.NextOffset()
		}
		if _, err := l.AppendAsFollower(buf); err != nil {
			t.Fatal(err)
		}
		l.SetHighWatermark(next)
	}
	for range 2000 { // let the index arrays grow
		run()
	}
	sink.writes, sink.bytes = 0, 0
	allocs := testing.AllocsPerRun(runs, run)
	if allocs != 0 {
		t.Errorf("%v allocations per append of %d batches", allocs, batches)
	}
	if sink.writes != runs+1 || sink.bytes != int64(runs+1)*int64(len(buf)) {
		t.Errorf("%d writes of %d bytes for %d appends of %d", sink.writes, sink.bytes, runs+1, len(buf))
	}
}

func TestLeaderAppendAllocations(t *testing.T) {
	skipWhenChecked(t)
	_, l, _ := hotLog(t)
	tmpl := idem(7, 0, 0, 10)
	b := batch.Batch(append([]byte(nil), tmpl...))
	seq := int32(0)
	run := func() {
		copy(b, tmpl)
		be.PutUint32(b[53:], uint32(seq))
		sign(b)
		seq += 10
		if _, err := l.AppendAsLeader(b, 0, OriginClient); err != nil {
			t.Fatal(err)
		}
	}
	for range 3000 {
		run()
	}
	if allocs := testing.AllocsPerRun(500, run); allocs != 0 {
		t.Errorf("%v allocations per leader append", allocs)
	}
}

func TestReadAllocations(t *testing.T) {
	skipWhenChecked(t)
	e := newEnv(t)
	l := e.create()
	for i := range 200 {
		e.follow(l, at(int64(i*10), 0, 10))
	}
	offset := int64(0)
	allocs := testing.AllocsPerRun(500, func() {
		s, err := l.Read(offset, 4096, noOffset, true)
		if err != nil || s.Len() == 0 {
			t.Fatal(s.Len(), err)
		}
		s.Release()
		offset = (offset + 7) % 2000
	})
	if allocs != 0 {
		t.Errorf("%v allocations per read", allocs)
	}
}

func BenchmarkAppendAsFollower(b *testing.B) {
	for _, size := range []int{1, 16} {
		b.Run(map[int]string{1: "1KiB", 16: "16KiB"}[size], func(b *testing.B) {
			_, l, _ := hotLog(b)
			var buf []byte
			h := hdr()
			for range 64 / size {
				buf = batch.Build(buf, h, batch.KV{Value: make([]byte, size<<10)})
			}
			next := l.LogEndOffset()
			b.SetBytes(int64(len(buf)))
			b.ReportAllocs()
			for b.Loop() {
				for at := 0; at < len(buf); at += int(batch.SizeOf(buf[at:])) {
					x := batch.Batch(buf[at:])
					x.SetBaseOffset(next)
					next = x.NextOffset()
				}
				if l.active().size > 1<<29 {
					l.active().size = 0 // stay in one segment
					l.active().idx = &index{}
				}
				if _, err := l.AppendAsFollower(buf); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
