package vfs

import (
	"io"
	"io/fs"
	"os"
	"slices"
	"time"
)

// memFile is an open file of Mem.
type memFile struct {
	m      *Mem
	n      *memNode
	name   string
	write  bool
	closed bool
}

func (f *memFile) check(op string) error {
	if f.closed {
		return pathErr(op, f.name, fs.ErrClosed)
	}
	return nil
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.check("read"); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, pathErr("read", f.name, fs.ErrInvalid)
	}
	if off >= int64(len(f.n.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.n.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.check("write"); err != nil {
		return 0, err
	}
	if !f.write {
		return 0, pathErr("write", f.name, fs.ErrPermission)
	}
	if off < 0 {
		return 0, pathErr("write", f.name, fs.ErrInvalid)
	}
	f.n.resize(max(int64(len(f.n.data)), off+int64(len(p))))
	f.n.mod = time.Now()
	return copy(f.n.data[off:], p), nil
}

func (n *memNode) resize(size int64) {
	old := len(n.data)
	if size <= int64(old) {
		n.data = n.data[:size]
		return
	}
	n.data = slices.Grow(n.data, int(size)-old)[:size]
	clear(n.data[old:])
}

func (f *memFile) Close() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	err := f.check("close")
	f.closed = true
	return err
}

func (f *memFile) Name() string { return f.name }

func (f *memFile) Truncate(size int64) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.check("truncate"); err != nil {
		return err
	}
	if !f.write || size < 0 {
		return pathErr("truncate", f.name, fs.ErrInvalid)
	}
	f.n.resize(size)
	f.n.mod = time.Now()
	return nil
}

func (f *memFile) Stat() (fs.FileInfo, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.check("stat"); err != nil {
		return nil, err
	}
	return memInfo{f.name, int64(len(f.n.data)), false, f.n.mod}, nil
}

func (f *memFile) Sync() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.check("sync"); err != nil {
		return err
	}
	f.n.durable = append(f.n.durable[:0], f.n.data...)
	return nil
}

// OSFile implements File: there is none, callers copy instead of sendfile.
func (f *memFile) OSFile() *os.File { return nil }

type memInfo struct {
	name string
	size int64
	dir  bool
	mod  time.Time
}

func (i memInfo) Name() string       { return i.name }
func (i memInfo) Size() int64        { return i.size }
func (i memInfo) ModTime() time.Time { return i.mod }
func (i memInfo) IsDir() bool        { return i.dir }
func (i memInfo) Sys() any           { return nil }
func (i memInfo) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | 0o755
	}
	return 0o644
}
