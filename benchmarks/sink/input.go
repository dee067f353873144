package sink

import (
	"errors"
	"io"
	"net"

	"golang.org/x/sys/unix"
)

// input is what comes from a connection; buf[from:] was read ahead.
type input struct {
	c    *net.TCPConn
	raw  rawConn
	buf  []byte
	from int
	junk []byte // never read; discarding needs an address
}

type rawConn interface {
	Read(f func(fd uintptr) bool) error
}

// peek returns the next n bytes, which stay there. No more than 8 KiB are read ahead.
func (in *input) peek(n int) ([]byte, error) {
	if in.from > 0 {
		in.buf = in.buf[:copy(in.buf, in.buf[in.from:])]
		in.from = 0
	}
	for len(in.buf) < n {
		if cap(in.buf) < n {
			in.buf = append(make([]byte, 0, max(n, 8<<10)), in.buf...)
		}
		k, err := in.c.Read(in.buf[len(in.buf):cap(in.buf)])
		if err != nil {
			return nil, err
		}
		in.buf = in.buf[:len(in.buf)+k]
	}
	return in.buf[:n], nil
}

// take returns the next n bytes, valid until the next call.
func (in *input) take(n int) ([]byte, error) {
	b, err := in.peek(n)
	if err == nil {
		in.from = n
	}
	return b, err
}

// discard drops the next n bytes without having them copied.
func (in *input) discard(n int) error {
	have := min(n, len(in.buf)-in.from)
	in.from += have
	if n -= have; n == 0 {
		return nil
	}
	if len(in.junk) == 0 {
		in.junk = make([]byte, 4<<20)
	}
	for n > 0 {
		var k int
		var err error
		rerr := in.raw.Read(func(fd uintptr) bool {
			k, _, err = unix.Recvfrom(int(fd), in.junk[:min(n, len(in.junk))], unix.MSG_TRUNC)
			return !errors.Is(err, unix.EAGAIN)
		})
		switch {
		case rerr != nil:
			return rerr
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return err
		case k == 0:
			return io.ErrUnexpectedEOF
		}
		n -= k
	}
	return nil
}
