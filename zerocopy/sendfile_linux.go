package zerocopy

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// HaveSendfile says whether this build can send file ranges without copying them.
const HaveSendfile = true

// maxSendfile keeps one system call from monopolising the thread on a fast socket.
const maxSendfile = 4 << 20

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
	var sendErr error
	// Control keeps the descriptor open while the socket is waited for.
	err = src.Control(func(in uintptr) {
		werr := conn.Write(func(out uintptr) bool {
			for sent < n {
				m, err := unix.Sendfile(int(out), int(in), &off, min(n-sent, maxSendfile))
				if m > 0 {
					sent += m
					continue
				}
				switch {
				case errors.Is(err, unix.EINTR):
				case errors.Is(err, unix.EAGAIN):
					return false
				case err != nil:
					sendErr = os.NewSyscallError("sendfile", err)
					return true
				default:
					sendErr = fmt.Errorf("%s ends at %d, %d bytes before the end of the response: %w", file.Name(), off, n-sent, io.ErrUnexpectedEOF)
					return true
				}
			}
			return true
		})
		if sendErr == nil {
			sendErr = werr
		}
	})
	if sendErr == nil {
		sendErr = err
	}
	return sent, sendErr
}

// send writes the two pieces in one system call where the socket takes them. more tells the kernel
// that further bytes of the same response follow at once.
func send(conn syscall.RawConn, a, b []byte, more bool) error {
	flags := unix.MSG_NOSIGNAL
	if more {
		flags |= unix.MSG_MORE
	}
	var sendErr error
	err := conn.Write(func(fd uintptr) bool {
		for len(a)+len(b) > 0 {
			var pieces [2][]byte
			n := 0
			for _, p := range [][]byte{a, b} {
				if len(p) > 0 {
					pieces[n] = p
					n++
				}
			}
			m, err := unix.SendmsgBuffers(int(fd), pieces[:n], nil, nil, flags)
			switch {
			case err == nil:
				k := min(m, len(a))
				a = a[k:]
				b = b[m-k:]
			case errors.Is(err, unix.EINTR):
			case errors.Is(err, unix.EAGAIN):
				return false
			default:
				sendErr = os.NewSyscallError("sendmsg", err)
				return true
			}
		}
		return true
	})
	if sendErr != nil {
		return sendErr
	}
	return err
}
