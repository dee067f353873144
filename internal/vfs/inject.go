package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Op names an operation for the hook of Inject.
type Op string

// Operations, as the hook of Inject sees them.
const (
	OpOpen      Op = "open"
	OpMkdir     Op = "mkdir"
	OpRename    Op = "rename" // path is the old name
	OpRemove    Op = "remove"
	OpReadDir   Op = "readdir"
	OpStat      Op = "stat"
	OpSyncDir   Op = "syncdir"
	OpLock      Op = "lock"
	OpRead      Op = "read"
	OpWrite     Op = "write"
	OpTruncate  Op = "truncate"
	OpSync      Op = "sync"
	OpCloseFile Op = "close"
)

// ShortWrite is an error for the hook to return: the first N bytes are written, then the
// write fails.
type ShortWrite struct{ N int }

func (e *ShortWrite) Error() string { return fmt.Sprintf("short write of %d bytes", e.N) }

// Inject returns fsys with hook called before every operation, also those of its files;
// an error from the hook is returned instead of doing the operation. The hook may be
// called from several goroutines.
func Inject(fsys FS, hook func(op Op, path string) error) FS { return &injectFS{fsys, hook} }

type injectFS struct {
	fs   FS
	hook func(op Op, path string) error
}

type injectFile struct {
	File
	fs *injectFS
}

func (i *injectFS) do(op Op, path string) error {
	if err := i.hook(op, path); err != nil {
		return &fs.PathError{Op: string(op), Path: path, Err: err}
	}
	return nil
}

func (i *injectFS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	if err := i.do(OpOpen, name); err != nil {
		return nil, err
	}
	f, err := i.fs.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &injectFile{f, i}, nil
}

func (i *injectFS) MkdirAll(dir string, perm fs.FileMode) error {
	if err := i.do(OpMkdir, dir); err != nil {
		return err
	}
	return i.fs.MkdirAll(dir, perm)
}

func (i *injectFS) Rename(oldname, newname string) error {
	if err := i.do(OpRename, oldname); err != nil {
		return err
	}
	return i.fs.Rename(oldname, newname)
}

func (i *injectFS) Remove(name string) error {
	if err := i.do(OpRemove, name); err != nil {
		return err
	}
	return i.fs.Remove(name)
}

func (i *injectFS) RemoveAll(name string) error {
	if err := i.do(OpRemove, name); err != nil {
		return err
	}
	return i.fs.RemoveAll(name)
}

func (i *injectFS) ReadDir(dir string) ([]fs.DirEntry, error) {
	if err := i.do(OpReadDir, dir); err != nil {
		return nil, err
	}
	return i.fs.ReadDir(dir)
}

func (i *injectFS) Stat(name string) (fs.FileInfo, error) {
	if err := i.do(OpStat, name); err != nil {
		return nil, err
	}
	return i.fs.Stat(name)
}

func (i *injectFS) SyncDir(dir string) error {
	if err := i.do(OpSyncDir, dir); err != nil {
		return err
	}
	return i.fs.SyncDir(dir)
}

func (i *injectFS) Lock(name string) (io.Closer, error) {
	if err := i.do(OpLock, name); err != nil {
		return nil, err
	}
	return i.fs.Lock(name)
}

func (f *injectFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.fs.do(OpRead, f.Name()); err != nil {
		return 0, err
	}
	return f.File.ReadAt(p, off)
}

func (f *injectFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.fs.do(OpWrite, f.Name()); err != nil {
		var short *ShortWrite
		if errors.As(err, &short) && short.N < len(p) {
			n, werr := f.File.WriteAt(p[:short.N], off)
			if werr != nil {
				return n, werr
			}
			return n, err
		}
		return 0, err
	}
	return f.File.WriteAt(p, off)
}

func (f *injectFile) Truncate(size int64) error {
	if err := f.fs.do(OpTruncate, f.Name()); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f *injectFile) Sync() error {
	if err := f.fs.do(OpSync, f.Name()); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *injectFile) Close() error {
	if err := f.fs.do(OpCloseFile, f.Name()); err != nil {
		_ = f.File.Close() // the handle is gone either way, as with close(2)
		return err
	}
	return f.File.Close()
}

// OSFile hides the file of the operating system, so that nothing passes by the hook.
func (f *injectFile) OSFile() *os.File { return nil }
