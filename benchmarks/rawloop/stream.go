package rawloop

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"stet/zerocopy/batch"
)

// stream reads responses through one small buffer: batches are checked and written as they come, while they are
// in the second-level cache. A batch that does not fit makes the buffer grow.
type stream struct {
	r    *receiver
	buf  []byte
	from int // first unread byte
	to   int // end of what was received
	left int // bytes of the frame that were not received yet
}

var errFrame = errors.New("the frame ends within a field")

// need makes n bytes available in one piece.
func (s *stream) need(n int) error {
	for s.to-s.from < n {
		if n-(s.to-s.from) > s.left {
			return errFrame
		}
		if s.from+n > len(s.buf) {
			if n > len(s.buf) {
				grown := make([]byte, max(n, 2*len(s.buf)))
				copy(grown, s.buf[s.from:s.to])
				s.buf = grown
			} else {
				copy(s.buf, s.buf[s.from:s.to])
			}
			s.from, s.to = 0, s.to-s.from
		}
		got, err := s.r.conn.Read(s.buf[s.to:min(len(s.buf), s.to+s.left)])
		s.to, s.left = s.to+got, s.left-got
		if err != nil && got == 0 {
			return err
		}
	}
	return nil
}

func (s *stream) take(n int) ([]byte, error) {
	if err := s.need(n); err != nil {
		return nil, err
	}
	b := s.buf[s.from : s.from+n]
	s.from += n
	return b, nil
}

func (s *stream) uvarint() (uint64, error) {
	for n := 1; n <= binary.MaxVarintLen32; n++ {
		if err := s.need(n); err != nil {
			return 0, err
		}
		if v, used := binary.Uvarint(s.buf[s.from : s.from+n]); used > 0 {
			s.from += used
			return v, nil
		}
	}
	return 0, errFrame
}

// skip passes over bytes that nobody wants.
func (s *stream) skip(n int) error {
	for n > 0 {
		part := min(n, len(s.buf)/2)
		if _, err := s.take(part); err != nil {
			return err
		}
		n -= part
	}
	return nil
}

func (s *stream) tags() error {
	n, err := s.uvarint()
	for ; err == nil && n > 0; n-- {
		var size uint64
		if _, err = s.uvarint(); err == nil {
			if size, err = s.uvarint(); err == nil {
				err = s.skip(int(size))
			}
		}
	}
	return err
}

// runStreaming is run with a stream. The next request leaves when the response is read: its offsets are not known before.
func (r *receiver) runStreaming(ctx context.Context) error {
	s := &stream{r: r, buf: make([]byte, r.o.Stream)}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := r.fetch(); err != nil {
			return err
		}
		served, err := s.response()
		if err != nil || !served || r.o.Limit > 0 && r.res.Bytes >= r.o.Limit {
			return err
		}
		r.res.Responses++
	}
}

// response takes one response apart (Fetch version 13).
func (s *stream) response() (served bool, err error) {
	if err := s.r.conn.SetReadDeadline(time.Now().Add(readTimeout)); err != nil {
		return false, err
	}
	var size [4]byte
	if _, err := io.ReadFull(s.r.conn, size[:]); err != nil {
		return false, err
	}
	s.from, s.to, s.left = 0, 0, int(binary.BigEndian.Uint32(size[:]))
	head, err := s.take(4)
	if err != nil {
		return false, err
	}
	if id := int32(binary.BigEndian.Uint32(head)); id != s.r.id {
		return false, fmt.Errorf("correlation id %d instead of %d", id, s.r.id)
	}
	if err := s.tags(); err != nil {
		return false, err
	}
	head, err = s.take(10) // throttle time, error, session
	if err != nil {
		return false, err
	}
	if err := kerr.ErrorForCode(int16(binary.BigEndian.Uint16(head[4:]))); err != nil {
		return false, err
	}
	topics, err := s.uvarint()
	if err != nil {
		return false, err
	}
	for ; topics > 1; topics-- {
		if err := s.skip(16); err != nil {
			return false, err
		}
		parts, err := s.uvarint()
		if err != nil {
			return false, err
		}
		for ; parts > 1; parts-- {
			some, err := s.partition()
			if err != nil {
				return false, err
			}
			served = served || some
		}
		if err := s.tags(); err != nil {
			return false, err
		}
	}
	if err := s.tags(); err != nil {
		return false, err
	}
	if s.left > 0 || s.to > s.from {
		return false, errors.New("the frame is longer than its response")
	}
	return served, nil
}

func (s *stream) partition() (served bool, err error) {
	head, err := s.take(30) // index, error, high watermark, last stable offset, log start
	if err != nil {
		return false, err
	}
	id := int32(binary.BigEndian.Uint32(head))
	if err := kerr.ErrorForCode(int16(binary.BigEndian.Uint16(head[4:]))); err != nil {
		return false, fmt.Errorf("partition %d: %w", id, err)
	}
	if id < 0 || int(id) >= len(s.r.parts) {
		return false, fmt.Errorf("partition %d was not asked for", id)
	}
	aborted, err := s.uvarint()
	if err != nil {
		return false, err
	}
	for ; aborted > 1; aborted-- {
		if err := s.skip(16); err != nil {
			return false, err
		}
		if err := s.tags(); err != nil {
			return false, err
		}
	}
	if err := s.skip(4); err != nil { // preferred replica
		return false, err
	}
	n, err := s.uvarint()
	if err != nil {
		return false, err
	}
	if n > 1 {
		if served, err = s.records(s.r.parts[id], int(n-1)); err != nil {
			return false, fmt.Errorf("partition %d: %w", id, err)
		}
		if served { // who was served goes to the end
			s.r.rotate = int(id) + 1
		}
	}
	return served, s.tags()
}

// records writes the batches that are in the buffer, fills it anew, and so on.
func (s *stream) records(p *partition, n int) (served bool, err error) {
	for n > 0 {
		if err := s.need(min(n, batch.LogOverhead)); err != nil {
			return served, err
		}
		if n < batch.LogOverhead {
			return served, s.skip(n)
		}
		size := batch.SizeOf(s.buf[s.from:])
		if size < batch.LogOverhead || size > int64(n) {
			return served, s.skip(n) // cut off at the limit
		}
		if err := s.need(int(size)); err != nil {
			return served, err
		}
		run := 0
		for rest := s.buf[s.from:min(s.to, s.from+n)]; len(rest) > 0; {
			b, after, err := batch.Next(rest)
			if errors.Is(err, batch.ErrIncomplete) {
				break
			}
			if err == nil {
				err = b.CheckCRC()
			}
			if err != nil {
				return served, err
			}
			run += len(b)
			p.next = b.NextOffset()
			s.r.res.Batches++
			rest = after
		}
		if err := s.r.write1(p, s.buf[s.from:s.from+run]); err != nil {
			return served, err
		}
		s.r.res.Bytes += int64(run)
		s.from, n, served = s.from+run, n-run, true
	}
	return served, nil
}
