package log

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"stet/internal/vfs"
)

// counted is a log whose file system counts what changes or syncs something.
func counted(t *testing.T) (e *env, l *Log, take func() map[vfs.Op]int) {
	e = newEnv(t)
	var mu sync.Mutex
	ops := map[vfs.Op]int{}
	e.fs = vfs.Inject(e.mem, func(op vfs.Op, _ string) error {
		mu.Lock()
		ops[op]++
		mu.Unlock()
		return nil
	})
	l = e.create()
	return e, l, func() map[vfs.Op]int {
		mu.Lock()
		defer mu.Unlock()
		out := ops
		ops = map[vfs.Op]int{}
		for _, op := range []vfs.Op{vfs.OpRead, vfs.OpStat, vfs.OpCloseFile, vfs.OpReadDir} {
			delete(out, op)
		}
		return out
	}
}

// TestWhatASyncCosts: the stop barrier appends to a log with a new leader epoch and syncs it. That is one write and one
// sync, for a partition whose identity is on disk, and nothing is opened or renamed (goal G4).
func TestWhatASyncCosts(t *testing.T) {
	e, l, take := counted(t)
	e.lead(l, plain(3, "copied"), 1, OriginClient)
	take()
	if err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	// The log, the two files of its identity, its directory and the one above.
	if got := take(); got[vfs.OpSync] != 3 || got[vfs.OpSyncDir] != 2 || got[vfs.OpRename] != 0 {
		t.Errorf("the first sync of a new partition: %v", got)
	}
	for round := range 3 {
		e.lead(l, pidReset(), int32(70000+round), OriginInternal)
		if err := l.Sync(); err != nil {
			t.Fatal(err)
		}
		if got := take(); len(got) != 2 || got[vfs.OpWrite] != 1 || got[vfs.OpSync] != 1 {
			t.Errorf("round %d: %v", round, got)
		}
	}
	if err := l.Sync(); err != nil || len(take()) != 0 {
		t.Errorf("a sync with nothing to do does something (%v)", err)
	}
}

// TestIdentitySettles: in the background new partitions get on disk what is written once.
func TestIdentitySettles(t *testing.T) {
	e, l, take := counted(t)
	e.m.settleNew(context.Background())
	take()
	e.m.settleNew(context.Background())
	if got := take(); len(got) != 0 {
		t.Errorf("a partition without a byte is settled: %v", got)
	}
	e.lead(l, plain(3, "copied"), 1, OriginClient)
	e.m.settleNew(context.Background())
	take()
	e.m.settleNew(context.Background())
	if got := take(); len(got) != 0 {
		t.Errorf("settled twice: %v", got)
	}
	e.lead(l, plain(3, "more"), 1, OriginClient)
	take()
	if err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	if got := take(); len(got) != 1 || got[vfs.OpSync] != 1 {
		t.Errorf("a sync of a settled partition: %v", got)
	}
}

// TestSyncedSurvivesPowerLoss: after Sync a power failure, whatever else it takes, leaves all bytes, epochs, transactions
// and the freed producer ids, over rolled segments and for a partition of which nothing was synced before.
func TestSyncedSurvivesPowerLoss(t *testing.T) {
	for seed := range uint64(30) {
		e := newEnv(t)
		e.cfg.SegmentBytes = 400
		l := e.create()
		rnd := rand.New(rand.NewPCG(seed, 1))
		for i := range 1 + rnd.IntN(12) {
			e.lead(l, plain(1+rnd.IntN(3), fmt.Sprint(i)), int32(i/3), OriginClient)
			if rnd.IntN(4) == 0 {
				e.m.settleNew(context.Background())
			}
			if rnd.IntN(4) == 0 {
				e.m.FlushSealed()
			}
		}
		e.lead(l, txn(7, 0, 0, 2), 5, OriginCoordinator)
		e.lead(l, endTxn(7, 0, false, 0), 70000, OriginInternal)
		e.lead(l, pidReset(), 70000, OriginInternal)
		if err := l.Sync(); err != nil {
			t.Fatal(err)
		}
		want, epochs := readAll(t, l, 0, l.LogEndOffset()), l.EpochEntries()
		aborted := len(l.AbortedTxns(0, noOffset))
		var lose *rand.Rand // nil: everything that was not synced
		if seed%2 == 1 {
			lose = rnd
		}
		l = e.crash(e.mem.CrashClone(lose))
		if got := readAll(t, l, 0, l.LogEndOffset()); !bytes.Equal(got, want) {
			t.Fatalf("seed %d: %d bytes are left of %d", seed, len(got), len(want))
		}
		if got := l.EpochEntries(); fmt.Sprint(got) != fmt.Sprint(epochs) {
			t.Errorf("seed %d: epochs %v, want %v", seed, got, epochs)
		}
		if n := len(l.AbortedTxns(0, noOffset)); n != aborted || n != 1 {
			t.Errorf("seed %d: %d aborted transactions, want %d", seed, n, aborted)
		}
		// The producer's first batch is no duplicate of the mirrored one.
		if r := e.lead(l, idem(7, 0, 0, 2), 70001, OriginClient); r.FirstOffset < 0 || l.LogEndOffset() != r.LastOffset+1 {
			t.Errorf("seed %d: the producer id is not free: %+v", seed, r)
		}
	}
}

// TestFailedSync: a sync that fails takes the log offline, and that of another log goes on.
func TestFailedSync(t *testing.T) {
	e := newEnv(t)
	bad := errors.New("disk")
	var failing sync.Map
	e.fs = vfs.Inject(e.mem, func(op vfs.Op, path string) error {
		if _, ok := failing.Load(path); ok && op == vfs.OpSync {
			return bad
		}
		return nil
	})
	a := e.create()
	b, err := e.m.Create("t", 1, testID, 7, e.cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []*Log{a, b} {
		e.lead(l, plain(1, "x"), 0, OriginClient)
		if err := l.Sync(); err != nil {
			t.Fatal(err)
		}
		e.lead(l, plain(1, "y"), 0, OriginClient)
	}
	failing.Store("/data/t-0/00000000000000000000.log", true)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := a.Sync(); !errors.Is(err, bad) {
			t.Errorf("sync of the bad log: %v", err)
		}
	})
	wg.Go(func() {
		if err := b.Sync(); err != nil {
			t.Errorf("sync of the good log: %v", err)
		}
	})
	wg.Wait()
	if a.Err() == nil {
		t.Error("the log is still online after a failed sync")
	}
}

// TestFailedSettle: an error of the background sync is told once by Linux, so the log goes offline with it; a sync later would succeed
// without the bytes. A partition that is deleted meanwhile, or whose file is not there, is no failure.
func TestFailedSettle(t *testing.T) {
	for _, c := range []struct {
		name    string
		op      vfs.Op
		at      string // the file that fails
		err     error
		deleted bool
		offline bool
	}{
		{"metadata", vfs.OpSync, "/data/t-0/partition.metadata", syscall.EIO, false, true},
		{"incarnation", vfs.OpSync, "/data/t-0/stet.incarnation", syscall.EIO, false, true},
		{"directory", vfs.OpSyncDir, "/data/t-0", syscall.EIO, false, true},
		{"parent", vfs.OpSyncDir, "/data", syscall.EIO, false, true},
		{"not there", vfs.OpSyncDir, "/data/t-0", os.ErrNotExist, false, false},
		{"deleted", vfs.OpSync, "/data/t-0/partition.metadata", syscall.EIO, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newEnv(t)
			var l *Log
			armed := false
			e.fs = vfs.Inject(e.mem, func(op vfs.Op, path string) error {
				if !armed || op != c.op || path != c.at {
					return nil
				}
				armed = false
				if c.deleted {
					if err := e.m.Delete("t", 0); err != nil {
						t.Error(err)
					}
				}
				return c.err
			})
			l = e.create()
			e.lead(l, plain(3, "x"), 1, OriginClient)
			armed = true
			e.m.settleNew(context.Background())
			if armed {
				t.Fatal("nothing failed")
			}
			if err := l.Err(); c.offline != (err != nil) || c.offline && !errors.Is(err, c.err) {
				t.Errorf("the log's error: %v", err)
			}
			if got := strings.Contains(e.logs.String(), "partition is offline"); got != c.offline {
				t.Errorf("logged: %v", got)
			}
			if err := l.Sync(); (err != nil) != (c.offline || c.deleted) {
				t.Errorf("a sync afterwards: %v", err)
			}
		})
	}
}
