package log

import (
	"bytes"
	"errors"
	"testing"
)

func TestAppendReadRestart(t *testing.T) {
	e := newEnv(t)
	l := e.create()
	var want []byte
	for i := range 10 {
		b := plain(i+1, "v")
		r := e.lead(l, b, 3, OriginClient)
		if r.FirstOffset != int64(i*(i+1)/2) || r.LastOffset != r.FirstOffset+int64(i) || r.Batches != 1 || r.Duplicate {
			t.Fatalf("append %d: %+v", i, r)
		}
		want = append(want, b...) // patched in place
	}
	if got := l.LogEndOffset(); got != 55 {
		t.Fatalf("end %d", got)
	}
	check := func(l *Log) {
		t.Helper()
		if got := readAll(t, l, 0, 55); !bytes.Equal(got, want) {
			t.Fatalf("read %d bytes, want %d", len(got), len(want))
		}
		if e, ok := l.LatestEpoch(); e != 3 || !ok {
			t.Fatalf("epoch %d %v", e, ok)
		}
		if l.LogEndOffset() != 55 {
			t.Fatalf("end %d", l.LogEndOffset())
		}
	}
	check(l)
	l.SetHighWatermark(20)
	l = e.reopen()
	check(l)
	if l.HighWatermark() != 20 {
		t.Fatalf("high watermark %d", l.HighWatermark())
	}
	if r := l.Recovered(); r.ScannedBytes != 0 {
		t.Fatalf("clean start scanned %d bytes", r.ScannedBytes)
	}
	l = e.crash(e.mem.Clone())
	check(l)
	if r := l.Recovered(); r.ScannedBytes != int64(len(want)) || r.CutFrom != -1 {
		t.Fatalf("recovery %+v", r)
	}
}

func TestSmallSegments(t *testing.T) {
	e := newEnv(t)
	e.cfg.SegmentBytes = 600
	l := e.create()
	var want []byte
	half := 0
	for i := range 50 {
		b := at(int64(i*4), int32(i/10), 3)
		want = append(want, b...)
		if i == 24 {
			half = len(want)
		}
	}
	e.follow(l, want)
	if n := len(l.segs); n < 10 {
		t.Fatalf("%d segments", n)
	}
	if got := readAll(t, l, 0, l.LogEndOffset()); !bytes.Equal(got, want) {
		t.Fatal("bytes differ")
	}
	l = e.reopen()
	if got := readAll(t, l, 0, l.LogEndOffset()); !bytes.Equal(got, want) {
		t.Fatal("bytes differ after a restart")
	}
	// An offset in a gap is answered with what follows.
	s, err := l.Read(3, 1, l.LogEndOffset(), true)
	if err != nil || s.Len() == 0 {
		t.Fatalf("read in a gap: %d, %v", s.Len(), err)
	}
	s.Release()
	var out *OffsetOutOfRangeError
	if _, err := l.Read(l.LogEndOffset()+1, 1, noOffset, true); !errors.As(err, &out) {
		t.Fatalf("read above the end: %v", err)
	}
	if err := l.Truncate(101); err != nil {
		t.Fatal(err)
	}
	if l.LogEndOffset() != 99 {
		t.Fatalf("end %d", l.LogEndOffset())
	}
	if got := readAll(t, l, 0, 100); !bytes.Equal(got, want[:len(got)]) || len(got) != half {
		t.Fatalf("%d bytes after the cut", len(got))
	}
	l = e.crash(e.mem.Clone())
	if l.LogEndOffset() != 99 {
		t.Fatalf("end %d after a crash", l.LogEndOffset())
	}
	if err := l.TruncateFullyAndStartAt(1000); err != nil {
		t.Fatal(err)
	}
	if l.LogStartOffset() != 1000 || l.LogEndOffset() != 1000 || l.Size() != 0 {
		t.Fatalf("%d %d %d", l.LogStartOffset(), l.LogEndOffset(), l.Size())
	}
	l = e.crash(e.mem.CrashClone(nil))
	if l.LogStartOffset() != 1000 || l.LogEndOffset() != 1000 {
		t.Fatalf("%d %d", l.LogStartOffset(), l.LogEndOffset())
	}
}
