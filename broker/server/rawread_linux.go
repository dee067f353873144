package server

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	haveRawRead = true
	// rawRead bounds the bytes of one read that Go's scheduler is not told of: a socket that does not block gives them in
	// microseconds, and telling may wake the runtime's monitor thread.
	rawRead = 256 << 10
)

// readRaw reads at most rawRead bytes from a descriptor that does not block.
func readRaw(fd uintptr, p []byte) (int, error) {
	p = p[:min(len(p), rawRead)]
	n, _, e := unix.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
	if e != 0 {
		return 0, e
	}
	return int(n), nil
}
