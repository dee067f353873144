package log

import (
	"math"
	"path/filepath"
	"slices"

	"stet/zerocopy/batch"
)

// roll starts the segment that b will be the first batch of. Log.mu is held.
func (l *Log) roll(b batch.Batch) error {
	base := l.end.Load()
	if b.LastOffset()-base > math.MaxInt32 {
		// A gap too wide for relative offsets. Recovery must not take it for a loss.
		base = b.BaseOffset()
		if err := l.flushLocked(); err != nil {
			return err
		}
	}
	return l.rollTo(base)
}

// leaveDamaged rolls an active segment in which corrupt batches are known, and makes a crash begin its scan behind it: that would
// cut the log at the first of them. Log.mu is held.
func (l *Log) leaveDamaged() error {
	s := l.active()
	if s.size == 0 || s.damaged.Load() == nil {
		return nil
	}
	end := l.end.Load()
	if err := l.rollTo(end); err != nil {
		return err
	}
	if err := l.flushLocked(); err != nil {
		return err
	}
	if err := l.m.raiseDurable(l, end); err != nil {
		return l.fail("write checkpoint", err)
	}
	return nil
}

func (l *Log) rollTo(base int64) error {
	old := l.active()
	if old.size == 0 {
		if old.base == base {
			return nil
		}
		return l.replaceEmpty(base)
	}
	old.seal()
	if old.reserved { // the rest is given back
		if err := old.file.Truncate(old.size); err != nil {
			return l.fail("truncate", err)
		}
		old.reserved = false
	}
	if err := l.writeIndexes(old); err != nil {
		return err
	}
	if err := l.startSegment(l.segs, base); err != nil {
		return err
	}
	l.publish(l.end.Load())
	l.m.flushSoon(l)
	return nil
}

// startSegment makes the empty active segment after keep, with a producer snapshot of the
// state at its base. The caller publishes.
func (l *Log) startSegment(keep []*segment, base int64) error {
	if err := l.writeSnapshot(base); err != nil {
		return err
	}
	s, err := createSegment(l.m.handles, l.dir, base, l.nowMs())
	if err != nil {
		return l.fail("create segment", err)
	}
	if err := l.reserve(s); err != nil {
		return l.fail("preallocate", err)
	}
	l.segs = append(slices.Clip(keep), s)
	l.dirtied()
	return nil
}

// reserve draws the jitter of a new segment and allocates its blocks if the topic wants it.
func (l *Log) reserve(s *segment) error {
	cfg := l.cfg.Load()
	s.jitterMs = cfg.jitter()
	if !cfg.Preallocate {
		return nil
	}
	s.reserved = true
	return s.file.preallocate(int64(cfg.SegmentBytes))
}

// replaceEmpty exchanges the empty active segment for one with another base.
func (l *Log) replaceEmpty(base int64) error {
	old, keep := l.active(), l.segs[:len(l.segs)-1]
	if err := l.moveAside(old); err != nil {
		return err
	}
	if err := l.startSegment(keep, base); err != nil {
		return err
	}
	l.publish(l.end.Load())
	old.release()
	return nil
}

func (l *Log) writeSnapshot(offset int64) error {
	l.state.mapEnd = offset
	if err := writeFile(l.fs, segmentPath(l.dir, offset)+snapshotSuffix, l.state.encodeSnapshot(), false); err != nil {
		return l.fail("write producer snapshot", err)
	}
	return nil
}

// writeEpochs replaces the leader-epoch checkpoint.
func (l *Log) writeEpochs(sync bool) error {
	if err := writeFile(l.fs, filepath.Join(l.dir, epochFile), encodeEpochs(l.epochs.all()), sync); err != nil {
		return l.fail("write leader epochs", err)
	}
	l.epochDirty, l.epochOld = !sync, false
	return nil
}

// moveAside renames the files of a segment that is no longer part of the log; they are
// removed after file.delete.delay.ms. The caller releases the log's reference once readers
// no longer find the segment.
func (l *Log) moveAside(s *segment) error {
	l.dirtied()
	s.imu.Lock()
	s.aside = true
	s.imu.Unlock()
	if err := s.file.keep(); err != nil {
		return l.fail("move segment aside", err)
	}
	for _, suffix := range append([]string{logSuffix}, indexSuffixes...) {
		from := s.path + suffix
		err := l.fs.Rename(from, from+deletedSuffix)
		if isNotExist(err) {
			continue
		}
		if err != nil {
			return l.fail("move segment aside", err)
		}
		l.m.removeLater(from+deletedSuffix, l.cfg.Load().FileDeleteDelayMs)
	}
	return nil
}

// removeSnapshots removes the producer snapshots for which drop is true.
func (l *Log) removeSnapshots(drop func(offset int64) bool) error {
	offsets, err := snapshotOffsets(l.fs, l.dir)
	if err != nil {
		return l.fail("list snapshots", err)
	}
	for _, o := range offsets {
		if !drop(o) {
			continue
		}
		if err := l.fs.Remove(segmentPath(l.dir, o) + snapshotSuffix); err != nil && !isNotExist(err) {
			return l.fail("remove snapshot", err)
		}
		l.dirtied()
	}
	return nil
}

// dirtied notes that files were created, renamed or removed. Log.mu is held.
func (l *Log) dirtied() {
	l.dirDirty = true
	l.dirChanges++
}

func (l *Log) syncDir() error {
	if err := l.fs.SyncDir(l.dir); err != nil {
		return l.fail("sync directory", err)
	}
	l.dirDirty = false
	return nil
}
