package log

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"stet/zerocopy/batch"
)

// TestCheckWhileTheLogChanges: readers check a log that was just opened while it is cut, compacted, shortened by its start and
// appended to. What they see is right or an honest error, and no damage is found where there is none; with a corrupt batch in it, nothing else is.
func TestCheckWhileTheLogChanges(t *testing.T) {
	for round := range 12 {
		from, stored := rotImage(t, 60)
		mem := from.mem.Clone()
		rot := round%3 == 2
		if rot {
			flipIn(t, mem, stored, stored[30].BaseOffset(), []int{3, 9, 70}[round/3%3])
		}
		if round%2 == 1 {
			from.cfg.CleanupPolicy, from.cfg.MinCleanableRatio = "compact", 0
		}
		e, l := openClone(t, from, mem)
		e.cfg.FileDeleteDelayMs = 0
		var stop atomic.Bool
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() {
				for n := int64(i); !stop.Load(); n++ {
					start, end := l.LogStartOffset(), l.LogEndOffset()
					readSome(t, l, start+n*7%max(end-start, 1), rot)
					if _, _, _, err := l.OffsetForTimestamp(t0.UnixMilli() + n%60); err != nil && !(rot && errors.Is(err, ErrCorruptMessage)) {
						t.Error(err)
					}
				}
			})
		}
		wg.Go(func() {
			for !stop.Load() {
				e.m.CompactOnce(context.Background())
				if err := l.ApplyRetention(); err != nil {
					t.Error(err)
				}
				l.dropIdleIndexes()
			}
		})
		for i := range 150 {
			end := l.LogEndOffset()
			var err error
			switch {
			case i%20 == 19:
				err = l.Truncate(max(l.LogStartOffset(), end-25))
			case i%37 == 36:
				err = l.IncrementLogStartOffset(min(l.LogStartOffset()+9, end))
			default:
				e.follow(l, at(end, int32(i+20), 2))
				l.SetHighWatermark(l.LogEndOffset())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		stop.Store(true)
		wg.Wait()
		if err := l.Err(); err != nil {
			t.Fatal(err)
		}
		if n := e.m.CorruptBatches(); n > 0 && !rot || n > 1 {
			t.Errorf("round %d: %d corrupt batches: %s", round, n, e.logs.String())
		}
		for _, s := range l.segs {
			if n := s.refs.Load(); n != 1 {
				t.Errorf("segment %d has %d references", s.base, n)
			}
		}
	}
}

// readSome is readOnce where a corrupt batch may be met.
func readSome(t *testing.T, l *Log, offset int64, rot bool) {
	s, err := l.Read(offset, 700, noOffset, true)
	var out *OffsetOutOfRangeError
	if errors.As(err, &out) || rot && errors.Is(err, ErrCorruptMessage) {
		return
	}
	if err != nil {
		t.Error(err)
		return
	}
	defer s.Release()
	p := make([]byte, s.Len())
	n, _ := s.ReadAt(p, 0)
	for p = slices.Clip(p[:n]); len(p) > 0; {
		b, rest, err := batch.Next(p)
		if errors.Is(err, batch.ErrIncomplete) {
			return
		}
		if err == nil {
			err = b.CheckCRC()
		}
		if err != nil || b.LastOffset() < offset {
			t.Errorf("offset %d: a batch up to %d: %v", offset, b.LastOffset(), err)
			return
		}
		p = rest
	}
}
