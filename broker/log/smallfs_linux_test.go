package log

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"

	"stet/internal/clock"
)

// TestSmallFileSystem fills a real file system of 4 MB. The partition goes offline with what
// was acknowledged on it, and is back after a restart once there is room.
func TestSmallFileSystem(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Skipf("a file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	ballast := dir + "/ballast"
	if err := os.WriteFile(ballast, make([]byte, 1<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	cfg := DefaultConfig()
	cfg.SegmentBytes = 200 << 10
	open := func() *Manager {
		m, err := OpenManager(ManagerOptions{Dirs: []string{dir}, NodeID: 1, Clock: clock.System}, func(string) Config { return cfg })
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	m := open()
	l, err := m.Create("t", 0, testID, 7, cfg)
	if err != nil {
		t.Fatal(err)
	}
	var want []byte
	for i := range 10_000 {
		b := plain(20, fmt.Sprint(i))
		if _, err = l.AppendAsLeader(b, 0, OriginCoordinator); err != nil {
			break
		}
		want = append(want, b...)
	}
	if !errors.Is(err, syscall.ENOSPC) || !errors.Is(err, ErrStorage) || len(want) < 1<<20 {
		t.Fatalf("after %d bytes: %v", len(want), err)
	}
	if d := m.DirSizes()[0]; d.Err == nil {
		t.Error("the directory is not shown as failed")
	}
	if err := m.Close(); err == nil {
		t.Error("a clean shutdown of a full disk")
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	m = open()
	l = m.Get("t", 0)
	if l == nil || l.Err() != nil {
		t.Fatal("the partition is not back")
	}
	if got := readAll(t, l, 0, l.LogEndOffset()); !bytes.Equal(got, want) {
		t.Errorf("%d bytes are back, %d were acknowledged", len(got), len(want))
	}
	if _, err := l.AppendAsLeader(plain(1, "goes on"), 0, OriginClient); err != nil {
		t.Error(err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}
