package vfs

import (
	"io"
	"io/fs"
	"os"
)

// FS is a file system. Paths are those of the operating system. Errors satisfy
// errors.Is with fs.ErrNotExist, fs.ErrExist and fs.ErrPermission where those apply.
type FS interface {
	// OpenFile opens with os.O_* flags.
	OpenFile(name string, flag int, perm fs.FileMode) (File, error)
	MkdirAll(dir string, perm fs.FileMode) error
	// Rename replaces newname atomically; durable after SyncDir of the parent.
	Rename(oldname, newname string) error
	Remove(name string) error
	RemoveAll(name string) error
	ReadDir(dir string) ([]fs.DirEntry, error)
	Stat(name string) (fs.FileInfo, error)
	// SyncDir makes creations, renames and removals in dir durable.
	SyncDir(dir string) error
	// Lock takes an exclusive lock on name, created when missing, until Close.
	// A lock held by another process or opener is an error wrapping ErrLocked.
	Lock(name string) (io.Closer, error)
}

// File is an open file with positional access only.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Name() string
	Truncate(size int64) error
	Stat() (fs.FileInfo, error)
	// Sync makes contents and size durable.
	Sync() error
	// OSFile returns the operating system's file, for sendfile, or nil.
	OSFile() *os.File
}

// WriteBacker is implemented by files that can start writing a range to disk without
// waiting for it. It promises nothing about durability; it keeps a later Sync short.
type WriteBacker interface {
	WriteBack(off, n int64) error
}

// Preallocator is implemented by files that can reserve blocks without changing their size.
// What lies beyond the size is given back by Truncate.
type Preallocator interface {
	Preallocate(size int64) error
}

// PageCacher is implemented by files whose pages the operating system keeps in memory and can
// be advised about. All of it is advice: a failure is no failure of the file. Offsets and
// lengths are bytes.
type PageCacher interface {
	// Resident is how many bytes of the range are in memory. An error wrapping
	// errors.ErrUnsupported says that it cannot be found out, then or ever.
	Resident(off, n int64) (int64, error)
	// WillNeed starts reading the range into memory.
	WillNeed(off, n int64) error
	// DontNeed drops the whole pages of the range from memory, except those that are not
	// yet on disk or in use.
	DontNeed(off, n int64) error
}
