package frame

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"stet/zerocopy"
)

// SizeError says that a peer claimed a frame size that is negative or above the limit.
type SizeError struct {
	First [4]byte // the four bytes, as they came
	Limit int
}

// Size is the claimed size in bytes.
func (e *SizeError) Size() int32 { return int32(binary.BigEndian.Uint32(e.First[:])) }

// Error implements error.
func (e *SizeError) Error() string {
	return fmt.Sprintf("frame size %d is not between 0 and %d", e.Size(), e.Limit)
}

// ReadSize reads the four bytes that precede a frame. The error is a *SizeError, or
// the reader's: io.EOF when the peer closed between two frames.
func ReadSize(r io.Reader, limit int) (int, error) {
	var b [4]byte
	return readSize(r, b[:], limit)
}

// readSize takes the scratch from its caller, which keeps it off the heap there.
func readSize(r io.Reader, b []byte, limit int) (int, error) {
	if _, err := io.ReadFull(r, b); err != nil {
		return 0, err
	}
	if n := int32(binary.BigEndian.Uint32(b)); n >= 0 && int(n) <= limit {
		return int(n), nil
	}
	return 0, &SizeError{First: [4]byte(b), Limit: limit}
}

// Reader reads frames into leased buffers.
type Reader struct {
	R    io.Reader
	Pool *zerocopy.Pool
	// Limit is the largest frame in bytes; a larger claim is a *SizeError before anything is allocated.
	Limit int
	// Eager is the largest size in bytes that is allocated on the peer's word. Beyond it the buffer
	// grows with what has arrived.
	Eager int
	// Expected, if set, is the largest size in bytes for which the pool's budget is reserved on the peer's word. Beyond
	// it more is reserved as bytes arrive, so that a claim alone holds nobody else up.
	Expected int
	// Patience bounds the wait for that in addition to the context.
	Patience time.Duration
	// Copied counts bytes that were copied because a buffer had to grow.
	Copied int64

	scratch [4]byte
}

// Next reads one frame; the lease holds exactly its bytes, without the size. It waits for the
// pool's budget once, before the first byte of the body; in the middle of a frame only for a turn to exceed it, and only
// where the frame is larger than expected.
// io.EOF means that the peer closed between frames, io.ErrUnexpectedEOF inside one.
func (r *Reader) Next(ctx context.Context) (zerocopy.Lease, error) {
	n, err := readSize(r.R, r.scratch[:], r.Limit)
	if err != nil {
		return zerocopy.Lease{}, err
	}
	return r.Body(ctx, n)
}

// Body reads the n bytes of a frame whose size was read before.
func (r *Reader) Body(ctx context.Context, n int) (zerocopy.Lease, error) {
	reserve := n
	if r.Expected > 0 {
		reserve = min(n, r.Expected)
	}
	lease, err := r.Pool.LeaseGrowing(ctx, reserve, max(r.Eager, 4096))
	if err != nil {
		return zerocopy.Lease{}, err
	}
	for got := 0; ; {
		buf := lease.Bytes()
		m, err := io.ReadFull(r.R, buf[got:])
		got += m
		if err != nil {
			lease.Release()
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return zerocopy.Lease{}, err
		}
		if got == n {
			return lease, nil
		}
		next := min(n, 2*got)
		if err := r.extend(ctx, &lease, next); err != nil {
			lease.Release()
			return zerocopy.Lease{}, err
		}
		r.Copied += int64(lease.Grow(got, next))
	}
}

// extend reserves for n bytes of a frame that is larger than expected.
func (r *Reader) extend(ctx context.Context, lease *zerocopy.Lease, n int) error {
	if r.Expected == 0 || n <= r.Expected {
		return nil // reserved at first
	}
	if r.Patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.Patience)
		defer cancel()
	}
	return r.Pool.Extend(ctx, lease, n)
}
