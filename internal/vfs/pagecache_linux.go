package vfs

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sysCachestat is cachestat(2), Linux 6.5; the number is the same on all architectures.
const sysCachestat = 451

type cachestatRange struct{ off, len uint64 }

type cachestat struct{ cached, dirty, writeback, evicted, recentlyEvicted uint64 }

// noCachestat is set when the kernel has no cachestat, or a sandbox forbids it.
var noCachestat atomic.Bool

var pageSize = int64(os.Getpagesize())

// Resident implements PageCacher.
func (f *osFile) Resident(off, n int64) (int64, error) {
	if n <= 0 {
		return 0, nil
	}
	if !noCachestat.Load() {
		pages, err := cachedPages(f.f.Fd(), off, n)
		if err == nil {
			return min(pages*pageSize, n), nil
		}
		if !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM) {
			return 0, unsupported(err)
		}
		noCachestat.Store(true)
	}
	return mincore(int(f.f.Fd()), off, n)
}

func cachedPages(fd uintptr, off, n int64) (int64, error) {
	r, s := cachestatRange{uint64(off), uint64(n)}, cachestat{}
	_, _, e := unix.Syscall6(sysCachestat, fd, uintptr(unsafe.Pointer(&r)), uintptr(unsafe.Pointer(&s)), 0, 0, 0)
	if e != 0 {
		return 0, e
	}
	return int64(s.cached), nil
}

// mincore asks older kernels, through a mapping.
func mincore(fd int, off, n int64) (int64, error) {
	from := off &^ (pageSize - 1)
	size := off + n - from
	m, err := unix.Mmap(fd, from, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return 0, unsupported(err)
	}
	defer func() { _ = unix.Munmap(m) }()
	vec := make([]byte, (size+pageSize-1)/pageSize)
	_, _, e := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&m[0])), uintptr(size), uintptr(unsafe.Pointer(&vec[0])))
	if e != 0 {
		return 0, unsupported(e)
	}
	pages := int64(0)
	for _, v := range vec {
		pages += int64(v & 1)
	}
	return min(pages*pageSize, n), nil
}

func unsupported(err error) error { return fmt.Errorf("%w: %w", errors.ErrUnsupported, err) }

// WillNeed implements PageCacher.
func (f *osFile) WillNeed(off, n int64) error {
	return unix.Fadvise(int(f.f.Fd()), off, n, unix.FADV_WILLNEED)
}

// DontNeed implements PageCacher.
func (f *osFile) DontNeed(off, n int64) error {
	return unix.Fadvise(int(f.f.Fd()), off, n, unix.FADV_DONTNEED)
}
