package log

import (
	"bytes"
	"fmt"
	"log/slog"
	"path"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"stet/internal/clock"
	"stet/internal/vfs"
)

// twoDirs is a manager with two directories of n partitions each, none of it flushed.
func twoDirs(t *testing.T, n int) *vfs.Mem {
	t.Helper()
	mem := vfs.NewMem()
	for _, dir := range []string{"/a", "/b"} {
		m, err := OpenManager(ManagerOptions{FS: mem, Dirs: []string{dir}, NodeID: 1, ClusterID: "c", Clock: clock.NewManual(t0)}, func(string) Config { return DefaultConfig() })
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			l, err := m.Create("t"+path.Base(dir), int32(i), testID, 7, DefaultConfig())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := l.AppendAsLeader(plain(2, "v"), 0, OriginClient); err != nil {
				t.Fatal(err)
			}
		}
	}
	return mem.Clone() // without the locks
}

// TestRecoveryInParallel: num.recovery.threads.per.data.dir partitions of each directory are
// recovered at the same time, of all directories together, and never more. Every log file is
// held when it is opened, so that what runs at once can be counted.
func TestRecoveryInParallel(t *testing.T) {
	for _, threads := range []int{1, 2, 5} {
		t.Run(fmt.Sprint(threads), func(t *testing.T) {
			const partitions = 9
			mem := twoDirs(t, partitions)
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				held, seen := map[string]int{}, map[string]int{}
				next := make(chan struct{})
				hold := true
				fsys := vfs.Inject(mem, func(op vfs.Op, name string) error {
					mu.Lock()
					if op != vfs.OpOpen || !strings.HasSuffix(name, logSuffix) || !hold {
						mu.Unlock()
						return nil
					}
					dir := path.Dir(path.Dir(name))
					held[dir]++
					seen[dir]++
					mu.Unlock()
					<-next
					mu.Lock()
					held[dir]--
					mu.Unlock()
					return nil
				})
				done := make(chan error, 1)
				var m *Manager
				go func() {
					var err error
					m, err = OpenManager(ManagerOptions{FS: fsys, Dirs: []string{"/a", "/b"}, NodeID: 1, Clock: clock.NewManual(t0), RecoveryThreads: threads}, func(string) Config { return DefaultConfig() })
					done <- err
				}()
				for range partitions * 2 {
					synctest.Wait()
					mu.Lock()
					for _, dir := range []string{"/a", "/b"} {
						if want := min(threads, partitions-(seen[dir]-held[dir])); held[dir] != want {
							t.Errorf("%s: %d at once, %d so far; want %d at once", dir, held[dir], seen[dir], want)
						}
					}
					mu.Unlock()
					next <- struct{}{}
				}
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				if n := len(m.Logs()); n != 2*partitions {
					t.Errorf("%d partitions", n)
				}
				for _, l := range m.Logs() {
					if l.LogEndOffset() != 2 || l.Recovered().ScannedBytes == 0 {
						t.Errorf("%s: end %d, %+v", l.tp, l.LogEndOffset(), l.Recovered())
					}
				}
				mu.Lock()
				hold = false
				mu.Unlock()
				if err := m.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestPartitionInTwoDirectories: the first directory of log.dirs counts, however fast the
// other one is, and the second copy is named.
func TestPartitionInTwoDirectories(t *testing.T) {
	mem := twoDirs(t, 1)
	if err := mem.Rename("/b/tb-0", "/b/ta-0"); err != nil {
		t.Fatal(err)
	}
	for _, dirs := range [][]string{{"/a", "/b"}, {"/b", "/a"}} {
		var logs bytes.Buffer
		m, err := OpenManager(ManagerOptions{FS: mem, Dirs: dirs, NodeID: 1, Clock: clock.NewManual(t0), Logger: slog.New(slog.NewTextHandler(&logs, nil))}, func(string) Config { return DefaultConfig() })
		if err != nil {
			t.Fatal(err)
		}
		if l := m.Get("ta", 0); l == nil || l.Err() != nil || path.Dir(l.Dir()) != dirs[0] {
			t.Errorf("%v: %+v", dirs, l)
		}
		if s := logs.String(); !strings.Contains(s, "the partition is also in "+dirs[0]+"/ta-0") {
			t.Errorf("%v: %s", dirs, s)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestRecoveryKeepsNoIndexes: what was scanned does not stay in memory.
func TestRecoveryKeepsNoIndexes(t *testing.T) {
	e := epochLog(t, 2)
	l := e.crash(e.mem.Clone())
	if l.Recovered().ScannedBytes == 0 || len(l.segs) < 4 {
		t.Fatalf("%+v, %d segments", l.Recovered(), len(l.segs))
	}
	for _, s := range l.segs[:len(l.segs)-1] {
		if s.idx != nil {
			t.Errorf("the index of segment %d is in memory", s.base)
		}
	}
}
