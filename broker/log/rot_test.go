package log

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"stet/internal/vfs"
	"stet/zerocopy/batch"
)

// TestRotIsFoundWithoutReader: the check in the background is off at rate 0, then takes its time, goes from the newest segment to the
// oldest, finds the corrupt batch, and ends.
func TestRotIsFoundWithoutReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, stored := rotImage(t, 40)
		mem := from.mem.Clone()
		name, pos := flipIn(t, mem, stored, 30, 70)
		e, l := openClone(t, from, mem)
		var all []*segment
		for _, s := range l.segs {
			if s.suspect.Load() {
				all = append(all, s)
			}
		}
		if got := e.m.suspects(e.m.dirs[0]); len(all) < 3 || len(got) != len(all) {
			t.Fatalf("%d suspects of %d", len(got), len(all))
		}
		left := func() (n int) { return len(e.m.suspects(e.m.dirs[0])) }
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); e.m.Run(ctx) }()
		time.Sleep(time.Hour)
		if left() != len(all) {
			t.Error("checked although it is off")
		}
		e.m.SetCheckRate(rotLeast) // a segment per second
		time.Sleep(time.Second / 2)
		synctest.Wait()
		if n := left(); n != len(all) {
			t.Errorf("%d of %d left after half a second", n, len(all))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := left(); n != len(all)-1 {
			t.Errorf("%d of %d left after a second and a half", n, len(all))
		}
		time.Sleep(time.Duration(len(all)) * time.Second)
		synctest.Wait()
		if left() != 0 {
			t.Errorf("%d are left", left())
		}
		cancel()
		<-done
		logs := e.logs.String()
		if strings.Count(logs, "corrupt batch is not served") != 1 || !strings.Contains(logs, fmt.Sprintf("file=%s position=%d", name, pos)) || e.m.CorruptBatches() != 1 || !strings.Contains(logs, "log directory was checked") {
			t.Error(logs)
		}
		for _, s := range all {
			if n := s.refs.Load(); n != 1 {
				t.Errorf("segment %d has %d references", s.base, n)
			}
		}
		if missing, _, err := serve(l, stored, 300, false); err != nil || len(missing) == 0 {
			t.Error(missing, err)
		}
	})
}

// TestSuspectsNewestFirst: by the time of the file.
func TestSuspectsNewestFirst(t *testing.T) {
	from, _ := rotImage(t, 40)
	e, l := openClone(t, from, from.mem.Clone())
	for i, s := range l.segs {
		s.createdMs = int64(i * i % 5)
	}
	last := int64(5)
	for _, s := range e.m.suspects(e.m.dirs[0]) {
		if s.createdMs > last {
			t.Fatalf("%d after %d", s.createdMs, last)
		}
		last = s.createdMs
	}
}

// bigRot is a cleanly stopped log with one segment of at least so many bytes and an empty active one; batches of n records.
func bigRot(t testing.TB, size int64, n int) (e *env, stored []batch.Batch) {
	e = newEnv(t)
	l := e.create()
	for l.Size() < size {
		b := batch.Batch(at(l.LogEndOffset(), 0, n))
		e.follow(l, b)
		stored = append(stored, b)
	}
	l.SetHighWatermark(l.LogEndOffset())
	roll(t, l)
	if err := e.m.Close(); err != nil {
		t.Fatal(err)
	}
	return e, stored
}

// TestNobodyWaitsForTheRate: while the rate is waited for nothing is held, also after the survey of a damaged segment: reads and cuts go
// on. What the survey read is waited for all the same. A stop ends it early, and the next one finds the damage.
func TestNobodyWaitsForTheRate(t *testing.T) {
	from, stored := bigRot(t, 4<<20, 500)
	mem := from.mem.Clone()
	flipIn(t, mem, stored, stored[len(stored)/8].BaseOffset(), 70)
	_, l := openClone(t, from, mem)
	s := l.segs[0]
	size := s.size
	limit := func() int64 { return size }
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.checkAll(stopped, limit, s.checkCold, func(int64) error { return nil }); !errors.Is(err, context.Canceled) || s.damaged.Load() != nil {
		t.Fatal(err, s.damaged.Load())
	}
	asked, after := int64(0), false
	n, err := s.checkAll(t.Context(), limit, s.checkCold, func(n int64) error {
		asked += n
		if !s.check.surveying.TryLock() {
			t.Fatal("a survey waits")
		}
		s.check.surveying.Unlock()
		if s.damaged.Load() == nil {
			return nil
		}
		after = true
		if missing, _, err := serve(l, stored, 64<<10, false); err != nil || len(missing) != 500 {
			t.Errorf("%d offsets are missing: %v", len(missing), err)
		}
		return l.Truncate(l.LogEndOffset() - 10)
	})
	if err != nil || n == 0 || !after || asked < size {
		t.Fatalf("%d checked, %d asked for of %d, after a survey: %v; %v", n, asked, size, after, err)
	}
}

// TestCheckerInFailedDirectory: no error for each segment that is left.
func TestCheckerInFailedDirectory(t *testing.T) {
	from, _ := rotImage(t, 40)
	failed, _ := openClone(t, from, from.mem.Clone())
	failed.m.dirs[0].takeOffline(failed.m.o.Logger, syscall.EIO)
	failed.logs.Reset()
	failed.m.runChecker(t.Context(), 0)
	if failed.logs.Len() > 0 || len(failed.m.suspects(failed.m.dirs[0])) < 3 {
		t.Error(failed.logs.String())
	}
	e, l := openClone(t, from, from.mem.Clone())
	e.m.SetCheckRate(1 << 62)
	_ = l.fail("read", errors.New("boom"))
	e.logs.Reset()
	e.m.runChecker(t.Context(), 0)
	if e.logs.Len() > 0 || len(e.m.suspects(e.m.dirs[0])) < 3 {
		t.Error(e.logs.String())
	}
}

// hookFS calls a function before a .log file is read.
type hookFS struct {
	*vfs.Mem
	hook func(off int64)
}

type hookFile struct {
	vfs.File
	fs *hookFS
}

func (f *hookFS) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	file, err := f.Mem.OpenFile(name, flag, perm)
	if err != nil || !strings.HasSuffix(name, logSuffix) {
		return file, err
	}
	return hookFile{file, f}, nil
}

func (f hookFile) ReadAt(p []byte, off int64) (int, error) {
	if f.fs.hook != nil {
		f.fs.hook(off)
	}
	return f.File.ReadAt(p, off)
}

// TestCheckerGoesOnAfterCut: the log is cut below what a survey looks at, while it does; what is left is checked, and nothing is said.
func TestCheckerGoesOnAfterCut(t *testing.T) {
	from, stored := bigRot(t, 4<<20, 500)
	mem := from.mem.Clone()
	flipIn(t, mem, stored, stored[len(stored)*7/8].BaseOffset(), 70)
	hooked := &hookFS{Mem: mem}
	e := newEnv(t)
	e.cfg, e.clock, e.mem, e.fs = from.cfg, from.clock, mem, hooked
	e.open()
	l := e.m.Get("t", 0)
	s, begins := l.segs[0], 0
	half := stored[len(stored)/2].BaseOffset()
	pos, _, err := s.find(half, s.size)
	if err != nil {
		t.Fatal(err)
	}
	hooked.hook = func(off int64) {
		if off > 0 {
			return
		}
		if begins++; begins == 2 { // the survey
			l.hideAbove(0, pos, half)
		}
	}
	e.m.SetCheckRate(1 << 62)
	n, err := e.m.checkSegment(t.Context(), 0, s)
	if err != nil || begins != 2 || n < pos || s.damaged.Load() != nil || e.m.CorruptBatches() != 0 || strings.Contains(e.logs.String(), "level=ERROR") {
		t.Errorf("%d checked of %d, begun %d times: %v; %s", n, pos, begins, err, e.logs.String())
	}
}
