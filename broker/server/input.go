package server

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

const (
	headerMin   = 8        // key, version, correlation id
	inputBuffer = 32 << 10 // frames up to this size are read in place
	firstChunk  = 16 << 10 // admitted at first for a frame that has not arrived, which may be only a claim
	memPatience = 30 * time.Second
	sizeBytes   = 4 // of the length before a frame
	// keepBody: buffers of larger frames are reused up to this size.
	keepBody = 4 << 20
	// pace: so many bytes of a large frame, or what was admitted for it last if that is less, arrive within one MaxStall.
	pace = 4 << 20
)

var errFrame = errors.New("not a Kafka request")

var (
	inputPool = sync.Pool{New: func() any { return new([inputBuffer]byte) }}
	bodyPool  = sync.Pool{New: func() any { b := make([]byte, 0, firstChunk); return &b }}
)

// input cuts frames out of what a connection brings. One system call takes all that is there, header and body together, into
// a pooled buffer, and usual frames are served where they lie; larger ones get a buffer of their own
// that grows with what really arrives. A connection without bytes holds no buffer.
type input struct {
	nc  net.Conn
	raw syscall.RawConn // nil: reads go through nc
	mem *memory

	buf   *[inputBuffer]byte // nil: none held
	r, w  int                // bytes not yet used are buf[r:w]
	part  [sizeBytes]byte    // without a buffer: the first bytes of a length
	parts int

	body     *[]byte // of a frame larger than buf
	admitted int64

	idle, stall time.Duration
	last        time.Time // when the last frame was done with
	// What the read deadline is there for. stallArmed: for what is being waited for of a frame; more bytes do not move it, so
	// that a trickle holds nothing longer than silence does.
	idleArmed, stallArmed bool

	dst []byte // where attempt reads to, nil: buf
	n   int
	err error
	try func(fd uintptr) bool
}

func (in *input) start(nc net.Conn, mem *memory, idle, stall time.Duration) {
	in.nc, in.mem, in.idle, in.stall, in.last = nc, mem, idle, stall, time.Now()
	if tcp, ok := nc.(*net.TCPConn); ok && haveRawRead {
		if raw, err := tcp.SyscallConn(); err == nil {
			in.raw, in.try = raw, in.attempt
		}
	}
}

// hold takes a buffer; leave gives it back when not even a length is in it, which nothing was admitted for.
func (in *input) hold() {
	if in.buf == nil {
		in.buf = inputPool.Get().(*[inputBuffer]byte)
		in.r, in.w = 0, copy(in.buf[:], in.part[:in.parts])
		in.parts = 0
	}
}

func (in *input) leave() {
	if in.buf != nil && in.w-in.r < sizeBytes {
		in.parts = copy(in.part[:], in.buf[in.r:in.w])
		inputPool.Put(in.buf)
		in.buf, in.r, in.w = nil, 0, 0
	}
}

// held is how many bytes are there already.
func (in *input) held() int {
	if in.buf == nil {
		return in.parts
	}
	return in.w - in.r
}

// attempt reads what is there without waiting for more.
func (in *input) attempt(fd uintptr) bool {
	p := in.dst
	if p == nil {
		in.hold()
		p = in.buf[in.w:]
	}
	for {
		n, err := readRaw(fd, p)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EAGAIN):
			in.leave()
			return false
		case err == nil && n == 0:
			err = io.EOF
		case err != nil:
			err = os.NewSyscallError("read", err)
		}
		in.n, in.err = n, err
		return true
	}
}

// read reads once into dst, or with dst nil into the buffer, waiting until something comes.
func (in *input) read(dst []byte) (int, error) {
	if in.raw == nil {
		if dst == nil {
			in.hold()
			dst = in.buf[in.w:]
		}
		return in.nc.Read(dst)
	}
	in.dst, in.n, in.err = dst, 0, nil
	err := in.raw.Read(in.try)
	in.dst = nil
	if err == nil {
		err = in.err
	}
	return in.n, err
}

// fill brings more bytes into the buffer. Between frames it waits as long as the connection may idle; the deadline is
// looked at when it has passed and not moved with each frame, which would cost more than reading one.
func (in *input) fill() error {
	if in.buf != nil && in.r > 0 && in.w == inputBuffer {
		in.w = copy(in.buf[:], in.buf[in.r:in.w])
		in.r = 0
	}
	waiting := in.held() == 0
	switch {
	case !waiting:
		in.stalls()
	case !in.idleArmed:
		_ = in.nc.SetReadDeadline(time.Now().Add(in.idle)) // a closed connection fails at the read
		in.idleArmed, in.stallArmed = true, false
	}
	for {
		n, err := in.read(nil)
		in.w += n
		if n > 0 {
			return nil
		}
		if !waiting || !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		left := in.idle - time.Since(in.last)
		if left <= 0 {
			return err
		}
		_ = in.nc.SetReadDeadline(time.Now().Add(left))
	}
}

// stalls bounds the wait for the rest of a frame that has begun, or of the step of it that was admitted.
func (in *input) stalls() {
	if in.stallArmed {
		return
	}
	_ = in.nc.SetReadDeadline(time.Now().Add(in.stall))
	in.idleArmed, in.stallArmed = false, true
}

// admit waits for n more bytes of the budget. The time for filling them begins after it.
func (in *input) admit(ctx context.Context, n int64) error {
	if err := in.mem.acquire(ctx, n, memPatience); err != nil {
		return err
	}
	in.admitted += n
	in.stallArmed = false
	return nil
}

// frame waits for the next frame and returns it without its length; it is valid until done.
func (in *input) frame(ctx context.Context, limit int32) ([]byte, error) {
	in.stallArmed = false
	for in.held() < sizeBytes {
		if err := in.fill(); err != nil {
			return nil, err
		}
	}
	size := int64(int32(binary.BigEndian.Uint32(in.buf[in.r:])))
	if size < headerMin || size > int64(limit) {
		return nil, fmt.Errorf("%w: a frame of %d bytes, allowed are %d to %d (socket.request.max.bytes)", errFrame, size, headerMin, limit)
	}
	if err := in.admit(ctx, min(size, max(firstChunk, int64(in.w-in.r-sizeBytes)))); err != nil {
		return nil, err
	}
	if size > inputBuffer-sizeBytes {
		return in.large(ctx, size)
	}
	if in.r+sizeBytes+int(size) > inputBuffer {
		in.w = copy(in.buf[:], in.buf[in.r:in.w])
		in.r = 0
	}
	for in.w-in.r < sizeBytes+int(size) {
		if in.admitted < size && int64(in.w-in.r-sizeBytes) >= in.admitted {
			if err := in.admit(ctx, size-in.admitted); err != nil {
				return nil, err
			}
		}
		if err := in.fill(); err != nil {
			return nil, err
		}
	}
	if in.admitted < size { // the rest came together with what was waited for
		if err := in.admit(ctx, size-in.admitted); err != nil {
			return nil, err
		}
	}
	f := in.buf[in.r+sizeBytes:][:size:size]
	in.r += sizeBytes + int(size)
	return f, nil
}

// large reads a frame that does not fit the buffer, step by step with what arrives.
func (in *input) large(ctx context.Context, size int64) ([]byte, error) {
	in.body = bodyPool.Get().(*[]byte)
	b := (*in.body)[:0]
	if int64(cap(b)) < in.admitted {
		b = make([]byte, 0, in.admitted)
	}
	b = append(b, in.buf[in.r+sizeBytes:in.w]...)
	in.r = in.w
	in.leave()
	paced := len(b)
	for int64(len(b)) < size {
		if int64(len(b)) == in.admitted { // what was admitted is full of real bytes: twice as much
			if err := in.admit(ctx, min(size-in.admitted, in.admitted)); err != nil {
				return nil, err
			}
			paced = len(b)
		}
		if len(b)-paced >= pace { // a slow line may take its time for a large step, as long as it brings something
			in.stallArmed, paced = false, len(b)
		}
		if int64(cap(b)) < in.admitted {
			grown := make([]byte, len(b), in.admitted)
			copy(grown, b)
			b = grown
		}
		in.stalls()
		n, err := in.read(b[len(b):in.admitted])
		b = b[:len(b)+n]
		*in.body = b
		if err != nil && int64(len(b)) < size {
			return nil, err
		}
	}
	return b, nil
}

// done gives back what the last frame, whole or not, was held in.
func (in *input) done() {
	if in.body != nil {
		if cap(*in.body) <= keepBody {
			bodyPool.Put(in.body)
		}
		in.body = nil
	}
	in.leave()
	if in.admitted > 0 {
		in.mem.release(in.admitted)
		in.admitted = 0
	}
}
