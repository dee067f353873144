package vfs

import (
	"os"
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Linux's asynchronous I/O can sync files (4.18): one call hands all of them to the kernel, which works on them side by
// side and so with shared journal commits. Blocking calls would each hold up a processor of Go's scheduler until its
// monitor takes it away, for milliseconds.

const (
	iocbFsync = 2
	aioEvents = 256
)

// iocb is the kernel's struct iocb; what a sync has no use for must be zero.
type iocb struct {
	data   uint64
	_      uint64 // key, flags
	opcode uint16
	_      int16 // priority
	fd     uint32
	_      [5]uint64 // buffer, bytes, offset, reserved, flags and event file
}

type ioEvent struct {
	data, obj uint64
	res, res2 int64
}

// aio keeps the kernel's contexts that are not in use: whoever syncs has one to itself, lest a disk that hangs
// holds up another.
var aio struct {
	mu   sync.Mutex
	free []uintptr
	off  bool // there is no asynchronous I/O here
}

func takeContext() (ctx uintptr, ok bool) {
	aio.mu.Lock()
	defer aio.mu.Unlock()
	if n := len(aio.free); n > 0 {
		ctx = aio.free[n-1]
		aio.free = aio.free[:n-1]
		return ctx, true
	}
	if aio.off {
		return 0, false
	}
	if _, _, errno := syscall.Syscall(unix.SYS_IO_SETUP, aioEvents, uintptr(unsafe.Pointer(&ctx)), 0); errno != 0 {
		aio.off = errno == syscall.ENOSYS || errno == syscall.EPERM
		return 0, false
	}
	return ctx, true
}

// syncFiles syncs files through the kernel's asynchronous I/O; false: it cannot be done that way.
func syncFiles(files []*os.File) ([]error, bool) {
	ctx, ok := takeContext()
	if !ok {
		return nil, false
	}
	errs := make([]error, len(files))
	for at := 0; at < len(files) && ok; at += aioEvents {
		n := min(aioEvents, len(files)-at)
		ok = syncSome(ctx, files[at:at+n], errs[at:at+n])
	}
	if ok {
		aio.mu.Lock()
		aio.free = append(aio.free, ctx)
		aio.mu.Unlock()
	}
	return errs, ok
}

// syncSome syncs at most aioEvents files. What the kernel does not take is synced one by one. With false nothing is known
// about the files, and the context is lost.
func syncSome(ctx uintptr, files []*os.File, errs []error) bool {
	blocks := make([]iocb, len(files))
	ptrs := make([]*iocb, len(files))
	for i, f := range files {
		blocks[i] = iocb{data: uint64(i), opcode: iocbFsync, fd: uint32(f.Fd())}
		ptrs[i] = &blocks[i]
	}
	taken := 0
	for taken < len(files) {
		n, _, errno := syscall.Syscall(unix.SYS_IO_SUBMIT, ctx, uintptr(len(files)-taken), uintptr(unsafe.Pointer(&ptrs[taken])))
		if errno == syscall.EINTR {
			continue
		}
		if errno != 0 || n == 0 {
			break
		}
		taken += int(n)
	}
	runtime.KeepAlive(blocks)
	var events [aioEvents]ioEvent
	for left := taken; left > 0; {
		n, _, errno := syscall.Syscall6(unix.SYS_IO_GETEVENTS, ctx, uintptr(left), uintptr(left), uintptr(unsafe.Pointer(&events[0])), 0, 0)
		if errno == syscall.EINTR {
			continue
		}
		if errno != 0 {
			return false
		}
		for _, e := range events[:n] {
			if e.res < 0 {
				f := files[e.data]
				errs[e.data] = &os.PathError{Op: "sync", Path: f.Name(), Err: syscall.Errno(-e.res)}
			}
		}
		left -= int(n)
	}
	for i := taken; i < len(files); i++ {
		errs[i] = files[i].Sync()
	}
	runtime.KeepAlive(files)
	return true
}
