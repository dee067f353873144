package log

import (
	"errors"
	"fmt"
	"io"
	"math"

	"stet/zerocopy/batch"
)

// recover scans the segments from index k on, checks every batch, cuts the torn tail and
// makes indexes, epochs, producer state and transaction index from what is left. It returns
// the log end. clean says that it was no crash, but a file that is not as it was stopped with.
func (l *Log) recover(k int, hadTxns map[int64]bool, clean bool) (end int64, err error) {
	if err := l.loadState(l.segs[:k], l.segs[k].base); err != nil {
		return 0, err
	}
	end = l.segs[k].base
	// Later snapshots may be of a history that the crash took back.
	if err := l.removeSnapshots(func(o int64) bool { return o > end }); err != nil {
		return 0, err
	}
	for i := k; i < len(l.segs); i++ {
		s := l.segs[i]
		end = max(end, s.base)
		if i > k {
			if err := l.writeSnapshot(s.base); err != nil {
				return 0, err
			}
		}
		bound := int64(math.MaxInt64)
		if i+1 < len(l.segs) {
			bound = l.segs[i+1].base
		} else if s.check != nil {
			bound = s.check.oldEnd
		}
		valid, next, why, err := l.scan(s, end, bound, hadTxns[s.base])
		if err != nil {
			return 0, fmt.Errorf("%s: %w", s.file.Name(), err)
		}
		end = next
		l.recovered.ScannedBytes += valid
		if valid == s.size && i+1 < len(l.segs) && l.hole(end, l.segs[i+1].base) {
			why = fmt.Errorf("%w: the batches up to the next segment's %d are missing", errOrder, l.segs[i+1].base)
		} else if valid == s.size {
			if i+1 < len(l.segs) {
				s.seal()
			}
			if err := s.writeIndexes(); err != nil {
				return 0, err
			}
			if i+1 < len(l.segs) {
				s.unload()
			}
			continue
		}
		return end, l.cutTail(i, valid, end, why, clean)
	}
	return end, nil
}

// hole says that a segment that ends at end lost its last batches: a roll begins the next
// segment at the log end. A cleaner may remove them too, and a gap too wide for relative
// offsets is left out (roll syncs first).
func (l *Log) hole(end, next int64) bool {
	return end < next && next-end <= math.MaxInt32 && !l.cfg.Load().compacted() && next > max(l.cleaned.Load(), l.compacted.Load())
}

// scan checks one segment. It returns the bytes and the end offset of the valid batches,
// and why the first bad byte is bad. An error is one of the disk, or a format that must not
// be touched.
func (l *Log) scan(s *segment, expect, bound int64, hadTxns bool) (valid, next int64, why, err error) {
	interval := int64(l.cfg.Load().IndexIntervalBytes)
	s.trust() // of what is not right nothing is kept
	s.damaged.Store(nil)
	s.startIndex()
	s.txns, s.txnsOnDisk, s.sinceIndex, s.firstTs, s.next = nil, 0, 0, -1, s.base
	if hadTxns {
		s.txnsOnDisk = -1
	}
	s.flushed, s.synced = 0, 0
	w := newWalker(s.file, 0, s.size)
	defer w.close()
	for {
		b, err := w.whole()
		if errors.Is(err, io.EOF) {
			return w.pos, expect, nil, nil
		}
		if err == nil {
			err = checkStored(b, s, expect, bound)
		}
		if err != nil {
			if !isTorn(err) {
				return 0, 0, nil, err
			}
			if w.legacy() {
				return 0, 0, nil, fmt.Errorf("%w: %w", ErrUnsupportedFormat, err)
			}
			return w.pos, expect, err, nil
		}
		size := int64(len(b))
		s.note(b, w.pos, size, interval)
		l.epochs.assign(b.PartitionLeaderEpoch(), b.BaseOffset())
		if e, aborted := l.state.apply(b); aborted {
			s.addTxn(e)
		}
		expect = b.NextOffset()
		s.next = expect
		w.pos += size
	}
}

var errOrder = errors.New("offset out of order")

// checkStored repeats the checks of an append, no more: what was accepted must be kept.
func checkStored(b batch.Batch, s *segment, expect, bound int64) error {
	base, delta := b.BaseOffset(), b.LastOffsetDelta()
	if base < 0 || delta < 0 || base > math.MaxInt64-1-int64(delta) {
		return fmt.Errorf("%w: offset %d with last offset delta %d", batch.ErrCorrupt, base, delta)
	}
	if base < expect || b.NextOffset() > bound || !s.fits(b.LastOffset()) {
		return fmt.Errorf("%w: batch %d to %d, expected %d to %d", errOrder, base, b.LastOffset(), expect, bound)
	}
	return b.CheckCRC()
}

func isTorn(err error) bool {
	return errors.Is(err, batch.ErrIncomplete) || errors.Is(err, batch.ErrCorrupt) || errors.Is(err, batch.ErrMagic) || errors.Is(err, errOrder)
}

// cutTail removes what follows the valid bytes of segment i.
func (l *Log) cutTail(i int, valid, end int64, why error, clean bool) error {
	s := l.segs[i]
	r := &l.recovered
	r.CutFrom, r.CutBytes, r.Reason = end, s.size-valid, why.Error()
	gone := l.segs[i+1:]
	for _, g := range gone {
		r.CutBytes += g.size
	}
	what := "log is cut after a crash"
	if clean {
		what = "log is cut, though it was stopped cleanly: what follows is not what was written"
	}
	l.logger.Warn(what, "topic", l.tp.topic, "partition", l.tp.partition, "offset", end,
		"bytes", r.CutBytes, "segments", len(gone), "err", why)
	for j := len(gone) - 1; j >= 0; j-- {
		if err := l.moveAside(gone[j]); err != nil {
			return err
		}
		gone[j].release()
	}
	l.segs = l.segs[: i+1 : i+1]
	if err := s.file.Truncate(valid); err != nil {
		return err
	}
	s.size = valid
	if err := s.file.Sync(); err != nil {
		return err
	}
	if err := s.writeIndexes(); err != nil {
		return err
	}
	return l.removeSnapshots(func(o int64) bool { return o > end })
}
