package log

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"stet/internal/vfs"
	"stet/zerocopy/batch"
)

// TestLatestBatchesAreFoundAsInTheFile: whatever was appended, cut and rolled, for every offset and limit that a reader can have the batches
// in memory give the answer of the file.
func TestLatestBatchesAreFoundAsInTheFile(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		e := newEnv(t)
		e.cfg.SegmentBytes = 40_000
		e.cfg.IndexIntervalBytes = 400
		l := e.create()
		var views []int64 // sizes that readers have seen, of the segment with the base
		base := int64(0)
		for range rapid.IntRange(1, 200).Draw(rt, "steps") {
			switch rapid.IntRange(0, 30).Draw(rt, "what") {
			case 0:
				if err := l.Truncate(l.LogEndOffset() - min(l.LogEndOffset(), int64(rapid.IntRange(0, 20).Draw(rt, "cut")))); err != nil {
					rt.Fatal(err)
				}
			case 1: // offsets with gaps, as compaction at the source leaves them
				h := hdr()
				h.BaseOffset = l.LogEndOffset() + int64(rapid.IntRange(0, 5).Draw(rt, "gap"))
				e.follow(l, batch.Build(nil, h, batch.KV{Value: []byte("g")}, batch.KV{Value: []byte("h")}))
			default:
				records := plain(rapid.IntRange(1, 4).Draw(rt, "records"), strings.Repeat("v", rapid.IntRange(0, 300).Draw(rt, "size")))
				e.lead(l, records, 1, OriginClient)
			}
			s := l.active()
			views = slices.DeleteFunc(views, func(size int64) bool { return s.base != base || size >= s.size })
			base = s.base
			if s.size == 0 {
				continue
			}
			views = append(views, s.size)
			for range 3 {
				limit := views[max(len(views)-1-rapid.IntRange(0, 70).Draw(rt, "behind"), 0)]
				offset := rapid.Int64Range(s.base, s.next+2).Draw(rt, "offset")
				wantPos, wantSize, err := findFrom(s.file, offset, 0, -1, limit)
				if err != nil {
					rt.Fatal(err)
				}
				if pos, size, ok := s.findLatest(offset, limit); ok {
					if pos != wantPos || size != wantSize {
						rt.Fatalf("offset %d below %d: %d +%d, want %d +%d", offset, limit, pos, size, wantPos, wantSize)
					}
				}
			}
		}
	})
}

// TestTailReadsDoNotLookIntoTheFile: to find where to read at the end of a log, and where the high watermark is, costs no system call, in a log
// that was found at a start neither. Only segments that are appended to have memory for that.
func TestTailReadsDoNotLookIntoTheFile(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprint("restart=", restart), func(t *testing.T) { tailReads(t, restart) })
	}
}

func tailReads(t *testing.T, restart bool) {
	e := newEnv(t)
	var reads atomic.Int32
	e.fs = vfs.Inject(e.mem, func(op vfs.Op, _ string) error {
		if op == vfs.OpRead {
			reads.Add(1)
		}
		return nil
	})
	l := e.create()
	if restart {
		e.lead(l, plain(5, "before"), 1, OriginClient)
		if l = e.reopen(); l.active().latest != nil || !l.active().suspect.Load() {
			t.Fatal("not as after a clean start")
		}
	}
	for range 300 {
		e.lead(l, plain(1+rand.IntN(5), "some bytes"), 1, OriginClient)
	}
	end := l.LogEndOffset()
	look := func(offset, bound int64) int32 {
		t.Helper()
		reads.Store(0)
		r, err := l.acquire(offset)
		if err != nil {
			t.Fatal(err)
		}
		defer r.seg.release()
		if _, n, err := r.locate(offset, bound, 1<<20, true); err != nil || n == 0 && bound == end {
			t.Fatalf("offset %d: %d bytes, %v", offset, n, err)
		}
		return reads.Load()
	}
	for back := int64(1); back < latestBatches-1; back++ {
		if n := look(end-back, end); n != 0 {
			t.Errorf("%d records before the end: %d reads", back, n)
		}
		if n := look(end-latestBatches+1, end-back+1); n != 0 {
			t.Errorf("up to a high watermark %d records before the end: %d reads", back, n)
		}
	}
	if look(0, end) == 0 {
		t.Error("the start of the segment was found without a read: reads are not counted")
	}
	old := l.active()
	if err := l.Truncate(end - 3); err != nil {
		t.Fatal(err)
	}
	if old.latest != nil {
		t.Error("what was cut is remembered")
	}
	e.lead(l, plain(1, "more"), 1, OriginClient)
	old = l.active()
	l.mu.Lock()
	err := l.rollTo(l.end.Load())
	l.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	if old.latest != nil {
		t.Error("a rolled segment keeps its memory")
	}
}
