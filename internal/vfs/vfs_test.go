package vfs

import (
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// both runs a test on the operating system's file system and on the one in memory.
func both(t *testing.T, f func(t *testing.T, fsys FS, dir string)) {
	t.Run("os", func(t *testing.T) { f(t, OS, t.TempDir()) })
	t.Run("mem", func(t *testing.T) {
		m := NewMem()
		if err := m.MkdirAll("/d", 0o755); err != nil {
			t.Fatal(err)
		}
		f(t, m, "/d")
	})
}

func create(t *testing.T, fsys FS, name, content string) File {
	t.Helper()
	f, err := fsys.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte(content), 0); err != nil {
		t.Fatal(err)
	}
	return f
}

func read(t *testing.T, fsys FS, name string) string {
	t.Helper()
	f, err := fsys.OpenFile(name, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return "<none>"
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p := make([]byte, 100)
	n, err := f.ReadAt(p, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return string(p[:n])
}

func TestFiles(t *testing.T) {
	both(t, func(t *testing.T, fsys FS, dir string) {
		a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
		f := create(t, fsys, a, "hello")
		if _, err := f.WriteAt([]byte("!"), 7); err != nil {
			t.Fatal(err)
		}
		if got := read(t, fsys, a); got != "hello\x00\x00!" {
			t.Fatalf("%q", got)
		}
		p := make([]byte, 3)
		if n, err := f.ReadAt(p, 6); n != 2 || !errors.Is(err, io.EOF) {
			t.Fatalf("%d %v", n, err)
		}
		if n, err := f.ReadAt(p, 100); n != 0 || !errors.Is(err, io.EOF) {
			t.Fatalf("%d %v", n, err)
		}
		if err := f.Truncate(4); err != nil {
			t.Fatal(err)
		}
		if st, err := f.Stat(); err != nil || st.Size() != 4 {
			t.Fatal(st, err)
		}
		// An open file survives rename, replacement and removal.
		create(t, fsys, b, "other").Close()
		if err := fsys.Rename(a, b); err != nil {
			t.Fatal(err)
		}
		if read(t, fsys, a) != "<none>" || read(t, fsys, b) != "hell" {
			t.Fatal("rename")
		}
		if err := fsys.Remove(b); err != nil {
			t.Fatal(err)
		}
		if n, err := f.ReadAt(p, 0); n != 3 || err != nil {
			t.Fatalf("%d %v", n, err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(p, 0); !errors.Is(err, fs.ErrClosed) {
			t.Fatalf("a write to a closed file: %v", err)
		}
		if err := fsys.Remove(b); !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if _, err := fsys.Stat(b); !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if _, err := fsys.OpenFile(filepath.Join(dir, "x/y"), os.O_CREATE|os.O_RDWR, 0o644); !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	})
}

func TestDirectories(t *testing.T) {
	both(t, func(t *testing.T, fsys FS, dir string) {
		if err := fsys.MkdirAll(filepath.Join(dir, "p/q"), 0o755); err != nil {
			t.Fatal(err)
		}
		create(t, fsys, filepath.Join(dir, "p/2"), "22").Close()
		create(t, fsys, filepath.Join(dir, "p/1"), "1").Close()
		es, err := fsys.ReadDir(filepath.Join(dir, "p"))
		if err != nil || len(es) != 3 || es[0].Name() != "1" || es[1].Name() != "2" || !es[2].IsDir() {
			t.Fatal(es, err)
		}
		if i, err := es[1].Info(); err != nil || i.Size() != 2 {
			t.Fatal(err)
		}
		if err := fsys.Remove(filepath.Join(dir, "p")); err == nil {
			t.Fatal("a directory with files was removed")
		}
		if err := fsys.Rename(filepath.Join(dir, "p"), filepath.Join(dir, "r")); err != nil {
			t.Fatal(err)
		}
		if got := read(t, fsys, filepath.Join(dir, "r/1")); got != "1" {
			t.Fatal(got)
		}
		if err := fsys.SyncDir(filepath.Join(dir, "r")); err != nil {
			t.Fatal(err)
		}
		if err := fsys.RemoveAll(filepath.Join(dir, "r")); err != nil {
			t.Fatal(err)
		}
		if _, err := fsys.ReadDir(filepath.Join(dir, "r")); !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if err := fsys.RemoveAll(filepath.Join(dir, "r")); err != nil {
			t.Fatal(err)
		}
	})
}

func TestLock(t *testing.T) {
	both(t, func(t *testing.T, fsys FS, dir string) {
		name := filepath.Join(dir, ".lock")
		l, err := fsys.Lock(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fsys.Lock(name); !errors.Is(err, ErrLocked) {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l, err = fsys.Lock(name)
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
	})
}

func TestCrashKeepsWhatWasSynced(t *testing.T) {
	m := NewMem()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(m.MkdirAll("/d", 0o755))
	must(m.SyncDir("/"))
	f := create(t, m, "/d/a", "old")
	must(f.Sync())
	create(t, m, "/d/gone", "x").Close()
	must(m.SyncDir("/d"))
	if _, err := f.WriteAt([]byte("newer"), 0); err != nil {
		t.Fatal(err)
	}
	create(t, m, "/d/b", "b").Close()
	must(m.Rename("/d/a", "/d/c"))
	must(m.Remove("/d/gone"))

	c := m.CrashClone(nil)
	for name, want := range map[string]string{"/d/a": "old", "/d/b": "<none>", "/d/c": "<none>", "/d/gone": ""} {
		if got := read(t, c, name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	k := m.Clone()
	for name, want := range map[string]string{"/d/a": "<none>", "/d/b": "b", "/d/c": "newer", "/d/gone": "<none>"} {
		if got := read(t, k, name); got != want {
			t.Errorf("killed: %s: %q, want %q", name, got, want)
		}
	}
	// The random clone is between the two, is the same for the same seed, and does not
	// write back to the original.
	seen := map[string]bool{}
	for seed := range uint64(200) {
		a := m.CrashClone(rand.New(rand.NewPCG(seed, 0)))
		b := m.CrashClone(rand.New(rand.NewPCG(seed, 0)))
		state := read(t, a, "/d/a") + "|" + read(t, a, "/d/b") + "|" + read(t, a, "/d/c") + "|" + read(t, a, "/d/gone")
		if again := read(t, b, "/d/a") + "|" + read(t, b, "/d/b") + "|" + read(t, b, "/d/c") + "|" + read(t, b, "/d/gone"); state != again {
			t.Fatalf("seed %d: %q and %q", seed, state, again)
		}
		if read(t, a, "/d/a") != "<none>" && read(t, a, "/d/c") != "<none>" {
			t.Fatalf("seed %d: a rename left both names", seed)
		}
		if read(t, a, "/d/gone") == "<none>" && read(t, a, "/d/b") == "<none>" {
			t.Fatalf("seed %d: a later change of the directory survived an earlier one", seed)
		}
		seen[state] = true
		create(t, a, "/d/z", "z").Close()
	}
	if len(seen) < 6 {
		t.Fatalf("only %d different outcomes", len(seen))
	}
	if read(t, m, "/d/z") != "<none>" {
		t.Fatal("the clone shares state with the original")
	}
	must(m.SyncDir("/d"))
	if got := read(t, m.CrashClone(nil), "/d/c"); got != "old" {
		t.Fatalf("%q", got)
	}
}

func TestInject(t *testing.T) {
	boom := errors.New("boom")
	fail := Op("")
	var ops []Op
	short := false
	m := NewMem()
	fsys := Inject(m, func(op Op, path string) error {
		ops = append(ops, op)
		if op == fail {
			if short {
				return &ShortWrite{N: 2}
			}
			return boom
		}
		return nil
	})
	f := create(t, fsys, "/a", "x")
	closing := create(t, fsys, "/g", "")
	calls := map[Op]func() error{
		OpOpen:      func() error { _, err := fsys.OpenFile("/b", os.O_CREATE|os.O_RDWR, 0o644); return err },
		OpMkdir:     func() error { return fsys.MkdirAll("/dir", 0o755) },
		OpRename:    func() error { return fsys.Rename("/a", "/c") },
		OpRemove:    func() error { return fsys.Remove("/a") },
		OpReadDir:   func() error { _, err := fsys.ReadDir("/"); return err },
		OpStat:      func() error { _, err := fsys.Stat("/a"); return err },
		OpSyncDir:   func() error { return fsys.SyncDir("/") },
		OpLock:      func() error { _, err := fsys.Lock("/l"); return err },
		OpRead:      func() error { _, err := f.ReadAt(make([]byte, 1), 0); return err },
		OpWrite:     func() error { _, err := f.WriteAt([]byte("y"), 0); return err },
		OpTruncate:  func() error { return f.Truncate(0) },
		OpSync:      func() error { return f.Sync() },
		OpCloseFile: func() error { return closing.Close() },
	}
	for op, call := range calls {
		fail = op
		ops = nil
		if err := call(); !errors.Is(err, boom) {
			t.Errorf("%s: %v", op, err)
		}
		if len(ops) == 0 || ops[len(ops)-1] != op {
			t.Errorf("%s: %v", op, ops)
		}
	}
	if got := read(t, m, "/a"); got != "x" {
		t.Fatalf("a failed operation was done: %q", got)
	}
	fail, short = OpWrite, true
	if n, err := f.WriteAt([]byte("abcd"), 0); n != 2 || err == nil {
		t.Fatalf("%d %v", n, err)
	}
	if got := read(t, m, "/a"); got != "ab" {
		t.Fatalf("%q", got)
	}
	if f.OSFile() != nil {
		t.Fatal("the file of the operating system would pass by the hook")
	}
}
