package log

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"stet/zerocopy/batch"
)

// epochChecks is how many entries of a leader-epoch checkpoint are compared with the batches
// at open: the newest, and the first.
const epochChecks = 32

// batchMark is what a batch header says about epochs.
type batchMark struct {
	base, last int64
	epoch      int32
	ok         bool // there is such a batch
}

func markOf(h batch.Batch) batchMark {
	return batchMark{h.BaseOffset(), h.LastOffset(), h.PartitionLeaderEpoch(), true}
}

// fitEpochs is checkEpochs for open: false if the epochs must be rebuilt, which is logged. up to
// segment k nothing was scanned; end is the log end if that is all.
func (l *Log) fitEpochs(entries []EpochEntry, k int, end int64) (bool, error) {
	whole := k == len(l.segs)
	if !whole {
		end = l.segs[k].base
	}
	misfit, err := l.checkEpochs(entries, l.segs[:k], end, whole)
	if err != nil {
		if !isTorn(err) {
			return false, err
		}
		l.logger.Warn("leader epochs cannot be checked", "topic", l.tp.topic, "partition", l.tp.partition, "err", err)
		return true, nil
	}
	if misfit != "" {
		l.logger.Warn("leader epochs are rebuilt from the batches", "topic", l.tp.topic, "partition", l.tp.partition, "err", "checkpoint and log differ: "+misfit)
	}
	return misfit == "", nil
}

// checkEpochs compares the entries below end, a leader-epoch checkpoint that can be read,
// with the batches of segs, which end there. The file has no checksum: a copied, edited or stale one may be
// well-formed and wrong. misfit says how it does not fit, "": it does. Entries at end are of
// a leader that has not written yet, as Kafka notes them.
//
// Each entry must begin with a batch of its epoch, the batch before must be of the epoch
// before, and the last batch of the last epoch. Where batches may be gone (compaction, a
// moved log start) epochs must be in order only. whole says that end is the log end.
func (l *Log) checkEpochs(entries []EpochEntry, segs []*segment, end int64, whole bool) (misfit string, err error) {
	n := len(entries)
	for n > 0 && entries[n-1].Start >= end && entries[n-1].Start > l.start.Load() {
		if e := entries[n-1]; e.Start > end && whole {
			return fmt.Sprintf("epoch %d begins at %d, the log ends at %d", e.Epoch, e.Start, end), nil
		}
		n--
	}
	entries = entries[:n]
	last, err := lastMark(segs)
	if err != nil || !last.ok || last.last < l.start.Load() {
		return "", err
	}
	if n == 0 {
		if last.epoch >= 0 {
			return fmt.Sprintf("no epoch, the batch at %d is of %d", last.base, last.epoch), nil
		}
		return "", nil
	}
	if e := entries[n-1]; last.epoch >= 0 && last.epoch != e.Epoch {
		return fmt.Sprintf("ends with epoch %d, the last batch, at %d, is of %d", e.Epoch, last.base, last.epoch), nil
	}
	for i := range entries {
		if i > 0 && i < n-epochChecks {
			continue
		}
		prev, at, err := marksAround(segs, entries[i].Start)
		if err != nil {
			return "", err
		}
		misfit := l.epochMisfit(entries, i, prev, at)
		if misfit == "" {
			continue
		}
		if lies, err := lying(segs, entries, i, prev, at); err != nil || !lies {
			return misfit, err
		}
	}
	return "", nil
}

// lying says that a batch beside entry i has another epoch than it was written with: one that the checkpoint does not know, while the
// batch on its other side agrees with it. Then the checkpoint is right, and who reads the batch finds it out.
func lying(segs []*segment, entries []EpochEntry, i int, prev, at batchMark) (bool, error) {
	unknown := func(epoch int32) bool {
		return !slices.ContainsFunc(entries, func(e EpochEntry) bool { return e.Epoch == epoch })
	}
	if e := entries[i]; at.ok && at.base == e.Start && at.epoch != e.Epoch && unknown(at.epoch) {
		_, next, err := marksAround(segs, at.last+1)
		return next.ok && next.epoch == e.Epoch && (i == 0 || !prev.ok || prev.epoch == entries[i-1].Epoch), err
	}
	if i == 0 || !prev.ok || prev.base <= entries[i-1].Start || !unknown(prev.epoch) {
		return false, nil
	}
	before, _, err := marksAround(segs, prev.base)
	return before.ok && before.epoch == entries[i-1].Epoch && at.ok && at.epoch == entries[i].Epoch, err
}

// epochMisfit compares an entry with the batch that holds or follows its start and the one before.
func (l *Log) epochMisfit(entries []EpochEntry, i int, prev, at batchMark) string {
	e := entries[i]
	gone := l.cfg.Load().compacted() || e.Start <= max(l.cleaned.Load(), l.compacted.Load())
	moved := i == 0 && e.Start <= l.start.Load()
	switch {
	case !at.ok || at.epoch < 0:
	case at.base <= e.Start && at.epoch == e.Epoch && (at.base == e.Start || moved):
	case at.base > e.Start && at.epoch >= e.Epoch && (gone || moved):
	default:
		return fmt.Sprintf("epoch %d at %d, but the batch from %d to %d is of %d", e.Epoch, e.Start, at.base, at.last, at.epoch)
	}
	if !prev.ok || prev.epoch < 0 || moved {
		return ""
	}
	if i == 0 || prev.epoch > entries[i-1].Epoch || (prev.epoch < entries[i-1].Epoch && !gone && prev.base >= entries[i-1].Start) {
		return fmt.Sprintf("epoch %d at %d, but the batch before, at %d, is of %d", e.Epoch, e.Start, prev.base, prev.epoch)
	}
	return ""
}

// marksAround finds the first batch with a last offset at or above offset, and the one before.
func marksAround(segs []*segment, offset int64) (prev, at batchMark, err error) {
	for i := segmentFor(segs, offset); i < len(segs); i++ {
		s := segs[i]
		if s.size == 0 {
			continue
		}
		p, a, err := s.marksAround(offset)
		if i+1 < len(segs) {
			s.unload()
		}
		if err != nil {
			return prev, at, err
		}
		if p.ok {
			prev = p
		} else if !prev.ok {
			if prev, err = lastMark(segs[:i]); err != nil {
				return prev, at, err
			}
		}
		if a.ok {
			return prev, a, nil
		}
	}
	return prev, at, nil
}

func (s *segment) marksAround(offset int64) (prev, at batchMark, err error) {
	x, err := s.index(s.size)
	if err != nil {
		return prev, at, err
	}
	pos := x.floor(offset - 1 - s.base)
	if pos >= s.size {
		pos = 0
	}
	w := s.walker(pos, s.size)
	w.setWindow(findWindow) // an index interval is read, not more
	defer w.close()
	for {
		h, err := w.header()
		if errors.Is(err, io.EOF) {
			return prev, at, nil
		}
		if err != nil {
			return prev, at, fmt.Errorf("%s: %w", s.file.Name(), err)
		}
		m := markOf(h)
		if m.last >= offset {
			return prev, m, nil
		}
		prev = m
		w.pos += batch.SizeOf(h)
	}
}

// lastMark is the last batch of the segments.
func lastMark(segs []*segment) (batchMark, error) {
	for i := len(segs) - 1; i >= 0; i-- {
		if segs[i].size > 0 {
			prev, _, err := segs[i].marksAround(noOffset)
			return prev, err
		}
	}
	return batchMark{}, nil
}
