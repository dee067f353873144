package zerocopy

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// HaveSendfile says whether this build can send file ranges without copying them.
const HaveSendfile = true

const (
	// maxSendfile keeps one system call from monopolising the thread on a fast socket.
	maxSendfile = 4 << 20
	// rawSend is up to how many bytes a send does not tell Go's scheduler of the system call: a socket that does not
	// block takes them in microseconds, and telling may wake the runtime's monitor thread.
	rawSend = 64 << 10
)

// Sendfile sends n bytes of file from offset off to the socket behind conn. It gives the
// offset explicitly and neither reads nor moves the file's own position, which is shared
// by all readers. It returns how many bytes were sent. A file that ends early gives
// io.ErrUnexpectedEOF: the response cannot be completed and the connection must be
// closed, as after any error. Write deadlines of the connection apply.
func Sendfile(conn syscall.RawConn, file *os.File, off int64, n int) (sent int, err error) {
	src, err := file.SyscallConn()
	if err != nil {
		return 0, err
	}
	// Control keeps the descriptor open while the socket is waited for.
	d := newDirect(conn, func() {})
	if cerr := src.Control(func(uintptr) { sent, err = d.sendfile(file, off, n) }); err == nil {
		err = cerr
	}
	return sent, err
}

// direct makes system calls on a socket that does not block. It belongs to one goroutine and is reused,
// because functions made for each call would be allocated.
type direct struct {
	conn    syscall.RawConn
	blocked func()
	err     error

	a, b      []byte
	flags     int
	trySend   func(fd uintptr) bool
	file      *os.File
	off       int64
	n, sent   int
	tryFile   func(fd uintptr) bool
	waited    bool
	pieces    [2][]byte
	inputFile int
}

func newDirect(conn syscall.RawConn, blocked func()) *direct {
	d := &direct{conn: conn, blocked: blocked}
	d.trySend, d.tryFile = d.sendNow, d.fileNow
	return d
}

// finish ends one use: the error of the system call, or of the connection.
func (d *direct) finish(werr error) error {
	err := d.err
	if err == nil {
		err = werr
	}
	d.err, d.waited = nil, false
	return err
}

// again is the answer to EAGAIN: wait until the socket takes more.
func (d *direct) again() bool {
	if !d.waited {
		d.waited = true
		d.blocked()
	}
	return false
}

// sendfile is Sendfile; the caller keeps file open.
func (d *direct) sendfile(file *os.File, off int64, n int) (int, error) {
	d.file, d.inputFile, d.off, d.n, d.sent = file, int(file.Fd()), off, n, 0
	err := d.finish(d.conn.Write(d.tryFile))
	runtime.KeepAlive(file)
	d.file = nil
	return d.sent, err
}

func (d *direct) fileNow(fd uintptr) bool {
	for d.sent < d.n {
		m, err := unix.Sendfile(int(fd), d.inputFile, &d.off, min(d.n-d.sent, maxSendfile))
		if m > 0 {
			d.sent += m
			continue
		}
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return d.again()
		case err != nil:
			d.err = os.NewSyscallError("sendfile", err)
			return true
		default:
			d.err = fmt.Errorf("%s ends at %d, %d bytes before the end of the response: %w", d.file.Name(), d.off, d.n-d.sent, io.ErrUnexpectedEOF)
			return true
		}
	}
	return true
}

// send writes the two pieces in one system call where the socket takes them. more tells the kernel
// that further bytes of the same response follow at once.
func (d *direct) send(a, b []byte, more bool) error {
	d.a, d.b, d.flags = a, b, unix.MSG_NOSIGNAL
	if more {
		d.flags |= unix.MSG_MORE
	}
	err := d.finish(d.conn.Write(d.trySend))
	d.a, d.b, d.pieces = nil, nil, [2][]byte{}
	return err
}

func (d *direct) sendNow(fd uintptr) bool {
	for len(d.a)+len(d.b) > 0 {
		var m int
		var err error
		switch {
		case len(d.b) == 0 && len(d.a) <= rawSend:
			m, err = sendRaw(fd, d.a, d.flags)
		case len(d.a) == 0 && len(d.b) <= rawSend:
			m, err = sendRaw(fd, d.b, d.flags)
		default:
			n := 0
			for _, p := range [][]byte{d.a, d.b} {
				if len(p) > 0 {
					d.pieces[n] = p
					n++
				}
			}
			m, err = unix.SendmsgBuffers(int(fd), d.pieces[:n], nil, nil, d.flags)
		}
		switch {
		case err == nil:
			k := min(m, len(d.a))
			d.a = d.a[k:]
			d.b = d.b[m-k:]
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return d.again()
		default:
			d.err = os.NewSyscallError("send", err)
			return true
		}
	}
	return true
}

// sendRaw is send(2) of at least one byte.
func sendRaw(fd uintptr, p []byte, flags int) (int, error) {
	n, _, e := unix.RawSyscall6(unix.SYS_SENDTO, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), uintptr(flags|unix.MSG_DONTWAIT), 0, 0)
	if e != 0 {
		return 0, e
	}
	return int(n), nil
}
