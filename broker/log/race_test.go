package log

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"

	"stet/zerocopy/batch"
)

// TestConcurrentUse lets readers, an appender, a truncator, flushes and retention run against
// each other. Readers see whole batches in order, or an honest error. It is worth most under
// -race.
func TestConcurrentUse(t *testing.T) {
	e := newEnv(t)
	e.cfg.SegmentBytes, e.cfg.IndexIntervalBytes = 2000, 200
	l := e.create()
	var stop atomic.Bool
	var wg sync.WaitGroup
	run := func(f func(i int)) {
		wg.Go(func() {
			for i := 0; !stop.Load(); i++ {
				f(i)
			}
		})
	}
	for range 2 {
		run(func(i int) {
			start, end := l.LogStartOffset(), l.LogEndOffset()
			offset := start + int64(i%7)*(end-start)/7
			readOnce(t, l, offset)
		})
	}
	run(func(int) {
		l.LastStableOffset()
		l.EpochEntries()
		l.AbortedTxns(l.LogStartOffset(), l.LogEndOffset())
		l.OpenTransactions()
		if _, _, _, err := l.OffsetForTimestamp(t0.UnixMilli()); err != nil {
			t.Error(err)
		}
		l.Size()
	})
	run(func(i int) {
		if err := l.Flush(); err != nil {
			t.Error(err)
		}
		e.m.FlushSealed()
		e.m.Checkpoint()
		if i%4 == 0 {
			l.dropIdleIndexes()
		}
	})
	for i := range 1500 {
		end := l.LogEndOffset()
		switch {
		case i%97 == 96:
			if err := l.Truncate(max(l.LogStartOffset(), end-30)); err != nil {
				t.Fatal(err)
			}
		case i%211 == 210:
			if err := l.TruncateFullyAndStartAt(end + 5); err != nil {
				t.Fatal(err)
			}
		case i%53 == 52:
			if err := l.IncrementLogStartOffset(l.LogStartOffset() + (end-l.LogStartOffset())/2); err != nil {
				t.Fatal(err)
			}
		default:
			e.follow(l, at(end, int32(i/100), 3), at(end+4, int32(i/100), 1))
			l.SetHighWatermark(l.LogEndOffset())
		}
	}
	stop.Store(true)
	wg.Wait()
	if err := l.Err(); err != nil {
		t.Fatal(err)
	}
	for _, s := range l.segs {
		if n := s.refs.Load(); n != 1 {
			t.Errorf("segment %d has %d references", s.base, n)
		}
	}
}

// readOnce reads at offset and checks what comes back.
func readOnce(t *testing.T, l *Log, offset int64) {
	s, err := l.Read(offset, 700, noOffset, true)
	var out *OffsetOutOfRangeError
	if errors.As(err, &out) {
		return // cut or deleted meanwhile
	}
	if err != nil {
		t.Error(err)
		return
	}
	defer s.Release()
	p := make([]byte, s.Len())
	n, err := s.ReadAt(p, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	p = p[:n] // a truncation may shorten it, never change it
	for next := int64(-1); len(p) > 0; {
		b, rest, err := batch.Next(p)
		if errors.Is(err, batch.ErrIncomplete) {
			return
		}
		if err != nil {
			t.Errorf("offset %d: %v", offset, err)
			return
		}
		if err := b.CheckCRC(); err != nil || b.BaseOffset() < next || b.LastOffset() < offset {
			t.Errorf("offset %d: batch %d to %d after %d: %v", offset, b.BaseOffset(), b.LastOffset(), next, err)
			return
		}
		next, p = b.NextOffset(), rest
	}
}

// TestSliceOutlivesItsSegment: a response in flight keeps its bytes when
// the segment is deleted, and comes back short, not wrong, when it is cut.
func TestSliceOutlivesItsSegment(t *testing.T) {
	e := newEnv(t)
	e.cfg.SegmentBytes = 300
	l := e.create()
	for i := range 20 {
		e.follow(l, at(int64(i*2), 1, 2))
	}
	want := readAll(t, l, 0, 2)
	take := func() Slice {
		t.Helper()
		s, err := l.Read(l.LogStartOffset(), len(want), noOffset, true)
		if err != nil || s.Len() != len(want) {
			t.Fatal(s.Len(), err)
		}
		return s
	}
	deleted := take()
	if err := l.IncrementLogStartOffset(20); err != nil {
		t.Fatal(err)
	}
	e.clock.Advance(3600e9)
	e.m.RemoveDue()
	p := make([]byte, deleted.Len())
	if n, err := deleted.ReadAt(p, 0); n != len(p) || err != nil || string(p) != string(want) {
		t.Fatalf("deleted: %d, %v", n, err)
	}
	if n, err := deleted.ReadAt(p, 5); n != len(p)-5 || !errors.Is(err, io.EOF) {
		t.Fatalf("at the end of the slice: %d, %v", n, err)
	}
	deleted.Release()
	deleted.Release() // harmless
	if deleted.File() != nil {
		t.Fatal("a released slice still has a file")
	}

	last := l.LogEndOffset() - 1
	s, err := l.Read(last, 1000, noOffset, true)
	if err != nil {
		t.Fatal(err)
	}
	old := make([]byte, s.Len())
	if _, err := s.ReadAt(old, 0); err != nil {
		t.Fatal(err)
	}
	if err := l.Truncate(last); err != nil {
		t.Fatal(err)
	}
	e.follow(l, at(l.LogEndOffset(), 9, 3)) // other bytes at the same offset
	got := make([]byte, len(old))
	n, err := s.ReadAt(got, 0)
	if err == nil && string(got) == string(old) {
		err = io.EOF // the cut took the whole segment: the old file is intact
	}
	if !errors.Is(err, io.EOF) || string(got[:n]) != string(old[:n]) {
		t.Fatalf("cut: %d of %d bytes, %v", n, len(old), err)
	}
	s.Release()
}

// TestBoundsOfOneMoment: nobody sees a last stable offset beyond a transaction together with a high watermark that its marker is not
// below. A mirror of this log that is at that high watermark would take the marker for compacted away (SPEC section 5).
func TestBoundsOfOneMoment(t *testing.T) {
	e := newEnv(t)
	e.cfg.SegmentBytes = 1 << 30
	l := e.create()
	var open atomic.Int64 // first offset of the transaction that begins next, or has begun
	var done atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		defer done.Store(true)
		for i := range int64(20000) {
			at := 2 * i
			open.Store(at)
			h := batch.Header{BaseOffset: at, Timestamp: 1, Attributes: batch.AttrTransactional, ProducerID: 7, BaseSequence: int32(i)}
			marker := batch.BuildEndTxn(nil, batch.Header{Timestamp: 1, ProducerID: 7}, true, 0)
			batch.Batch(marker).SetBaseOffset(at + 1)
			for n, b := range [][]byte{batch.Build(nil, h, batch.KV{Value: []byte("v")}), marker} {
				if _, err := l.AppendAsFollower(b); err != nil {
					t.Error(err)
					return
				}
				l.SetHighWatermark(at + int64(n) + 1)
			}
		}
	})
	wrong := 0
	for !done.Load() {
		first := open.Load()
		if hw, stable := l.Bounds(); hw == first+1 && stable > first {
			wrong++
		}
	}
	wg.Wait()
	if wrong > 0 {
		t.Errorf("seen %d times", wrong)
	}
}
