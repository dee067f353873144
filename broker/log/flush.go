package log

import (
	"os"
	"path/filepath"

	"stet/internal/vfs"
)

// Flush makes everything up to the log end durable and moves the recovery point there.
// Appends go on meanwhile.
func (l *Log) Flush() error { return l.flush(false) }

// flush syncs the log, with sealed only the segments that are not written to any more.
func (l *Log) flush(sealed bool) error {
	l.mu.Lock()
	if err := l.usable(); err != nil {
		l.mu.Unlock()
		return err
	}
	if err := l.leaveDamaged(); err != nil {
		l.mu.Unlock()
		return err
	}
	upTo := l.end.Load()
	segs := l.segs
	if sealed {
		segs = segs[:len(segs)-1]
		upTo = min(upTo, l.active().base)
	}
	if upTo <= l.recoveryPoint.Load() && !l.dirDirty && !l.epochDirty && !(l.newborn && l.total.Load() > 0) {
		l.mu.Unlock()
		return nil
	}
	type job struct {
		s    *segment
		size int64
	}
	var jobs []job
	for _, s := range segs {
		if s.flushed < s.size {
			s.retain()
			jobs = append(jobs, job{s, s.size})
		}
	}
	// Once the batches before a segment are deleted, only its snapshot knows their producers.
	var snapshots []string
	for _, s := range l.segs {
		if s.base >= l.recoveryPoint.Load() {
			snapshots = append(snapshots, s.path+snapshotSuffix)
		}
	}
	generation := l.cuts
	err := l.syncMeta()
	for _, j := range jobs {
		// By path, so with the lock held: after a truncation the path may be another segment's.
		if err == nil {
			err = l.writeIndexes(j.s)
		}
	}
	l.mu.Unlock()

	for _, j := range jobs {
		if err == nil {
			err = l.syncFiles(j.s)
		}
	}
	for _, name := range snapshots {
		if err == nil {
			err = l.syncSnapshot(name)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, j := range jobs {
		if err == nil && generation == l.cuts {
			j.s.flushed = max(j.s.flushed, j.size)
		}
		j.s.release()
	}
	if err != nil {
		return err
	}
	if generation == l.cuts {
		l.flushedTo(upTo)
	}
	return nil
}

// flushLocked is flush with Log.mu held throughout, for flush.messages.
func (l *Log) flushLocked() error {
	if err := l.syncMeta(); err != nil {
		return err
	}
	for _, s := range l.segs {
		if s.base >= l.recoveryPoint.Load() {
			if err := l.syncSnapshot(s.path + snapshotSuffix); err != nil {
				return err
			}
		}
		if s.flushed < s.size {
			if err := l.writeIndexes(s); err != nil {
				return err
			}
			if err := l.syncFiles(s); err != nil {
				return err
			}
			s.flushed = s.size
		}
	}
	l.flushedTo(l.end.Load())
	return nil
}

func (l *Log) flushedTo(offset int64) {
	l.recoveryPoint.Store(max(l.recoveryPoint.Load(), offset))
	l.flushedMs = l.nowMs()
}

func (l *Log) writeIndexes(s *segment) error {
	if err := s.writeIndexes(); err != nil {
		return l.fail("write index", err)
	}
	return nil
}

// syncFiles needs no lock: syncing the wrong file of the same name does no harm.
func (l *Log) syncFiles(s *segment) error {
	if err := s.file.Sync(); err != nil {
		return l.fail("sync", err)
	}
	for _, suffix := range []string{indexSuffix, timeIndexSuffix, txnIndexSuffix} {
		if err := syncPath(l.fs, s.path+suffix); err != nil && !isNotExist(err) {
			return l.fail("sync index", err)
		}
	}
	return nil
}

func (l *Log) syncSnapshot(name string) error {
	if err := syncPath(l.fs, name); err != nil && !isNotExist(err) {
		return l.fail("sync snapshot", err)
	}
	return nil
}

// syncMeta makes durable what must be so before the recovery point may move: the epochs,
// the directory entries, and once the files that name the partition. Log.mu is held.
func (l *Log) syncMeta() error {
	if l.epochDirty {
		if err := l.writeEpochs(true); err != nil {
			return err
		}
	}
	return l.syncEntries()
}

// syncEntries makes the files of the log findable after a power failure: the directory's entries, and once the files
// that name the partition. Log.mu is held.
func (l *Log) syncEntries() error {
	if l.newborn {
		if err := l.syncIdentity(); err != nil {
			return l.fail("sync metadata", err)
		}
	}
	if l.dirDirty || l.newborn {
		if err := l.syncDir(); err != nil {
			return err
		}
	}
	if l.newborn {
		if err := l.fs.SyncDir(filepath.Dir(l.dir)); err != nil {
			return l.fail("sync directory", err)
		}
		l.newborn = false
		l.touch()
	}
	return nil
}

func (l *Log) syncIdentity() error {
	for _, name := range []string{metadataFile, incarnationFile} {
		if err := syncPath(l.fs, filepath.Join(l.dir, name)); err != nil && !isNotExist(err) {
			return err
		}
	}
	return nil
}

func syncPath(fsys vfs.FS, name string) error {
	f, err := fsys.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	err = f.Sync()
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// persistEpochs writes the leader-epoch checkpoint if appends have added to it, without syncing.
func (l *Log) persistEpochs() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.epochOld && l.usable() == nil {
		_ = l.writeEpochs(false) // it takes the log offline by itself
	}
}

// persist writes index entries that only memory has, without syncing.
func (l *Log) persist() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.usable() != nil {
		return
	}
	_ = l.writeIndexes(l.active()) // it takes the log offline by itself
}
