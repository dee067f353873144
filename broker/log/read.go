package log

import (
	"errors"
	"fmt"
	"io"
	"math"

	"stet/broker/log/records"
	"stet/internal/vfs"
	"stet/zerocopy/batch"
)

// Slice is a range of one segment file that stays readable until Release, also when the
// segment is deleted. If the log is truncated meanwhile, reads of the cut part come back short.
// The zero value is an empty slice; Release must be called once on every other.
type Slice struct {
	seg  *segment
	pos  int64
	size int
	file vfs.File
}

// Len is the number of bytes.
func (s *Slice) Len() int { return s.size }

// File is the segment's file, nil when the slice is empty.
func (s *Slice) File() vfs.File { return s.file }

// Pos is where the range begins in File.
func (s *Slice) Pos() int64 { return s.pos }

// ReadAt reads from off bytes after the start of the range. It returns io.EOF at its end.
func (s *Slice) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off >= int64(s.size) {
		return 0, io.EOF
	}
	short := false
	if n := int64(s.size) - off; int64(len(p)) > n {
		p, short = p[:n], true
	}
	n, err := s.file.ReadAt(p, s.pos+off)
	if err == nil && short {
		err = io.EOF
	}
	return n, err
}

// Release gives the segment back. It may be called on an empty slice, and again.
func (s *Slice) Release() {
	if s.seg != nil {
		s.seg.file.unpin()
		s.seg.release()
		s.seg, s.file = nil, nil
	}
}

// Read finds the bytes from the batch that holds offset on: at most maxBytes of one
// segment, only whole batches below bound (an exclusive offset: log end, high watermark or
// last stable offset). maxBytes may cut the last batch, as in Kafka, but with minOneBatch
// the first batch is always whole. An offset outside the log is an *OffsetOutOfRangeError.
func (l *Log) Read(offset int64, maxBytes int, bound int64, minOneBatch bool) (Slice, error) {
	if err := l.Err(); err != nil {
		return Slice{}, err
	}
	first := true
	for {
		r, err := l.acquire(offset)
		if err != nil {
			if !first {
				err = nil // cut while we looked: there is nothing there now
			}
			return Slice{}, err
		}
		first = false
		if offset >= min(bound, r.end) || (maxBytes <= 0 && !minOneBatch) {
			r.seg.release()
			return Slice{}, nil
		}
		pos, n, err := r.locate(offset, bound, maxBytes, minOneBatch)
		if errors.Is(err, errIndex) {
			if err = l.repairIndex(r.seg, r.locateAgain(offset, bound)); err == nil {
				pos, n, err = r.locate(offset, bound, maxBytes, minOneBatch)
			}
		}
		if err == nil && n > 0 {
			f, perr := r.seg.file.pin()
			if perr == nil {
				l.follow(&r, pos, n)
				return Slice{r.seg, pos, n, f}, nil
			}
			err = perr
		}
		r.seg.release()
		if err != nil {
			return Slice{}, l.readError(r, offset, err)
		}
		if r.next >= bound {
			return Slice{}, nil
		}
		offset = r.next
	}
}

// readable is a segment held for reading, with the bytes and offsets that may be seen.
type readable struct {
	seg   *segment
	limit int64 // valid bytes of the segment
	next  int64 // base of the following segment, noOffset for the last one
	end   int64 // log end
	after int64 // at least so many bytes of the log follow the segment
}

// acquire holds the segment of offset. The caller releases it.
func (l *Log) acquire(offset int64) (readable, error) {
	start := l.start.Load()
	l.pub.Lock()
	defer l.pub.Unlock()
	v := &l.view
	if len(v.segs) == 0 {
		return readable{}, fmt.Errorf("%w: %s", ErrClosed, l.tp)
	}
	if offset < start || offset > v.end {
		return readable{}, &OffsetOutOfRangeError{offset, start, v.end}
	}
	i := segmentFor(v.segs, offset)
	r := readable{seg: v.segs[i], end: v.end}
	if i == len(v.segs)-1 {
		r.limit, r.next = v.size, noOffset
	} else {
		r.limit, r.next, r.after = r.seg.size, v.segs[i+1].base, v.size
		if i < len(v.segs)-2 {
			r.after = math.MaxInt64 / 2 // small segments count as far away, too
		}
	}
	r.seg.retain()
	return r, nil
}

// locate finds the range to return, n 0 if the segment has nothing at or above offset.
func (r *readable) locate(offset, bound int64, maxBytes int, minOneBatch bool) (pos int64, n int, err error) {
	if r.seg.suspect.Load() {
		return r.locateChecked(offset, bound, maxBytes, minOneBatch)
	}
	pos, size, err := r.seg.find(offset, r.limit)
	if err != nil || size == 0 {
		return 0, 0, err
	}
	limit := r.limit
	if bound < r.end && bound < r.next {
		if limit, _, err = r.seg.find(bound, r.limit); err != nil {
			return 0, 0, err
		}
		if limit <= pos {
			return 0, 0, nil
		}
	}
	n = int(min(limit-pos, int64(max(maxBytes, 0))))
	if minOneBatch {
		n = max(n, int(size))
	}
	return pos, n, nil
}

// locateChecked is locate in a segment that was not checked as a whole: what it returns is.
func (r *readable) locateChecked(offset, bound int64, maxBytes int, minOneBatch bool) (pos int64, n int, err error) {
	for {
		pos, size, err := r.seg.findChecked(offset, r.limit)
		if err != nil || size == 0 {
			return 0, 0, err
		}
		limit := r.limit
		d := r.seg.damaged.Load()
		if d != nil {
			limit = d.clip(pos, limit)
		}
		if bound < r.end && bound < r.next {
			to, _, err := r.seg.findChecked(bound, r.limit)
			if bad := (*CorruptBatchError)(nil); errors.As(err, &bad) {
				to, err = bad.Position, nil
			}
			if err != nil {
				return 0, 0, err
			}
			if limit = min(limit, to); limit <= pos {
				return 0, 0, nil
			}
		}
		n = int(min(limit-pos, int64(max(maxBytes, 0))))
		if minOneBatch {
			n = max(n, int(size))
		}
		if d != nil {
			return pos, n, nil
		}
		good, err := r.seg.checkRange(pos, pos+int64(n), r.limit, -1)
		if err == nil {
			return pos, min(n, int(max(good-pos, size))), nil // what is cut off was not checked
		}
		if !isTorn(err) {
			return 0, 0, err
		}
		if err = r.seg.survey(r.limit); err != nil {
			return 0, 0, err
		}
		if !r.seg.suspect.Load() {
			return pos, n, nil
		}
	}
}

// locateAgain and firstAtAgain look whether the index is wrong while the log stands still.
func (r *readable) locateAgain(offset, bound int64) func(limit int64) error {
	seg := r.seg
	return func(limit int64) error {
		_, _, err := seg.find(offset, limit)
		if err == nil {
			_, _, err = seg.find(bound, limit)
		}
		return err
	}
}

func (r *readable) firstAtAgain(ts, start int64) func(limit int64) error {
	now := readable{seg: r.seg}
	return func(limit int64) error {
		now.limit = limit
		_, _, err := now.firstAtChecked(ts, start)
		return err
	}
}

// readError decides what a failed read means: a cut under the reader, a broken batch, or the disk.
func (l *Log) readError(r readable, offset int64, err error) error {
	l.pub.Lock()
	cut := true
	for i, s := range l.view.segs {
		size := s.size
		if i == len(l.view.segs)-1 {
			size = l.view.size
		}
		if s == r.seg && size >= r.limit {
			cut = false
		}
	}
	l.pub.Unlock()
	if cut {
		return nil
	}
	if bad := (*CorruptBatchError)(nil); errors.As(err, &bad) {
		return fmt.Errorf("%s: %w", l.tp, bad)
	}
	if errors.Is(err, batch.ErrIncomplete) || errors.Is(err, batch.ErrCorrupt) || errors.Is(err, batch.ErrMagic) || errors.Is(err, errIndex) {
		if !r.seg.named.Swap(true) {
			l.logger.Error("segment is damaged", "topic", l.tp.topic, "partition", l.tp.partition, "file", r.seg.path+logSuffix, "offset", offset, "err", err)
		}
		return fmt.Errorf("%w: %s: offset %d: %w", ErrCorruptMessage, l.tp, offset, err)
	}
	return l.fail("read", err)
}

// OffsetForTimestamp finds the first record whose timestamp is at or above ts
// (milliseconds), with its timestamp and leader epoch; (-1, -1, -1) if there is none.
func (l *Log) OffsetForTimestamp(ts int64) (offset, timestamp int64, epoch int32, err error) {
	if err := l.Err(); err != nil {
		return -1, -1, -1, err
	}
	start := l.start.Load()
	for at := start; ; {
		r, err := l.acquire(at)
		if err != nil {
			var out *OffsetOutOfRangeError
			if errors.As(err, &out) {
				return -1, -1, -1, nil // cut while we looked
			}
			return -1, -1, -1, err
		}
		rec, found, err := r.firstAtChecked(ts, start)
		if errors.Is(err, errIndex) {
			if err = l.repairIndex(r.seg, r.firstAtAgain(ts, start)); err == nil {
				rec, found, err = r.firstAtChecked(ts, start)
			}
		}
		r.seg.release()
		if err != nil {
			if err = l.readError(r, at, err); err != nil {
				return -1, -1, -1, err
			}
			return -1, -1, -1, nil
		}
		if found {
			return rec.offset, rec.timestamp, rec.epoch, nil
		}
		if r.next == noOffset {
			return -1, -1, -1, nil
		}
		at = r.next
	}
}

// MaxTimestamp finds the record with the largest timestamp, the first of several;
// (-1, -1, -1) for a log without timestamps.
func (l *Log) MaxTimestamp() (offset, timestamp int64, epoch int32, err error) {
	if err := l.Err(); err != nil {
		return -1, -1, -1, err
	}
	best := int64(-1)
	start := l.start.Load()
	for at := start; ; {
		r, err := l.acquire(at)
		if err != nil {
			var out *OffsetOutOfRangeError
			if errors.As(err, &out) {
				break
			}
			return -1, -1, -1, err
		}
		ts, _, err := r.seg.largestTs(r.limit)
		r.seg.release()
		if err != nil {
			if err = l.readError(r, at, err); err != nil {
				return -1, -1, -1, err
			}
			break
		}
		best = max(best, ts)
		if r.next == noOffset {
			break
		}
		at = r.next
	}
	if best < 0 {
		return -1, -1, -1, nil
	}
	return l.OffsetForTimestamp(best)
}

type recordAt struct {
	offset, timestamp int64
	epoch             int32
}

// firstAtChecked is firstAt; in a segment that was not checked as a whole, what it looks at is. A corrupt batch that may hold
// the answer is a *CorruptBatchError.
func (r *readable) firstAtChecked(ts, from int64) (found recordAt, ok bool, err error) {
	s := r.seg
	if !s.suspect.Load() || s.damaged.Load() != nil {
		found, ok, _, err = r.firstAt(ts, from)
		return found, ok, err
	}
	found, ok, looked, err := r.firstAt(ts, from)
	if err == nil {
		_, err = s.checkRange(looked.from, looked.to, r.limit, looked.next)
	}
	if err == nil || !isTorn(err) && !errors.Is(err, errIndex) {
		return found, ok, err
	}
	if err := s.survey(r.limit); err != nil {
		return found, false, err
	}
	found, ok, _, err = r.firstAt(ts, from)
	return found, ok, err
}

// firstAt finds the first record of the segment with offset >= from and timestamp >= ts. looked is where it looked for it, its next the
// offset that the index has for the first batch there, or -1.
func (r *readable) firstAt(ts, from int64) (found recordAt, ok bool, looked checkedRun, err error) {
	if r.limit == 0 {
		return found, false, looked, nil
	}
	largest, _, err := r.seg.largestTs(r.limit)
	if err != nil || largest < ts && r.seg.damaged.Load() == nil {
		return found, false, looked, err
	}
	x, err := r.seg.index(r.limit)
	if err != nil {
		return found, false, looked, err
	}
	// Up to the entry's offset no batch reaches ts, if the entry's own timestamp is below it.
	pos, last := int64(0), int64(-1)
	entry, claimed := x.floorTime(ts - 1)
	if claimed = claimed && ts > math.MinInt64; claimed {
		pos, last = x.floorEntry(int64(entry.rel))
	}
	if pos >= r.limit {
		pos, last, claimed = 0, -1, false
	}
	looked = checkedRun{from: pos, to: r.limit, next: -1}
	if last >= 0 {
		looked.next = r.seg.base + last
	}
	w := r.seg.walker(pos, r.limit)
	w.strict = true
	defer w.close()
	for {
		h, err := w.header()
		if errors.Is(err, io.EOF) {
			return found, false, looked, nil
		}
		if err != nil {
			return found, false, looked, err
		}
		size := batch.SizeOf(h)
		if at := r.seg.base + int64(entry.rel); claimed && h.LastOffset() >= at {
			if err := entry.check(h, at); err != nil {
				return found, false, looked, err
			}
			claimed = false
		}
		if h.LastOffset() >= from && h.MaxTimestamp() >= ts && h.NumRecords() > 0 {
			if r.seg.suspect.Load() && r.seg.damaged.Load() == nil {
				// Not after whole: what it allocates is what the length says.
				if _, err := r.seg.checkRange(w.pos, w.pos+size, r.limit, -1); err != nil {
					return found, false, looked, err
				}
			}
			b, err := w.whole()
			if err != nil {
				return found, false, looked, err
			}
			if found, ok, err = firstRecordAt(b, ts, from); ok || err != nil {
				looked.to = w.pos + size
				return found, ok, looked, err
			}
		}
		w.pos += size
	}
}

func firstRecordAt(b batch.Batch, ts, from int64) (found recordAt, ok bool, err error) {
	it := records.New(b, false)
	defer it.Close()
	for it.Next() {
		if r := it.Record(); r.Offset >= from && r.Timestamp >= ts {
			return recordAt{r.Offset, r.Timestamp, b.PartitionLeaderEpoch()}, true, nil
		}
	}
	if err := it.Err(); err != nil {
		return found, false, fmt.Errorf("%w: offset %d: %w", batch.ErrCorrupt, b.BaseOffset(), err)
	}
	return found, false, nil
}
