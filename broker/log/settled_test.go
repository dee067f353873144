package log

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"stet/internal/vfs"
)

// start opens /a and /b and asks for the partitions of an image with topic t of an incarnation.
func (e *env) start(incarnation int64, partitions int32) (logs []*Log) {
	e.t.Helper()
	m, err := OpenManager(ManagerOptions{
		FS: e.fs, Dirs: []string{"/a", "/b"}, NodeID: 1, Clock: e.clock, Logger: slog.New(slog.NewTextHandler(&e.logs, nil)),
	}, func(string) Config { return e.cfg })
	if err != nil {
		e.t.Fatal(err)
	}
	e.m = m
	for p := range partitions {
		l, err := m.Create("t", p, testID, incarnation, e.cfg)
		if err != nil {
			e.t.Fatal(err)
		}
		logs = append(logs, l)
	}
	m.ImageApplied()
	return logs
}

// filled is a start with 4 partitions of 3 records each, synced.
func (e *env) filled() {
	e.t.Helper()
	for _, l := range e.start(7, 4) {
		e.lead(l, plain(3, "x"), 0, OriginClient)
		if err := l.Flush(); err != nil {
			e.t.Fatal(err)
		}
	}
}

// die ends the manager without a stop.
func (e *env) die() {
	e.mem, e.m = e.mem.Clone(), nil
	e.fs = e.mem
}

func (e *env) exists(name string) bool {
	_, err := e.fs.Stat(name)
	return err == nil
}

func (e *env) wantLost(l *Log, lost bool) {
	e.t.Helper()
	if !lost {
		if l.Err() != nil || l.LogEndOffset() != 3 {
			e.t.Errorf("%s: end %d, %v", l.Dir(), l.LogEndOffset(), l.Err())
		}
		return
	}
	if err := l.Err(); !errors.Is(err, ErrStorage) || !strings.Contains(err.Error(), "restore it") {
		e.t.Errorf("%s: %v", l.Dir(), err)
	}
	if e.exists(l.Dir()) {
		e.t.Errorf("%s was made again", l.Dir())
	}
	named := false
	for line := range strings.Lines(e.logs.String()) {
		named = named || strings.Contains(line, fmt.Sprintf("partition=%d ", l.Partition())) && strings.Contains(line, filepath.Dir(l.Dir())) && strings.Contains(line, "restore it")
	}
	if !named {
		e.t.Errorf("no line names %s", l.Dir())
	}
}

// TestLostPartitionIsNotMadeAgain: a partition directory that was removed while the broker was away, after a clean stop and
// after a crash, is offline and not empty; it is back when the files are, and free again once its topic is deleted.
func TestLostPartitionIsNotMadeAgain(t *testing.T) {
	for _, clean := range []bool{true, false} {
		t.Run(fmt.Sprint("clean=", clean), func(t *testing.T) {
			e := newEnv(t)
			e.filled()
			if clean {
				if err := e.m.Close(); err != nil {
					t.Fatal(err)
				}
			} else {
				e.m.Checkpoint()
				e.die()
			}
			whole := e.mem.Clone()
			lost := "/b/t-1"
			if !e.exists(lost) {
				t.Fatal("t-1 is elsewhere")
			}
			if err := e.fs.RemoveAll(lost); err != nil {
				t.Fatal(err)
			}
			for range 2 { // it stays lost
				for p, l := range e.start(7, 4) {
					e.wantLost(l, p == 1)
				}
				e.m.Checkpoint()
				if err := e.m.Close(); !errors.Is(err, ErrStorage) {
					t.Fatalf("close: %v", err)
				}
			}
			for p, l := range e.start(8, 4) { // deleted and made again while nothing was noted: another incarnation
				if l.Err() != nil || l.LogEndOffset() != 0 {
					t.Errorf("partition %d of the new topic: %v", p, l.Err())
				}
			}
			e.mem = whole
			e.fs = whole
			for _, l := range e.start(7, 4) {
				e.wantLost(l, false)
			}
		})
	}
}

// TestDeletionForgetsLostPartitions: after the deletion of a topic of a lost volume the directory is used as a new one.
func TestDeletionForgetsLostPartitions(t *testing.T) {
	e := newEnv(t)
	e.filled()
	if err := e.m.Close(); err != nil {
		t.Fatal(err)
	}
	if err := e.fs.RemoveAll("/b"); err != nil {
		t.Fatal(err)
	}
	e.start(7, 4)
	for p := range int32(4) {
		if err := e.m.Delete("t", p); err != nil {
			t.Errorf("delete %d: %v", p, err)
		}
	}
	_ = e.m.Close() // not clean: a directory is offline
	if e.start(7, 0); e.m.DirSizes()[1].Err != nil || !e.exists("/b/"+metaFile) {
		t.Errorf("the directory is not taken again: %v", e.m.DirSizes()[1].Err)
	}
	if err := e.m.Close(); err != nil {
		t.Error(err)
	}
}

// TestLostVolumeStaysEmpty: a log directory that is an empty mount point, or gone, is offline and nothing is written to it;
// new topics go to the other one, and with the volume all is back.
func TestLostVolumeStaysEmpty(t *testing.T) {
	for _, mountPoint := range []bool{true, false} {
		t.Run(fmt.Sprint("mountPoint=", mountPoint), func(t *testing.T) {
			e := newEnv(t)
			e.filled()
			if err := e.m.Close(); err != nil {
				t.Fatal(err)
			}
			if err := e.fs.Rename("/b", "/elsewhere"); err != nil {
				t.Fatal(err)
			}
			if mountPoint {
				if err := e.fs.MkdirAll("/b", 0o755); err != nil {
					t.Fatal(err)
				}
			}
			lost := 0
			for _, l := range e.start(7, 4) {
				if strings.HasPrefix(l.Dir(), "/b/") {
					lost++
				}
				e.wantLost(l, strings.HasPrefix(l.Dir(), "/b/"))
			}
			if lost != 2 || e.m.DirSizes()[1].Err == nil {
				t.Errorf("%d partitions are lost, directory: %v", lost, e.m.DirSizes()[1].Err)
			}
			for p := range int32(3) {
				if l, err := e.m.Create("new", p, [16]byte{9}, 9, e.cfg); err != nil || !strings.HasPrefix(l.Dir(), "/a/") {
					t.Errorf("new-%d: %v %v", p, l, err)
				}
			}
			e.m.Checkpoint()
			_ = e.m.Close() // not clean: a directory is offline
			if entries, err := e.fs.ReadDir("/b"); mountPoint == (err != nil) || len(entries) > 0 {
				t.Errorf("in the mount point: %v, %v", entries, err)
			}
			if err := errors.Join(e.fs.RemoveAll("/b"), e.fs.Rename("/elsewhere", "/b")); err != nil {
				t.Fatal(err)
			}
			for _, l := range e.start(7, 4) {
				e.wantLost(l, false)
			}
		})
	}
}

// TestNewPartitionIsNotLost: a topic whose directories a crash prevented, or whose unsynced directory a power failure took,
// is made at the start.
func TestNewPartitionIsNotLost(t *testing.T) {
	e := newEnv(t)
	e.filled()
	l, err := e.m.Create("t", 4, testID, 7, e.cfg) // nothing of it is synced
	if err != nil {
		t.Fatal(err)
	}
	e.m.Checkpoint()
	e.die()
	if err := e.fs.RemoveAll(l.Dir()); err != nil {
		t.Fatal(err)
	}
	for p, l := range e.start(7, 6) {
		if l.Err() != nil || p >= 4 && l.LogEndOffset() != 0 {
			t.Errorf("partition %d: %v", p, l.Err())
		}
	}
}

// TestSettledFileDamaged: without the file nothing is taken for lost, and it is named.
func TestSettledFileDamaged(t *testing.T) {
	for _, text := range []string{"", "0\n", "0\n2\nt 0 7 \"/a\"\n", "1\n1\nt 0 7 \"/a\"\n", "0\n1\nt 0 x \"/a\"\n", "0\n1\nt 0 7 /a\n", "0\n1\nt 0\n", "0\n1\nt 0 7 \"/a\""} {
		e := newEnv(t)
		e.filled()
		if err := e.m.Close(); err != nil {
			t.Fatal(err)
		}
		if err := writeFile(e.fs, "/a/"+settledFile, []byte(text), true); err != nil {
			t.Fatal(err)
		}
		for _, l := range e.start(7, 4) {
			e.wantLost(l, false)
		}
		if !strings.Contains(e.logs.String(), settledFile) {
			t.Errorf("%q is not named", text)
		}
		if err := e.m.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPlacementPassesOverAFullDisk: the directory that fails while a partition is being made there is passed over.
func TestPlacementPassesOverAFullDisk(t *testing.T) {
	e := newEnv(t)
	full := false
	e.fs = vfs.Inject(e.mem, func(op vfs.Op, path string) error {
		if full && op == vfs.OpWrite && strings.HasPrefix(path, "/a/new") {
			return syscall.ENOSPC
		}
		return nil
	})
	e.start(7, 0)
	full = true
	for p := range int32(2) {
		if l, err := e.m.Create("new", p, testID, 7, e.cfg); err != nil || !strings.HasPrefix(l.Dir(), "/b/") {
			t.Fatalf("new-%d: %v %v", p, l, err)
		}
	}
	if e.exists("/a/new-0") || e.m.DirSizes()[0].Err == nil {
		t.Errorf("what was begun is still there, or the directory online: %v", e.m.DirSizes()[0].Err)
	}
}
