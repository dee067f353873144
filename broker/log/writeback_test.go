package log

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"stet/internal/vfs"
	"stet/zerocopy/batch"
)

// backFile notes the ranges whose write-back was started, and takes a while for each.
type backFile struct {
	vfs.File
	takes  time.Duration
	mu     sync.Mutex
	ranges [][2]int64
	begun  []time.Time
}

func (f *backFile) WriteBack(off, n int64) error {
	f.mu.Lock()
	f.ranges, f.begun = append(f.ranges, [2]int64{off, n}), append(f.begun, time.Now())
	f.mu.Unlock()
	time.Sleep(f.takes)
	return nil
}

// take is the ranges since the last call, adjacent ones as one.
func (f *backFile) take() (out [][2]int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.ranges {
		if n := len(out); n > 0 && out[n-1][0]+out[n-1][1] == r[0] {
			out[n-1][1] += r[1]
		} else {
			out = append(out, r)
		}
	}
	f.ranges = nil
	return out
}

// backed replaces the file of the active segment.
func backed(l *Log, takes time.Duration) *backFile {
	f := &backFile{File: l.active().file.f, takes: takes}
	l.active().file.f = f
	return f
}

// grow appends a batch with n bytes of value.
func grow(e *env, l *Log, n int) {
	h := hdr()
	h.BaseOffset = l.LogEndOffset()
	e.follow(l, batch.Build(nil, h, batch.KV{Value: make([]byte, n)}))
}

// running runs the periodic work of a manager inside a synctest bubble.
func running(t *testing.T, e *env) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { e.m.Run(ctx); close(done) }()
	return func() { cancel(); <-done }
}

// TestWriteBackOfFullSteps: what appends fill is handed to the kernel a second later, in whole steps; the step that appends go on in never is, so
// that none of them waits for a page that is being written. What was flushed is left out.
func TestWriteBackOfFullSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t)
		l := e.create()
		f := backed(l, 0)
		defer running(t, e)()
		const step = writeBackStep
		want := func(why string, ranges ...[2]int64) {
			t.Helper()
			if got := f.take(); len(got) != 0 {
				t.Fatalf("%s: %v at once", why, got)
			}
			time.Sleep(2 * writeBackDelay)
			synctest.Wait()
			if got := f.take(); !slices.Equal(got, ranges) {
				t.Fatalf("%s: %v, want %v", why, got, ranges)
			}
			if l.wantsWriteBack {
				t.Fatalf("%s: it waits for its turn", why)
			}
		}
		grow(e, l, step/2)
		want("half a step")
		grow(e, l, step/2)
		want("a step and a little", [2]int64{0, step})
		grow(e, l, step/2)
		want("a step and a half")
		grow(e, l, 5*step)
		want("six and a half", [2]int64{step, 5 * step})
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
		flushed := l.Size()
		grow(e, l, step)
		want("after a flush", [2]int64{flushed, 7*step - flushed})
		if err := l.Truncate(3); err != nil {
			t.Fatal(err)
		}
		f = backed(l, 0) // appends go on in a new segment
		grow(e, l, 2*step)
		want("after a cut", [2]int64{0, 2 * step})
		// Steps that are filled while others are handed over have their own second.
		f.takes = 400 * time.Millisecond
		grow(e, l, 4*step)
		time.Sleep(writeBackDelay + 100*time.Millisecond)
		grow(e, l, step)
		time.Sleep(4 * (f.takes + writeBackPause)) // less than the second that follows
		synctest.Wait()
		if got := f.take(); !slices.Equal(got, [][2]int64{{2 * step, 4 * step}}) {
			t.Fatalf("what was there when its turn came: %v", got)
		}
		want("what came meanwhile", [2]int64{6 * step, step})
	})
}

// TestWriteBackIsSpread: partitions that fill their steps at the same moment are taken one after the other, with room for others in
// between; one that fills more while it waits has all of it taken, piece by piece, and one that was deleted or has failed nothing.
func TestWriteBackIsSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t)
		const takes = 5 * time.Millisecond
		logs, files := []*Log{e.create()}, []*backFile{}
		for i := range int32(5) {
			l, err := e.m.Create("more", i, testID, 7, e.cfg)
			if err != nil {
				t.Fatal(err)
			}
			logs = append(logs, l)
		}
		for _, l := range logs {
			files = append(files, backed(l, takes))
			grow(e, l, writeBackStep)
			grow(e, l, 8*writeBackStep)
		}
		if err := logs[5].fail("write", errors.New("the disk is gone")); err == nil {
			t.Fatal("it did not fail")
		}
		if err := e.m.Delete("more", 3); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		defer running(t, e)()
		time.Sleep(2 * writeBackDelay)
		synctest.Wait()
		for i, f := range files[:4] {
			if len(f.ranges) == 0 {
				t.Fatalf("partition %d is not written back", i)
			}
			first, at := f.ranges[0], f.begun[0].Sub(begin)
			if got := f.take(); !slices.Equal(got, [][2]int64{{0, 9 * writeBackStep}}) || first[1] > 9*writeBackStep/writeBackPart {
				t.Errorf("partition %d: %v, of it %v at first", i, got, first)
			}
			if earliest := writeBackDelay + time.Duration(i)*(1+writeBackShare)*takes; at < earliest || at > earliest+takes {
				t.Errorf("partition %d was taken after %s", i, at)
			}
		}
		if len(files[4].ranges)+len(files[5].ranges) != 0 {
			t.Error("a log that was deleted or has failed is written back")
		}
		if q := e.m.dirs[0].writeBacks.queue; len(q) != 0 || slices.ContainsFunc(q[:cap(q)], func(q queuedLog) bool { return q.l != nil }) {
			t.Error("a log is kept that is not queued")
		}
	})
}
