package log

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"stet/internal/invariant"
	"stet/internal/vfs"
	"stet/zerocopy/batch"
)

// crashPoint is the file system just before one operation.
type crashPoint struct {
	op      string
	mem     *vfs.Mem
	before  int // versions[before] was complete
	flushed int // bytes of that version known to be durable
}

// crashRun does random work and takes a copy of the file system before every operation on it.
// versions[i] is the log's content after i pieces of work.
func crashRun(t *testing.T, seed uint64, power bool) (points []crashPoint, versions [][]byte, cfg Config) {
	e := newEnv(t)
	e.cfg.SegmentBytes, e.cfg.IndexIntervalBytes = 500, 100
	recording := false
	flushed := 0
	rnd := rand.New(rand.NewPCG(seed, 2))
	e.fs = vfs.Inject(e.mem, func(op vfs.Op, path string) error {
		switch op {
		case vfs.OpRead, vfs.OpStat, vfs.OpReadDir, vfs.OpCloseFile, vfs.OpLock:
			return nil
		}
		if recording {
			c := e.mem.Clone
			if power {
				c = func() *vfs.Mem { return e.mem.CrashClone(rnd) }
				if rnd.IntN(3) == 0 {
					c = func() *vfs.Mem { return e.mem.CrashClone(nil) }
				}
			}
			points = append(points, crashPoint{fmt.Sprint(op, " ", path), c(), len(versions) - 1, flushed})
		}
		return nil
	})
	l := e.create()
	e.lead(l, plain(1, "first"), 0, OriginClient)
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	content := readAll(t, l, 0, l.LogEndOffset())
	versions = append(versions, content)
	flushed = len(content)
	recording = true
	epoch := int32(0)
	seq := map[int64]int32{}
	for range 40 {
		end := l.LogEndOffset()
		synced := false
		switch rnd.IntN(9) {
		case 0, 1:
			epoch += int32(rnd.IntN(2))
			e.lead(l, plain(1+rnd.IntN(4), "lead"), epoch, OriginClient)
		case 2:
			epoch += int32(rnd.IntN(2))
			next := end + int64(rnd.IntN(2))
			var b []byte
			for range 1 + rnd.IntN(4) {
				one := at(next, epoch, 1+rnd.IntN(3))
				next = batch.Batch(one).NextOffset() + int64(rnd.IntN(2))
				b = append(b, one...)
			}
			e.follow(l, b)
		case 3:
			pid := int64(rnd.IntN(2))
			e.lead(l, txn(pid, 0, seq[pid], 2), epoch, OriginCoordinator)
			seq[pid] += 2
		case 4:
			pid := int64(rnd.IntN(2))
			e.lead(l, endTxn(pid, 0, rnd.IntN(2) == 0, 0), epoch, OriginCoordinator)
		case 5:
			if err := l.Truncate(rnd.Int64N(end + 1)); err != nil {
				t.Fatal(err)
			}
		case 6:
			if err := l.Flush(); err != nil {
				t.Fatal(err)
			}
		case 7:
			e.m.FlushSealed()
			e.m.Checkpoint()
		case 8:
			if err := l.Sync(); err != nil {
				t.Fatal(err)
			}
			synced = true
		}
		now := readAll(t, l, 0, l.LogEndOffset())
		versions = append(versions, now)
		flushed = min(flushed, commonPrefix(now, versions[len(versions)-2]))
		if synced || l.RecoveryPoint() >= l.LogEndOffset() {
			flushed = len(now)
		}
	}
	return points, versions, e.cfg
}

func commonPrefix(a, b []byte) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// TestCrashEverywhere opens the log from every copy. It must be what it was before or after
// the interrupted piece of work, or in between: never with a hole, never less than was safe.
func TestCrashEverywhere(t *testing.T) {
	seeds := uint64(6)
	if testing.Short() {
		seeds = 1
	}
	for _, power := range []bool{false, true} {
		for seed := range seeds {
			points, versions, cfg := crashRun(t, seed, power)
			if len(points) < 100 {
				t.Fatalf("only %d crash points", len(points))
			}
			for i, p := range points {
				if invariant.Race && i%5 != int(seed)%5 {
					continue // all of them without the race detector
				}
				name := fmt.Sprintf("power=%v seed %d point %d of %d, before %s, version %d", power, seed, i, len(points), p.op, p.before)
				checkCrash(t, name, p, versions, cfg, power)
				if t.Failed() {
					return
				}
			}
		}
	}
}

func checkCrash(t *testing.T, name string, p crashPoint, versions [][]byte, cfg Config, power bool) {
	t.Helper()
	e := newEnv(t)
	e.cfg = cfg
	l := e.crash(p.mem)
	if err := l.Err(); err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	got := readAll(t, l, l.LogStartOffset(), l.LogEndOffset())
	old := versions[p.before]
	next := old
	if p.before+1 < len(versions) {
		next = versions[p.before+1]
	}
	safe := commonPrefix(old, next)
	if power {
		safe = min(safe, p.flushed)
	}
	if !bytes.HasPrefix(old, got) && !bytes.HasPrefix(next, got) {
		t.Errorf("%s: the log is neither part of the old nor of the new one (%d bytes; %d, %d)", name, len(got), len(old), len(next))
	}
	if len(got) < safe {
		t.Errorf("%s: %d bytes are left of %d", name, len(got), safe)
	}
	m := &model{end: l.LogEndOffset(), hw: l.LogEndOffset()}
	for rest := got; len(rest) > 0; {
		b, r, err := batch.Next(rest)
		if err != nil {
			t.Fatal(err)
		}
		m.batches = append(m.batches, b)
		rest = r
	}
	if e, w := l.EpochEntries(), m.epochs(); !slices.Equal(e, w) {
		t.Errorf("%s: epochs %v, want %v", name, e, w)
	}
	open, aborted, _ := m.txns()
	if o := l.OpenTransactions(); len(o) != len(open) {
		t.Errorf("%s: open %v, want %v", name, o, open)
	}
	if a := l.AbortedTxns(0, noOffset); len(a) != len(aborted) {
		t.Errorf("%s: aborted %v, want %v", name, a, aborted)
	}
	// It must also be possible to go on, and to stop and start again.
	e.lead(l, plain(2, "after"), 99, OriginClient)
	want := readAll(t, l, 0, l.LogEndOffset())
	l = e.reopen()
	if again := readAll(t, l, 0, l.LogEndOffset()); !bytes.Equal(again, want) {
		t.Errorf("%s: other bytes after a clean restart", name)
	}
}
