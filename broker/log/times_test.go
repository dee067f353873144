package log

import (
	"errors"
	"runtime"
	"slices"
	"testing"
)

// TestLookupReadsNoWrongLength: a lookup by timestamp that meets a batch whose length is wrong, up to all that follows, checks it before
// it gets memory for it.
func TestLookupReadsNoWrongLength(t *testing.T) {
	from, stored := bigRot(t, 24<<20, 5000)
	name := logFiles(t, from.mem)[0]
	p, err := readFile(from.mem, name)
	if err != nil {
		t.Fatal(err)
	}
	be.PutUint32(p[8:], uint32(len(p)-12)) // the first batch takes all
	rewrite(t, from.mem, name, p)
	_, l := openClone(t, from, from.mem)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _, _, err = l.OffsetForTimestamp(t0.UnixMilli())
	runtime.ReadMemStats(&after)
	if !errors.Is(err, ErrCorruptMessage) {
		t.Error(err)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 8<<20 {
		t.Errorf("%d bytes were allocated", n)
	}
	if missing, _, err := serve(l, stored, 64<<10, false); err != nil || !slices.Equal(missing[:1], []int64{0}) || len(missing) != 5000 {
		t.Error(len(missing), err)
	}
}
