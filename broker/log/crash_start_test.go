package log

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"stet/internal/vfs"
	"stet/zerocopy/batch"
)

// startRun moves the log start: DeleteRecords, retention by time and size, removal of what was
// moved aside, checkpoints, and a clean stop, over a log that is flushed. before is called ahead of
// every operation of the file system that changes something; it returns what the operation
// fails with. step is told the log start that what
// follows may move to at most. all is the whole log.
func startRun(t *testing.T, before func(e *env, op vfs.Op, name string) error, step func(asked int64)) (all []byte) {
	t.Helper()
	e := newEnv(t)
	e.cfg.SegmentBytes, e.cfg.IndexIntervalBytes, e.cfg.FileDeleteDelayMs = 500, 100, 1000
	armed := false
	e.fs = vfs.Inject(e.mem, func(op vfs.Op, name string) error {
		switch op {
		case vfs.OpRead, vfs.OpStat, vfs.OpReadDir, vfs.OpCloseFile, vfs.OpLock:
			return nil
		}
		if !armed {
			return nil
		}
		return before(e, op, name)
	})
	l := e.create()
	for i := range 60 {
		h := hdr()
		h.Timestamp = e.clock.Now().UnixMilli()
		e.lead(l, plainAt(h, 2), int32(i/20), OriginClient)
		e.clock.Advance(1e9)
	}
	l.SetHighWatermark(l.LogEndOffset())
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	e.m.Checkpoint()
	all = readAll(t, l, 0, noOffset)
	armed = true
	do := func(asked int64, f func()) {
		step(asked)
		f()
		e.m.Checkpoint()
		e.clock.Advance(2e9)
		e.m.RemoveDue()
	}
	do(5, func() { _ = l.IncrementLogStartOffset(5) })
	do(31, func() { _ = l.IncrementLogStartOffset(31) })
	cfg := e.cfg
	cfg.RetentionMs = 40_000
	l.SetConfig(cfg)
	do(60, func() { _ = l.ApplyRetention() })
	cfg.RetentionMs, cfg.RetentionBytes = -1, 900
	l.SetConfig(cfg)
	do(110, func() { _ = l.ApplyRetention() })
	do(120, func() { _ = l.IncrementLogStartOffset(120) })
	step(120)
	_ = e.m.Close()
	return all
}

// checkStart opens what a crash left: the same end and bytes, from a start that is not above
// what was asked for.
func checkStart(t *testing.T, what string, mem *vfs.Mem, all []byte, asked int64) (start int64) {
	t.Helper()
	e := newEnv(t)
	e.cfg.SegmentBytes, e.cfg.IndexIntervalBytes = 500, 100
	e.cfg.RetentionMs = -1
	l := e.crash(mem)
	if err := l.Err(); err != nil {
		t.Errorf("%s: %v", what, err)
		return -1
	}
	start = l.LogStartOffset()
	end := l.LogEndOffset()
	if end != 120 || start > asked {
		t.Errorf("%s: %d to %d, asked for a start of %d and an end of 120; %s", what, start, end, asked, e.logs.String())
		return start
	}
	want := all
	for len(want) > 0 && batch.Batch(want).LastOffset() < start {
		want = want[batch.SizeOf(want):]
	}
	if got := readAll(t, l, start, noOffset); !bytes.Equal(got, want) {
		t.Errorf("%s: %d bytes from %d on, want %d", what, len(got), start, len(want))
	}
	e.lead(l, plain(2, "after"), 99, OriginClient)
	l = e.reopen()
	if l.LogEndOffset() != 122 || l.LogStartOffset() != start {
		t.Errorf("%s: %d to %d after a restart", what, l.LogStartOffset(), l.LogEndOffset())
	}
	return start
}

// TestCrashWhileStartMoves: a crash before every operation of DeleteRecords, retention, delayed
// removal, checkpoints and the clean stop; killed, and with the power lost.
func TestCrashWhileStartMoves(t *testing.T) {
	for _, power := range []bool{false, true} {
		rnd := rand.New(rand.NewPCG(7, 7))
		type point struct {
			what  string
			mem   *vfs.Mem
			asked int64
		}
		var points []point
		asked := int64(0)
		all := startRun(t, func(e *env, op vfs.Op, name string) error {
			mem := e.mem.Clone()
			if power && len(points)%2 == 0 {
				mem = e.mem.CrashClone(nil)
			} else if power {
				mem = e.mem.CrashClone(rnd)
			}
			points = append(points, point{fmt.Sprintf("power=%v before %s %s", power, op, name), mem, asked})
			return nil
		}, func(to int64) { asked = to })
		if len(points) < 60 {
			t.Fatalf("%d points", len(points))
		}
		starts := map[int64]bool{}
		last := int64(0)
		for _, p := range points {
			last = checkStart(t, p.what, p.mem, all, p.asked)
			starts[last] = true
		}
		if len(starts) < 5 || !power && last != 120 {
			t.Errorf("power=%v: the log start was at %v, at last at %d", power, starts, last)
		}
	}
}

// TestErrorsWhileStartMoves: each of these operations fails once. What is on disk then is a
// log that nothing was lost of.
func TestErrorsWhileStartMoves(t *testing.T) {
	boom := errors.New("boom")
	for fail := 0; ; fail++ {
		n, asked := 0, int64(0)
		what := ""
		var mem *vfs.Mem
		all := startRun(t, func(e *env, op vfs.Op, name string) error {
			mem = e.mem
			if n++; n-1 == fail {
				what = fmt.Sprintf("failing %s %s", op, name)
				return boom
			}
			return nil
		}, func(to int64) { asked = to })
		if what == "" {
			if fail < 60 {
				t.Fatalf("%d operations", fail)
			}
			return
		}
		checkStart(t, what, mem.Clone(), all, asked)
	}
}
