package log

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"sync"

	"stet/zerocopy/batch"
)

// No batch is served that was not checked since it got into memory or was found on disk: what this process appends
// was checked before, what recovery scans is checked there, and what a start without a scan finds is checked before it
// is served for the first time. Only that last kind is kept account of: a segment that was opened is suspect until
// every byte of it was checked; which parts were is in its spans. Once it is not, a read costs one atomic load more.
//
// What a check finds is in corrupt.go.

// maxSpans bounds what is remembered of a segment. To forget a span only means to check it again.
const maxSpans = 64

// checkedRun is a run of whole batches that were found to be right, and to follow each other.
type checkedRun struct {
	from, to    int64 // positions
	first, next int64 // offset of the first batch, and the one after the last
	epoch       int32 // leader epoch of the last
}

// checked is the account of a segment that was opened with data in it.
type checked struct {
	log    *Log
	old    int64 // bytes that were found at open; what follows them was appended by this process
	oldEnd int64 // the offset that follows them

	mu    sync.Mutex
	spans []checkedRun // ascending, apart

	surveying sync.Mutex // held by who reads all of the segment: others would only do the same
}

// doubt makes the segment suspect. next is the offset that follows its batches. It is called before the log is published.
func (s *segment) doubt(l *Log, next int64) {
	if s.size > 0 {
		s.check = &checked{log: l, old: s.size, oldEnd: next}
		s.suspect.Store(true)
	}
}

// trust ends the doubt: every byte was checked.
func (s *segment) trust() { s.suspect.Store(false) }

// at is what is known at a position: the run that holds it; or that nothing was checked from there up to stop.
func (c *checked) at(pos, end int64) (run checkedRun, ok bool, stop int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.spans {
		if p.from > pos {
			return run, false, min(p.from, end)
		}
		if pos < p.to {
			return p, true, p.to
		}
	}
	return run, false, end
}

// endsAt is the run that ends at a position; its next is -1 if there is none.
func (c *checked) endsAt(pos int64) checkedRun {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.spans {
		if p.to == pos {
			return p
		}
	}
	return checkedRun{next: -1, epoch: -1}
}

// note adds a span. It reports whether spans now reach from the segment's begin to end.
func (c *checked) note(n checkedRun, end int64) (all bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := 0
	for i < len(c.spans) && c.spans[i].to < n.from {
		i++
	}
	j := i
	for j < len(c.spans) && c.spans[j].from <= n.to {
		p := c.spans[j]
		if p.from < n.from {
			n.from, n.first = p.from, p.first
		}
		if p.to > n.to {
			n.to, n.next, n.epoch = p.to, p.next, p.epoch
		}
		j++
	}
	c.spans = slices.Replace(c.spans, i, j, n)
	if len(c.spans) > maxSpans {
		small := -1
		for k, p := range c.spans {
			if k != i && (small < 0 || p.to-p.from < c.spans[small].to-c.spans[small].from) {
				small = k
			}
		}
		c.spans = slices.Delete(c.spans, small, small+1)
	}
	return c.spans[0].from == 0 && c.spans[0].to >= end
}

// checkRange checks the whole batches of [from, to) that were not checked yet. from is where a batch begins, which must end
// with the offset last if that is not negative; one that to cuts off is not looked at. limit are the valid bytes. An error for which
// isTorn holds says that something is wrong there, not what: survey finds out. Up to good all is right.
// No lock is held.
func (s *segment) checkRange(from, to, limit, last int64) (good int64, err error) {
	c := s.check
	end, asked := min(limit, c.old), to
	to = min(to, end)
	var v *verifier
	for pos := from; pos < to; {
		known, ok, stop := c.at(pos, end)
		if ok {
			pos, last = known.to, -1
			if v != nil {
				v.expect, v.epoch = known.next, known.epoch
			}
			continue
		}
		if v == nil {
			v = newVerifier(s, limit)
			defer v.release()
			before := c.endsAt(pos)
			v.expect, v.epoch = before.next, before.epoch
			if pos == 0 {
				v.expect = s.base
			}
		}
		run := checkedRun{from: pos, first: -1}
		for pos < to && pos < stop {
			size, err := v.frame(pos, to)
			if err == nil && pos > from && pos+size > to {
				to = pos // cut off: nobody takes it for a batch
				break
			}
			if err == nil && pos+size > stop {
				err = fmt.Errorf("%w: position %d: size %d, but a batch begins at %d", batch.ErrCorrupt, pos, size, stop)
			}
			if err == nil && last >= 0 && v.head().LastOffset() != last {
				err = fmt.Errorf("%w: position %d: a batch up to %d, not to %d", errOrder, pos, v.head().LastOffset(), last)
			}
			if err == nil {
				err = v.rest(pos, size, to)
			}
			if err != nil {
				return pos, err
			}
			last = -1
			if run.first < 0 {
				run.first = v.head().BaseOffset()
			}
			pos += size
			v.pass()
		}
		if run.to = pos; run.to == run.from {
			break
		}
		run.next, run.epoch = v.expect, v.epoch
		if run.to == stop && stop < end && !c.follows(run) {
			return run.from, fmt.Errorf("%w: position %d: offset %d is taken already", errOrder, stop, run.next)
		}
		if c.note(run, end) {
			s.trust()
		}
	}
	if to < asked && to < end {
		return to, nil
	}
	return asked, nil
}

// follows says whether the span after n goes on where it may.
func (c *checked) follows(n checkedRun) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.spans {
		if p.from == n.to {
			return p.first >= n.next
		}
	}
	return true
}

// verifier checks the batches of a segment one after the other, through a buffer of bounded size.
type verifier struct {
	s      *segment
	limit  int64
	expect int64 // offset that the batch before ends with, -1: unknown
	epoch  int32 // leader epoch of the batch before, -1: unknown
	hdr    [batch.HeaderSize]byte
	next   [batch.HeaderSize]byte
	at     int64 // position of win
	win    []byte
	buf    [walkWindow]byte

	// Of a survey.
	budget    int64 // bytes that may still be read more than once, so that bytes that look like headers do not make it take for ever
	indexRead bool
	entries   []offsetEntry // of the index file, that were not looked at yet
	known     int64         // position of the last right batch that one led to, 0: none
	knownBase int64         // its offset
}

var verifiers = sync.Pool{New: func() any { return &verifier{} }}

func newVerifier(s *segment, limit int64) *verifier {
	v := verifiers.Get().(*verifier)
	v.s, v.limit, v.expect, v.epoch, v.at, v.win = s, min(limit, s.check.old), -1, -1, 0, nil
	v.budget, v.indexRead, v.entries, v.known = 0, false, nil, 0
	return v
}

func (v *verifier) release() {
	v.s, v.win, v.entries = nil, nil, nil
	verifiers.Put(v)
}

// head is the header that frame read.
func (v *verifier) head() batch.Batch { return batch.Batch(v.hdr[:]) }

// pass goes on behind the batch that was checked.
func (v *verifier) pass() { v.expect, v.epoch = v.head().NextOffset(), v.head().PartitionLeaderEpoch() }

// peek returns at least need bytes at pos. want is where it will go on to.
func (v *verifier) peek(pos, need, want int64) ([]byte, error) {
	if off := pos - v.at; off >= 0 && off+need <= int64(len(v.win)) {
		return v.win[off:], nil
	}
	if pos+need > v.limit {
		return nil, fmt.Errorf("%w: position %d: %d bytes are left", batch.ErrIncomplete, pos, v.limit-pos)
	}
	n := min(max(want-pos, need, findWindow), v.limit-pos, walkWindow)
	got, err := v.s.file.ReadAt(v.buf[:n], pos)
	v.at, v.win = pos, v.buf[:got]
	if int64(got) < need {
		if err == nil || errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%w: the file ends at %d, not at %d", batch.ErrIncomplete, pos+int64(got), v.limit)
		}
		return nil, err
	}
	return v.win, nil
}

// frame reads the header at pos and returns the batch's size.
func (v *verifier) frame(pos, want int64) (size int64, err error) {
	p, err := v.peek(pos, batch.HeaderSize, want)
	if err != nil {
		return 0, err
	}
	copy(v.hdr[:], p)
	h := v.head()
	size = batch.SizeOf(h)
	switch {
	case h.Magic() != 2:
		return 0, fmt.Errorf("%w: position %d: magic %d", batch.ErrMagic, pos, h.Magic())
	case size < batch.HeaderSize || pos+size > v.limit:
		return 0, fmt.Errorf("%w: position %d: size %d with %d bytes left", batch.ErrCorrupt, pos, size, v.limit-pos)
	}
	return size, nil
}

// rest checks the batch whose frame was read: offsets, checksum, and what is outside of that against its neighbours.
func (v *verifier) rest(pos, size, want int64) error {
	h := v.head()
	base, delta := h.BaseOffset(), h.LastOffsetDelta()
	if base < 0 || delta < 0 || base >= noOffset-int64(delta) {
		return fmt.Errorf("%w: position %d: offset %d with last offset delta %d", batch.ErrCorrupt, pos, base, delta)
	}
	if base < max(v.expect, v.s.base) || h.NextOffset() > v.s.check.oldEnd {
		return fmt.Errorf("%w: position %d: batch %d to %d, expected %d to %d", errOrder, pos, base, h.LastOffset(), max(v.expect, v.s.base), v.s.check.oldEnd)
	}
	crc, err := v.sum(pos, size, want)
	if err != nil {
		return err
	}
	if crc != h.CRC() {
		return fmt.Errorf("%w: position %d: offset %d: crc %08x, computed %08x", batch.ErrCorrupt, pos, base, h.CRC(), crc)
	}
	return v.fits(pos, size)
}

// sum is the CRC32C of the batch, piece by piece.
func (v *verifier) sum(pos, size, want int64) (crc uint32, err error) {
	end := pos + size
	for at := pos + attributesOffset; at < end; {
		p, err := v.peek(at, 1, max(want, end))
		if err != nil {
			return 0, err
		}
		p = p[:min(int64(len(p)), end-at)]
		crc = crc32.Update(crc, castagnoli, p)
		at += int64(len(p))
	}
	return crc, nil
}

// fits looks at what the checksum does not cover, where it is not plain from the batch before: an offset that leaves
// a gap must be below that of the next batch, and an epoch that the log does not know there must not lie between
// two batches of the one that it knows, nor where that begins.
func (v *verifier) fits(pos, size int64) error {
	h := v.head()
	gap := v.expect >= 0 && h.BaseOffset() > v.expect
	epochs := &v.s.check.log.epochs
	known, ok := epochs.at(h.BaseOffset())
	strange := ok && h.PartitionLeaderEpoch() != -1 && h.PartitionLeaderEpoch() != known
	if !gap && !strange {
		return nil
	}
	next := batch.Batch(nil)
	if pos+size+batch.HeaderSize <= v.limit {
		p, err := v.peek(pos+size, batch.HeaderSize, 0)
		if err != nil {
			return err
		}
		copy(v.next[:], p)
		next = batch.Batch(v.next[:])
	}
	if gap && next != nil && next.BaseOffset() < h.NextOffset() {
		return fmt.Errorf("%w: position %d: batch %d to %d, expected %d, and the next begins at %d", errOrder, pos, h.BaseOffset(), h.LastOffset(), v.expect, next.BaseOffset())
	}
	if !strange {
		return nil
	}
	before, after := v.epoch == known, next != nil && next.PartitionLeaderEpoch() == known
	if !before || !after {
		// The log's list of epochs may be wrong by an offset, but not have no line at all.
		_, exists := epochs.start(h.PartitionLeaderEpoch())
		begin, _ := epochs.start(known)
		if next != nil && !after {
			there, _ := epochs.at(next.BaseOffset())
			after = next.PartitionLeaderEpoch() == there
		}
		before = before || v.epoch < 0 && after || begin == h.BaseOffset()
		strange = !exists && before && (after || next == nil)
	}
	if strange {
		return fmt.Errorf("%w: position %d: offset %d: leader epoch %d instead of %d", batch.ErrCorrupt, pos, h.BaseOffset(), h.PartitionLeaderEpoch(), known)
	}
	return nil
}
