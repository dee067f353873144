package vfs

import "syscall"

// syncFileRangeWrite is SYNC_FILE_RANGE_WRITE: start writing dirty pages, wait for nothing.
const syncFileRangeWrite = 2

// WriteBack implements WriteBacker.
func (f *osFile) WriteBack(off, n int64) error {
	return syscall.SyncFileRange(int(f.f.Fd()), off, n, syncFileRangeWrite)
}
