package log

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"stet/internal/vfs"
)

// adviceFS is a file system with a page cache of blocks, which writes down the advice.
type adviceFS struct {
	vfs.FS
	block int64
	mu    sync.Mutex
	in    map[string]bool // "file block": in memory
	said  []string        // the advice, in order
}

type adviceFile struct {
	vfs.File
	fs *adviceFS
}

func (a *adviceFS) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f, err := a.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &adviceFile{f, a}, nil
}

func blockName(f vfs.File, k int64) string { return fmt.Sprint(path.Base(f.Name()), " ", k) }

func (f *adviceFile) each(off, n int64, do func(name string)) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	for k := off / f.fs.block; k*f.fs.block < off+n; k++ {
		do(blockName(f, k))
	}
}

func (f *adviceFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	if strings.HasSuffix(f.Name(), logSuffix) {
		f.each(off, int64(n), func(name string) { f.fs.in[name] = true })
	}
	return n, err
}

func (f *adviceFile) Resident(off, n int64) (in int64, err error) {
	f.each(off, n, func(name string) {
		if f.fs.in[name] {
			in += f.fs.block
		}
	})
	return min(in, n), nil
}

func (f *adviceFile) WillNeed(off, n int64) error {
	f.each(off, n, func(name string) {
		f.fs.in[name] = true
		f.fs.said = append(f.fs.said, "+"+name)
	})
	return nil
}

func (f *adviceFile) DontNeed(off, n int64) error {
	f.each(off, n, func(name string) {
		delete(f.fs.in, name)
		f.fs.said = append(f.fs.said, "-"+name)
	})
	return nil
}

// coldLog is a log of five segments and small blocks, of which nothing is in memory.
func coldLog(t *testing.T) (*env, *Log, *adviceFS) {
	t.Helper()
	e := newEnv(t)
	a := &adviceFS{FS: e.mem, block: 16 << 10, in: map[string]bool{}}
	e.fs = a
	e.cfg.SegmentBytes, e.cfg.IndexIntervalBytes = 512<<10, 1024
	l := e.create()
	e.m.ahead.rule = aheadRule{block: a.block, window: 4 * a.block, tail: 8 * a.block}
	for l.Size() < 2400<<10 {
		e.lead(l, plain(60, "v"), 0, OriginClient)
	}
	l.SetHighWatermark(l.LogEndOffset())
	for o := l.LogStartOffset(); o < l.LogEndOffset(); o += 600 {
		consumeOnce(t, l, o, 1) // indexes are loaded and the places known
	}
	a.mu.Lock()
	a.in, a.said = map[string]bool{}, nil
	a.mu.Unlock()
	l.ahead.Store(nil)
	return e, l, a
}

// consumeOnce reads like a consumer and returns the offset to go on with.
func consumeOnce(t *testing.T, l *Log, offset int64, size int) int64 {
	t.Helper()
	s, err := l.Read(offset, size, noOffset, true)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Release()
	p := make([]byte, s.Len())
	if _, err := s.ReadAt(p, 0); err != nil {
		t.Fatal(err)
	}
	return nextOf(t, p, offset)
}

// catchUp reads from offset up to the bound with reads of size, doing the advice in between.
func catchUp(t *testing.T, e *env, l *Log, offset, bound int64, size int) {
	t.Helper()
	for offset < bound {
		offset = consumeOnce(t, l, offset, size)
		e.m.ahead.drain(false)
	}
}

func (a *adviceFS) inMemory(l *Log) (blocks []string) {
	for _, s := range l.segs {
		for k := int64(0); k*a.block < s.size; k++ {
			if name := fmt.Sprintf("%020d.log %d", s.base, k); a.in[name] {
				blocks = append(blocks, name)
			}
		}
	}
	return blocks
}

// TestReadaheadSequential: each block is read ahead once and dropped once, in order, and
// what is left in memory is what nobody read ahead: the first reads and the tail.
func TestReadaheadSequential(t *testing.T) {
	e, l, a := coldLog(t)
	catchUp(t, e, l, 0, l.LogEndOffset(), 14400)
	var brought, dropped []string
	for _, s := range a.said {
		if s[0] == '+' {
			brought = append(brought, s[1:])
		} else {
			if !slices.Contains(brought, s[1:]) {
				t.Errorf("%s was dropped, but it was not brought", s[1:])
			}
			dropped = append(dropped, s[1:])
		}
	}
	if !slices.Equal(brought, dropped) {
		t.Errorf("brought %v\ndropped %v", brought, dropped)
	}
	if len(brought) < 100 {
		t.Errorf("only %d blocks were read ahead", len(brought))
	}
	left := a.inMemory(l)
	// The two reads that begin the run, one block at the begin of each segment, the tail with its last window.
	if len(left) > 3+2*len(l.segs)+8+4+1 {
		t.Errorf("%d blocks are left in memory: %v", len(left), left)
	}
	tail := fmt.Sprintf("%020d.log %d", l.active().base, (l.active().size-1)/a.block)
	if !slices.Contains(left, tail) {
		t.Errorf("the tail is not in memory: %v", left)
	}
}

// TestReadaheadComesFirst: what a reader in sequence gets was in memory before it asked.
func TestReadaheadComesFirst(t *testing.T) {
	e, l, a := coldLog(t)
	o := consumeOnce(t, l, 0, 14400)
	o = consumeOnce(t, l, o, 14400)
	e.m.ahead.drain(false)
	late := 0
	for range 25 {
		s, err := l.Read(o, 14400, noOffset, true)
		if err != nil {
			t.Fatal(err)
		}
		for k := s.Pos() / a.block; k*a.block < s.Pos()+int64(s.Len()); k++ {
			if !a.in[blockName(s.File(), k)] {
				late++
			}
		}
		s.Release()
		o = consumeOnce(t, l, o, 14400)
		e.m.ahead.drain(false)
	}
	if late > 1 {
		t.Errorf("%d blocks were not there in time", late)
	}
}

// TestReadaheadLeavesHotAlone: blocks that were in memory before stay.
func TestReadaheadLeavesHotAlone(t *testing.T) {
	e, l, a := coldLog(t)
	var hot []string
	for _, s := range l.segs[1:3] {
		for k := int64(4); k < 20; k++ {
			hot = append(hot, fmt.Sprintf("%020d.log %d", s.base, k))
		}
	}
	for _, name := range hot {
		a.in[name] = true
	}
	catchUp(t, e, l, 0, l.LogEndOffset(), 14400)
	for _, name := range hot {
		if !a.in[name] || slices.Contains(a.said, "+"+name) || slices.Contains(a.said, "-"+name) {
			t.Errorf("%s was in memory and was touched", name)
		}
	}
	if len(a.said) == 0 {
		t.Error("no advice for the rest")
	}
}

// TestReadaheadTwoReaders: the second reader finds in memory what the first brought, and it
// is dropped when the second has passed it.
func TestReadaheadTwoReaders(t *testing.T) {
	e, l, a := coldLog(t)
	first, second := int64(0), int64(0)
	for range 3 {
		first = consumeOnce(t, l, first, 14400)
		e.m.ahead.drain(false)
	}
	for range 2 {
		second = consumeOnce(t, l, second, 14400)
		e.m.ahead.drain(false)
	}
	end := l.segs[1].base
	for first < end {
		first = consumeOnce(t, l, first, 14400)
		e.m.ahead.drain(false)
		second = consumeOnce(t, l, second, 14400)
		e.m.ahead.drain(false)
	}
	n := map[string]int{}
	for _, s := range a.said {
		n[s]++
	}
	for s, times := range n {
		if times > 1 {
			t.Errorf("%s %d times", s, times)
		}
	}
	catchUp(t, e, l, second, end, 14400)
	catchUp(t, e, l, first, l.segs[2].base, 14400)
	left := 0
	for _, s := range a.inMemory(l) {
		if strings.HasPrefix(s, fmt.Sprintf("%020d.", 0)) {
			left++
		}
	}
	if left > 8 {
		t.Errorf("%d blocks of the first segment are left in memory", left)
	}
}

// TestReadaheadNotForThese: the tail, a single read, a reader that jumps.
func TestReadaheadNotForThese(t *testing.T) {
	e, l, a := coldLog(t)
	catchUp(t, e, l, l.active().base+(l.LogEndOffset()-l.active().base)*4/5, l.LogEndOffset(), 6400)
	if l.ahead.Load() != nil {
		t.Error("a reader at the tail is followed")
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	// A read covers less than 400 offsets: none begins where another ended.
	for _, k := range rnd.Perm(int(l.segs[3].base / 400)) {
		consumeOnce(t, l, int64(k)*400, 4800)
		e.m.ahead.drain(false)
	}
	if len(a.said) > 0 {
		t.Errorf("advice: %v", a.said)
	}
}

// TestReadaheadJumpersDoNotEvictReaders: more jumps than places do not stop a run.
func TestReadaheadJumpersDoNotEvictReaders(t *testing.T) {
	e, l, a := coldLog(t)
	rnd := rand.New(rand.NewPCG(1, 2))
	o := consumeOnce(t, l, 0, 14400)
	for o < l.segs[1].base {
		o = consumeOnce(t, l, o, 14400)
		e.m.ahead.drain(false)
		for range 10 {
			consumeOnce(t, l, l.segs[2].base+rnd.Int64N(60)*120, 10) // every other batch
		}
	}
	if n := strings.Count(strings.Join(a.said, " "), "-"); n < 20 {
		t.Errorf("%d blocks were dropped", n)
	}
}

// TestReadaheadQueueFull: without the goroutine reads go on, and nothing is held for ever.
func TestReadaheadQueueFull(t *testing.T) {
	e, l, _ := coldLog(t)
	for range 5 {
		for o := int64(0); o < l.segs[3].base; {
			o = consumeOnce(t, l, o, 14400)
		}
	}
	if len(e.m.ahead.jobs) != cap(e.m.ahead.jobs) {
		t.Fatalf("%d jobs", len(e.m.ahead.jobs))
	}
	segs := l.segs
	e.m.ahead.drain(false)
	for _, s := range segs {
		if n := s.refs.Load(); n != 1 {
			t.Errorf("segment %d has %d references", s.base, n)
		}
	}
}

// TestReadaheadWithoutPageCache: files that take no advice.
func TestReadaheadWithoutPageCache(t *testing.T) {
	e, l, a := coldLog(t)
	e.m.ahead.off.Store(false)
	for _, s := range l.segs {
		if s.file.f != nil {
			s.file.f = s.file.f.(*adviceFile).File
		}
	}
	catchUp(t, e, l, 0, l.segs[1].base, 14400)
	if !e.m.ahead.off.Load() || len(a.said) > 0 {
		t.Errorf("off %v, advice %v", e.m.ahead.off.Load(), a.said)
	}
}

// quietFile takes advice and does not allocate.
type quietFile struct{ vfs.File }

func (quietFile) Resident(off, n int64) (int64, error) { return 0, nil }
func (quietFile) WillNeed(off, n int64) error          { return nil }
func (quietFile) DontNeed(off, n int64) error          { return nil }

// TestReadaheadAllocations: following readers allocates nothing per read.
func TestReadaheadAllocations(t *testing.T) {
	skipWhenChecked(t)
	e, l, _ := coldLog(t)
	for _, s := range l.segs {
		if s.file.f != nil {
			s.file.f = quietFile{s.file.f.(*adviceFile).File}
		}
	}
	o, end := int64(0), l.segs[4].base
	read := func() {
		s, err := l.Read(o, 14400, noOffset, true)
		if err != nil {
			t.Fatal(err)
		}
		o += 60 // a batch; reads overlap, as those of a consumer do
		if o >= end {
			o = 0
		}
		s.Release()
		e.m.ahead.drain(false)
	}
	read()
	if n := testing.AllocsPerRun(300, read); n > 0 {
		t.Errorf("%v allocations per read", n)
	}
	if l.ahead.Load() == nil {
		t.Error("the reader was not followed")
	}
}
