package records

import (
	"errors"
	"io"
)

// errShort says that a record ends before its fields do.
var errShort = errors.New("record data ends early")

// chunk is how much is decompressed at a time.
const chunk = 32 << 10

// stream is a byte source with lookahead: the whole of an uncompressed batch, or a window
// over a decompressor.
type stream struct {
	buf     []byte // unread bytes
	src     io.Reader
	window  []byte // backing of buf when src is set
	scratch []byte // records that straddle windows
	read    int64  // bytes taken so far
}

// fill makes at least one byte available.
func (s *stream) fill() error {
	if len(s.buf) > 0 {
		return nil
	}
	if s.src == nil {
		return io.EOF
	}
	for range 100 { // a reader that returns nothing for ever is an error, not a hang
		n, err := s.src.Read(s.window)
		if n > 0 {
			s.buf = s.window[:n]
			return nil
		}
		if err != nil {
			return err
		}
	}
	return io.ErrNoProgress
}

func (s *stream) byte() (byte, error) {
	if err := s.fill(); err != nil {
		return 0, err
	}
	b := s.buf[0]
	s.buf = s.buf[1:]
	s.read++
	return b, nil
}

// varint reads a zigzag varint.
func (s *stream) varint() (int64, error) {
	var u uint64
	for shift := uint(0); shift < 64; shift += 7 {
		b, err := s.byte()
		if err != nil {
			return 0, short(err)
		}
		u |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return int64(u>>1) ^ -int64(u&1), nil
		}
	}
	return 0, errors.New("varint of more than ten bytes")
}

func short(err error) error {
	if errors.Is(err, io.EOF) {
		return errShort
	}
	return err
}

// skip passes over n bytes.
func (s *stream) skip(n int64) error {
	for n > 0 {
		if err := s.fill(); err != nil {
			return short(err)
		}
		k := min(n, int64(len(s.buf)))
		s.buf = s.buf[k:]
		s.read += k
		n -= k
	}
	return nil
}

// gather returns the next n bytes; they are valid until the next gather.
func (s *stream) gather(n int64) ([]byte, error) {
	if n <= int64(len(s.buf)) {
		b := s.buf[:n:n]
		s.buf = s.buf[n:]
		s.read += n
		return b, nil
	}
	s.scratch = s.scratch[:0]
	for n > 0 {
		if err := s.fill(); err != nil {
			return nil, short(err)
		}
		k := min(n, int64(len(s.buf)))
		s.scratch = append(s.scratch, s.buf[:k]...)
		s.buf = s.buf[k:]
		s.read += k
		n -= k
	}
	return s.scratch, nil
}
