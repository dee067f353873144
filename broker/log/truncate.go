package log

import (
	"errors"
	"fmt"
	"io"

	"stet/zerocopy/batch"
)

// Truncate removes everything from offset to on. A batch that holds to goes as a whole, and
// the log end is where the last batch that is left ends, so it may come out below to. The old file is shrunk and a new segment begins: bytes
// that a reader may have in flight are never overwritten. The high watermark and, if need be,
// the log start are lowered. It is durable on return; a crash in between leaves a log that ends
// between to and its old end.
func (l *Log) Truncate(to int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	if to < 0 {
		return fmt.Errorf("%w: truncate to %d", ErrInvalidRecord, to)
	}
	if to >= l.end.Load() {
		return nil
	}
	if to < l.segs[0].base {
		return l.truncateFully(to)
	}
	i := segmentFor(l.segs, to)
	seg := l.segs[i]
	pos, err := seg.findForCut(to)
	if err != nil {
		return l.fail("truncate", err)
	}
	if to, err = l.cutPoint(i, pos, to); err != nil {
		return l.fail("truncate", err)
	}
	if err := l.lowerRecoveryPoint(to); err != nil {
		return err
	}
	l.hideAbove(i, pos, to)

	// From the top down, so that a crash never leaves a hole.
	keep, gone := l.segs[:i+1], l.segs[i+1:]
	if pos == 0 {
		keep, gone = l.segs[:i], l.segs[i:]
	}
	if err := l.removeSnapshots(func(o int64) bool { return o > to }); err != nil {
		return err
	}
	if err := l.moveAllAside(gone); err != nil {
		return err
	}
	if pos > 0 {
		if err := l.shrink(seg, pos, to); err != nil {
			return err
		}
	}
	l.epochs.truncateEnd(to)
	if err := l.writeEpochs(true); err != nil {
		return err
	}
	if err := l.loadState(keep, to); err != nil {
		return l.fail("reload producer state", err)
	}
	return l.finishCut(keep, gone, to)
}

// cutPoint is the end of what a cut at position pos of segment i leaves: where its last batch
// ends, so that segments always follow each other without a gap that recovery could take for
// a loss. With nothing left it is the log start, or the segment's base.
func (l *Log) cutPoint(i int, pos, to int64) (int64, error) {
	seg := l.segs[i]
	if pos == 0 {
		if i > 0 {
			return min(to, seg.base), nil
		}
		return max(seg.base, min(to, l.start.Load())), nil
	}
	x, err := seg.index(seg.size)
	if err != nil {
		return 0, err
	}
	from := int64(0)
	for n := len(x.offsets) - 1; n >= 0; n-- {
		if p := int64(x.offsets[n].pos); p < pos {
			from = p
			break
		}
	}
	w := seg.walker(from, pos)
	defer w.close()
	for end := int64(-1); ; {
		h, err := w.header()
		if errors.Is(err, io.EOF) {
			return end, nil
		}
		if err != nil {
			return 0, err
		}
		end = h.NextOffset()
		w.pos += batch.SizeOf(h)
	}
}

// TruncateFullyAndStartAt removes everything; log start and log end become offset.
func (l *Log) TruncateFullyAndStartAt(offset int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	if offset < 0 {
		return fmt.Errorf("%w: truncate to %d", ErrInvalidRecord, offset)
	}
	return l.truncateFully(offset)
}

func (l *Log) truncateFully(offset int64) error {
	if err := l.lowerRecoveryPoint(min(offset, l.segs[0].base)); err != nil {
		return err
	}
	l.hideAbove(0, 0, offset)
	l.start.Store(offset)
	l.hw.Store(offset)
	l.touch()
	gone := l.segs
	if err := l.removeSnapshots(func(int64) bool { return true }); err != nil {
		return err
	}
	if err := l.moveAllAside(gone); err != nil {
		return err
	}
	l.epochs.clear()
	if err := l.writeEpochs(true); err != nil {
		return err
	}
	l.state.clear()
	return l.finishCut(nil, gone, offset)
}

// hideAbove takes what will be cut away from readers before the files change. The view
// keeps segment i with its first pos bytes.
func (l *Log) hideAbove(i int, pos, end int64) {
	l.cuts++
	l.segs[i].forgetLatest()
	l.pub.Lock()
	l.segs[i].size = pos
	l.segs[i].next = min(l.segs[i].next, end)
	l.view = view{l.segs[:i+1], pos, end}
	l.pub.Unlock()
	l.end.Store(end)
	l.start.Store(min(l.start.Load(), end))
	l.hw.Store(min(l.hw.Load(), end))
	l.touch()
}

// moveAllAside renames from the last to the first and makes that durable.
func (l *Log) moveAllAside(gone []*segment) error {
	for j := len(gone) - 1; j >= 0; j-- {
		if err := l.moveAside(gone[j]); err != nil {
			return err
		}
	}
	return l.syncDir()
}

func (l *Log) finishCut(keep, gone []*segment, end int64) error {
	if err := l.startSegment(keep, end); err != nil {
		return err
	}
	if err := l.syncSnapshot(l.active().path + snapshotSuffix); err != nil {
		return err
	}
	if err := l.syncDir(); err != nil {
		return err
	}
	l.sizes()
	l.state.replicated(l.hw.Load())
	l.publish(end)
	for _, s := range gone {
		s.release()
	}
	return nil
}

// shrink cuts a segment file to pos bytes, and its indexes to the offsets below to.
func (l *Log) shrink(s *segment, pos, to int64) error {
	if err := s.file.Truncate(pos); err != nil {
		return l.fail("truncate", err)
	}
	if err := s.file.Sync(); err != nil {
		return l.fail("truncate", err)
	}
	s.flushed, s.synced = min(s.flushed, pos), min(s.synced, pos)
	s.keep(pos)
	if err := s.cutIndexes(pos, to); err != nil {
		return l.fail("truncate index", err)
	}
	if err := l.writeIndexes(s); err != nil {
		return err
	}
	return l.syncFiles(s)
}

// cutIndexes drops the entries of offsets at or above to, and finds the largest timestamp
// that is left.
func (s *segment) cutIndexes(pos, to int64) error {
	if _, err := s.index(pos); err != nil {
		return err
	}
	s.imu.Lock()
	defer s.imu.Unlock()
	n := len(s.txns)
	for n > 0 && s.txns[n-1].lastOffset >= to {
		n--
	}
	s.txns = s.txns[:n:n]
	s.idx = &index{s.idx.offsets, s.idx.times}
	s.idx.cut(to - s.base)
	s.offsetsOnDisk, s.timesOnDisk = -1, -1 // equal counts would hide that entries differ
	s.maxTs, s.maxTsAt = -1, s.base
	if n := len(s.idx.times); n > 0 {
		s.maxTs, s.maxTsAt = s.idx.times[n-1].ts, s.base+int64(s.idx.times[n-1].rel)
	}
	from := int64(0)
	if n := len(s.idx.offsets); n > 0 {
		from = int64(s.idx.offsets[n-1].pos)
	}
	w := s.walker(from, pos)
	defer w.close()
	for {
		h, err := w.header()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if ts := h.MaxTimestamp(); ts > s.maxTs {
			s.maxTs, s.maxTsAt = ts, h.LastOffset()
		}
		w.pos += batch.SizeOf(h)
	}
	if s.maxTs >= 0 {
		s.idx.addTime(s.maxTs, int32(s.maxTsAt-s.base))
	}
	return nil
}

// lowerRecoveryPoint makes sure that, after a crash, everything from offset on is checked
// and seen: the checkpoints on disk must not claim bytes that are about to be replaced.
func (l *Log) lowerRecoveryPoint(offset int64) error {
	l.recoveryPoint.Store(min(l.recoveryPoint.Load(), offset))
	l.cleaned.Store(min(l.cleaned.Load(), offset))
	if l.compacted.Load() > offset {
		if err := l.writeCompacted(offset); err != nil {
			return err
		}
	}
	if err := l.m.lowerDurable(l, offset); err != nil {
		return l.fail("write checkpoint", err)
	}
	return nil
}
