package vfs

import (
	"path/filepath"
	"testing"
)

// TestPageCacher: both ways of counting agree, and advice is taken.
func TestPageCacher(t *testing.T) {
	f := create(t, OS, filepath.Join(t.TempDir(), "a"), string(make([]byte, 1<<20)))
	defer f.Close()
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	p := f.(PageCacher)
	count := func(off, n int64) int64 {
		t.Helper()
		a, err := p.Resident(off, n)
		if err != nil {
			t.Skipf("PAGES IN MEMORY CANNOT BE COUNTED HERE: %v", err)
		}
		for try := 0; ; try++ { // the system may take pages back in between
			b, err := mincore(int(f.OSFile().Fd()), off, n)
			if err == nil && a == b {
				return a
			}
			if err != nil || try == 10 {
				t.Fatalf("cachestat %d, mincore %d, %v", a, b, err)
			}
			if a, err = p.Resident(off, n); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := count(0, 1<<20); n != 1<<20 {
		t.Fatalf("%d bytes of a file just written", n)
	}
	if n := count(100<<10, 10); n != 10 {
		t.Fatalf("%d of 10 bytes", n)
	}
	if n, err := p.Resident(0, 0); n != 0 || err != nil {
		t.Fatalf("%d of 0 bytes, %v", n, err)
	}
	if err := p.DontNeed(0, 512<<10); err != nil {
		t.Fatal(err)
	}
	if n := count(0, 1<<20); n == 1<<20 {
		t.Skip("THIS FILE SYSTEM KEEPS ALL PAGES IN MEMORY")
	} else if n != 512<<10 {
		t.Fatalf("%d bytes after half was dropped", n)
	}
	if err := p.WillNeed(0, 512<<10); err != nil {
		t.Fatal(err)
	}
}
