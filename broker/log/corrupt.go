package log

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sort"

	"stet/zerocopy/batch"
)

// CorruptBatchError says that the bytes of a segment file from Position on are not the batches that were written, so that the
// offsets from First up to Next cannot be read. It unwraps to ErrCorruptMessage.
type CorruptBatchError struct {
	File           string
	Position, Size int64
	First, Next    int64
	Why            error
}

func (e *CorruptBatchError) Error() string {
	return fmt.Sprintf("%v: %s: position %d, %d bytes: offsets %d to %d cannot be read: %v", ErrCorruptMessage, e.File, e.Position, e.Size, e.First, e.Next-1, e.Why)
}

// Unwrap returns ErrCorruptMessage.
func (e *CorruptBatchError) Unwrap() error { return ErrCorruptMessage }

func (e *CorruptBatchError) end() int64 { return e.Position + e.Size }

// damage is what a segment with corrupt batches is read by: where they are, and where the others can be found without an
// index. It never changes.
type damage struct {
	bad   []*CorruptBatchError // ascending
	jumps []jump               // ascending; one at the segment's begin, and one behind everything that is bad
}

// jump is where the batches from an offset on begin.
type jump struct{ offset, pos int64 }

const jumpStep = 64 << 10

// holding is the corrupt range that an offset is in, nil: none.
func (d *damage) holding(offset int64) *CorruptBatchError {
	i := sort.Search(len(d.bad), func(i int) bool { return d.bad[i].Next > offset })
	if i < len(d.bad) && d.bad[i].First <= offset {
		return d.bad[i]
	}
	return nil
}

// clip is where the bytes from pos on, which are right, end.
func (d *damage) clip(pos, limit int64) int64 {
	if b := d.after(pos); b != nil {
		return min(b.Position, limit)
	}
	return limit
}

// after is the first corrupt range at or behind pos.
func (d *damage) after(pos int64) *CorruptBatchError {
	i := sort.Search(len(d.bad), func(i int) bool { return d.bad[i].Position >= pos })
	if i < len(d.bad) {
		return d.bad[i]
	}
	return nil
}

// errCut says that the log was cut under who read a segment: what was found proves nothing.
var errCut = fmt.Errorf("%w: the log was cut", batch.ErrIncomplete)

// errStopped says that a survey was ended before it was through.
var errStopped = fmt.Errorf("the check was stopped: %w", context.Canceled)

// survey checks the segment from its begin to limit, finds out what is corrupt and where it goes on behind that. Then the segment
// is not suspect any more, or its damage is known and named. An error is one of the disk, or errCut.
func (s *segment) survey(limit int64) error {
	_, err := s.surveyUntil(nil, limit)
	return err
}

// surveyUntil is survey that ends with errStopped when stop is closed, and returns how many bytes it went over. It does not
// wait for any rate: readers, cuts and who makes an index again may wait for it. Whose bytes are counted waits afterwards.
func (s *segment) surveyUntil(stop <-chan struct{}, limit int64) (n int64, err error) {
	c := s.check
	c.surveying.Lock()
	defer c.surveying.Unlock()
	if !s.suspect.Load() || s.damaged.Load() != nil {
		return 0, nil
	}
	end := min(limit, c.old)
	v := newVerifier(s, limit)
	defer v.release()
	v.expect = s.base
	v.budget = end + 64<<20
	d := &damage{jumps: []jump{{s.base, 0}}}
	looked := int64(0)
	for pos := int64(0); pos < end; {
		if pos-looked >= walkWindow {
			select {
			case <-stop:
				return pos, errStopped
			default:
			}
			looked = pos
		}
		size, err := v.frame(pos, end)
		if err == nil {
			err = v.rest(pos, size, end)
		}
		if err == nil {
			if last := d.jumps[len(d.jumps)-1]; pos-last.pos >= jumpStep {
				d.jumps = append(d.jumps, jump{v.head().BaseOffset(), pos})
			}
			v.pass()
			pos += size
			continue
		}
		if !isTorn(err) {
			return pos, err
		}
		to, next, rerr := v.resume(pos, size)
		if rerr != nil {
			return pos, rerr
		}
		d.bad = append(d.bad, &CorruptBatchError{File: s.path + logSuffix, Position: pos, Size: to - pos, First: v.expect, Next: next, Why: err})
		d.jumps = append(d.jumps, jump{next, to})
		v.expect, v.epoch, pos = next, -1, to
	}
	if len(d.bad) == 0 {
		s.trust()
		return end, nil
	}
	if !c.log.holds(s, limit) {
		return end, errCut
	}
	s.damaged.Store(d)
	c.log.nameCorrupt(d.bad)
	if c.log.live.Load() {
		c.log.m.flushSoon(c.log) // it leaves a damaged segment behind
	}
	if l := c.log; l.cfg.Load().compacted() {
		l.logger.Error("log is not compacted", "topic", l.tp.topic, "partition", l.tp.partition, "err", d.bad[0])
	}
	return end, nil
}

// namedCorrupt is how many corrupt batches of a segment are named one by one.
const namedCorrupt = 16

// nameCorrupt tells of the corrupt batches that were found in a segment: once, the first ones each, of the others how many there are.
func (l *Log) nameCorrupt(bad []*CorruptBatchError) {
	l.m.corrupt.Add(int64(len(bad)))
	named := bad[:min(len(bad), namedCorrupt)]
	for _, b := range named {
		l.logger.Error("corrupt batch is not served", "topic", l.tp.topic, "partition", l.tp.partition, "file", b.File, "position", b.Position, "bytes", b.Size,
			"offset", b.First, "next", b.Next, "err", b.Why,
			"help", "stet dump-log --deep-iteration "+b.File+" shows it; of a mirrored partition, stop the mirror, delete the copy and start it again; other offsets stay readable")
	}
	if more := bad[len(named):]; len(more) > 0 {
		first, last := more[0], more[len(more)-1]
		l.logger.Error("more corrupt batches are not served", "topic", l.tp.topic, "partition", l.tp.partition, "file", first.File, "count", len(more),
			"position", first.Position, "offset", first.First, "next", last.Next)
	}
}

// CorruptBatches is how many corrupt batches, or runs of them, were found in the segments since the start.
func (m *Manager) CorruptBatches() int64 { return m.corrupt.Load() }

// resume finds the next batch behind a corrupt one at pos: where its length leads, if that can be believed, else the first place
// where a right one with a possible offset begins. As records may look like batches, what follows it must be right as well, up to where the
// index knows a batch. next is the offset that it begins with.
func (v *verifier) resume(pos, size int64) (to, next int64, err error) {
	end := v.limit
	known, err := v.indexed(pos)
	if err != nil {
		return 0, 0, err
	}
	if at := pos + size; size >= batch.HeaderSize && at <= end {
		if at == end && known == end {
			return end, v.s.check.oldEnd, nil
		}
		if next, ok, err := v.chain(at, known); ok || err != nil {
			return at, next, err
		}
	}
	for at := pos + 1; at+batch.HeaderSize <= known && v.budget > 0; {
		p, err := v.peek(at, batch.HeaderSize, end)
		if err != nil {
			if isTorn(err) {
				break
			}
			return 0, 0, err
		}
		p = p[:min(int64(len(p)), known-at)]
		i := v.candidate(p, at)
		at += int64(i)
		if i > len(p)-batch.HeaderSize {
			continue
		}
		v.budget -= walkWindow // which is read again
		if next, ok, err := v.chain(at, known); ok || err != nil {
			return at, next, err
		}
		at++
	}
	if known < end {
		if ok, err := v.probe(known); ok || err != nil {
			return known, v.head().BaseOffset(), err
		}
	}
	return end, v.s.check.oldEnd, nil
}

// candidate is where in p, which lies at a position, what may be a batch begins: its magic, offsets and size are possible. Without one
// it is the first place for which p is too short. It looks at every byte of what is lost, so it makes no errors.
func (v *verifier) candidate(p []byte, at int64) int {
	const magicAt = 16
	last := len(p) - batch.HeaderSize
	for i := 0; i <= last; i++ {
		if p[i+magicAt] != 2 {
			n := bytes.IndexByte(p[i+magicAt:last+magicAt+1], 2)
			if n < 0 {
				break
			}
			i += n
		}
		h := batch.Batch(p[i : i+batch.HeaderSize])
		base := h.BaseOffset()
		if base < v.expect || base >= v.s.check.oldEnd {
			continue
		}
		size, delta := batch.SizeOf(h), h.LastOffsetDelta()
		if size >= batch.HeaderSize && size <= v.limit-at-int64(i) && delta >= 0 && int64(delta) < v.s.check.oldEnd-base {
			return i
		}
	}
	return max(last+1, 0)
}

// indexed is the first position behind pos of which the index file knows that a batch begins, which is right; the end of what is
// valid if there is none. It looks at each entry once per survey.
func (v *verifier) indexed(pos int64) (int64, error) {
	if !v.indexRead {
		// An index that cannot be read says nothing here, and is made again by who needs it.
		p, _ := readFile(v.s.fs, v.s.path+indexSuffix)
		v.entries, _ = decodeOffsetIndex(p, v.limit)
		v.indexRead = true
	}
	if v.known > pos && v.knownBase >= v.expect {
		return v.known, nil
	}
	for ; len(v.entries) > 0; v.entries = v.entries[1:] {
		e := v.entries[0]
		if int64(e.pos) <= pos {
			continue
		}
		size, err := v.frame(int64(e.pos), 0)
		if err == nil && v.head().LastOffset() == v.s.base+int64(e.rel) && v.possible() {
			v.budget -= size
			err = v.rest(int64(e.pos), size, 0)
			if err == nil {
				v.known, v.knownBase = int64(e.pos), v.head().BaseOffset()
				return v.known, nil
			}
		}
		if err != nil && !isTorn(err) {
			return 0, err
		}
	}
	return v.limit, nil
}

// chainLength is how many batches in a row are believed.
const chainLength = 64

// chain says whether right batches follow each other from at to a position, or so many of them, and which offset the first has.
func (v *verifier) chain(at, to int64) (first int64, ok bool, err error) {
	expect, epoch := v.expect, v.epoch
	defer func() { v.expect, v.epoch = expect, epoch }()
	v.epoch = -1
	if at == to {
		ok, err := v.probe(at)
		return v.head().BaseOffset(), ok, err
	}
	for n := 0; at < to && n < chainLength; n++ {
		if ok, err := v.probe(at); !ok || err != nil {
			return 0, false, err
		}
		if n == 0 {
			first = v.head().BaseOffset()
		}
		at += batch.SizeOf(v.head())
		v.pass()
	}
	return first, at <= to, nil
}

// possible says that the offsets of the header may be those of a batch that follows.
func (v *verifier) possible() bool {
	h := v.head()
	return h.LastOffsetDelta() >= 0 && h.BaseOffset() >= v.expect && h.BaseOffset() < v.s.check.oldEnd && h.NextOffset() <= v.s.check.oldEnd
}

// probe says whether a right batch begins at a position.
func (v *verifier) probe(at int64) (bool, error) {
	size, err := v.frame(at, at+findWindow)
	if err == nil {
		v.budget -= size
		err = v.rest(at, size, 0)
	}
	if err != nil && !isTorn(err) {
		return false, err
	}
	return err == nil, nil
}

// holds says that the segment is part of the log with at least so many bytes.
func (l *Log) holds(s *segment, limit int64) bool {
	if !l.live.Load() {
		return true // it is being opened
	}
	n, ok := l.validSize(s)
	return ok && n >= limit
}

// findChecked is find where batches may be corrupt: between the place that the index leads to and the end of the batch that
// it returns all are checked. An offset that cannot be read is a *CorruptBatchError.
func (s *segment) findChecked(offset, limit int64) (pos, size int64, err error) {
	if s.damaged.Load() == nil {
		pos, size, err = s.findAndCheck(offset, limit)
		if err == nil || !isTorn(err) && !errors.Is(err, errIndex) {
			return pos, size, err
		}
		if err := s.survey(limit); err != nil {
			return 0, 0, err
		}
	}
	if d := s.damaged.Load(); d != nil {
		return s.findBeside(d, offset, limit)
	}
	return s.find(offset, limit)
}

func (s *segment) findAndCheck(offset, limit int64) (pos, size int64, err error) {
	if limit == 0 {
		return 0, 0, nil
	}
	if pos, size, ok := s.findLatest(offset, limit); ok { // appended since the log was opened
		return pos, size, nil
	}
	x, err := s.index(limit)
	if err != nil {
		return 0, 0, err
	}
	from, last := x.floorEntry(offset - s.base)
	if from >= limit {
		from, last = 0, -1
	}
	if last >= 0 {
		last += s.base
	}
	if pos, size, err = findFrom(s.file, offset, from, last, limit); err == nil {
		_, err = s.checkRange(from, pos+size, limit, last)
	}
	return pos, size, err
}

// findBeside is find in a segment whose damage is known.
func (s *segment) findBeside(d *damage, offset, limit int64) (pos, size int64, err error) {
	if b := d.holding(offset); b != nil && b.Position < limit {
		return 0, 0, b
	}
	start := int64(0)
	n := sort.Search(len(d.jumps), func(i int) bool { return d.jumps[i].offset > offset || d.jumps[i].pos > limit })
	if n > 0 {
		start = d.jumps[n-1].pos
	}
	if limit > s.check.old { // what was appended since has an index that can be believed
		x, err := s.index(limit)
		if err != nil {
			return 0, 0, err
		}
		if p := x.floor(offset - s.base); p >= s.check.old && p < limit {
			start = p
		}
	}
	for {
		stop, b := limit, d.after(start)
		if b != nil {
			stop = min(b.Position, limit)
		}
		if pos, size, err = findFrom(s.file, offset, start, -1, stop); err != nil || size > 0 || stop == limit {
			return pos, size, err
		}
		start = b.end()
	}
}

// findForCut is findOwned for who is about to cut the log at what it finds: only a right batch lies before that.
func (s *segment) findForCut(offset int64) (pos int64, err error) {
	if s.suspect.Load() {
		if err := s.survey(s.size); err != nil {
			return 0, err
		}
	}
	d := s.damaged.Load()
	if d == nil {
		pos, _, err = s.findOwned(offset)
		return pos, err
	}
	pos, _, err = s.findBeside(d, offset, s.size)
	if bad := (*CorruptBatchError)(nil); errors.As(err, &bad) {
		pos, err = bad.Position, nil
	}
	return d.back(pos), err
}

// back is where the corrupt ranges begin that end at pos without a right batch between them, or pos.
func (d *damage) back(pos int64) int64 {
	for i := len(d.bad) - 1; i >= 0; i-- {
		if d.bad[i].end() == pos {
			pos = d.bad[i].Position
		}
	}
	return pos
}

// keep forgets what is corrupt behind pos, where the segment was cut.
func (s *segment) keep(pos int64) {
	d := s.damaged.Load()
	if d == nil {
		return
	}
	now := &damage{jumps: d.jumps}
	for _, b := range d.bad {
		if b.Position < pos {
			now.bad = append(now.bad, b)
		}
	}
	if len(now.bad) > 0 {
		s.damaged.Store(now)
		return
	}
	s.damaged.Store(nil)
	s.trust() // the rest was found to be right
}

// walker goes over the segment's batches from pos to limit, past those that are known to be corrupt.
func (s *segment) walker(pos, limit int64) *walker {
	w := newWalker(s.file, pos, limit)
	if d := s.damaged.Load(); d != nil {
		w.bad = d.bad
	}
	return w
}

// pass goes past corrupt batches, or with strict returns the one that pos is at.
func (w *walker) pass() error {
	for len(w.bad) > 0 && w.pos >= w.bad[0].Position {
		b := w.bad[0]
		if w.pos < b.end() {
			if w.strict {
				return b
			}
			w.pos = min(b.end(), w.limit)
		}
		w.bad = w.bad[1:]
	}
	if w.pos >= w.limit {
		return io.EOF
	}
	return nil
}
