package vfs

import "syscall"

// syncFileRangeWrite is SYNC_FILE_RANGE_WRITE: start writing dirty pages, wait for nothing.
const syncFileRangeWrite = 2

// WriteBack implements WriteBacker.
func (f *osFile) WriteBack(off, n int64) error {
	return syscall.SyncFileRange(int(f.f.Fd()), off, n, syncFileRangeWrite)
}

// fallocKeepSize is FALLOC_FL_KEEP_SIZE: blocks are reserved, the size stays.
const fallocKeepSize = 1

// Preallocate implements Preallocator.
func (f *osFile) Preallocate(size int64) error {
	return syscall.Fallocate(int(f.f.Fd()), fallocKeepSize, 0, size)
}
