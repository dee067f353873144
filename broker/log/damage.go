package log

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"stet/zerocopy/batch"
)

// What is done about damaged files that opening a log does not make anew from the batches:
// it is found out where that is cheap, and named. Nothing of a batch is changed or removed for it.

// errIndex says that an index and the log it belongs to differ.
var errIndex = errors.New("index and log differ")

// repairIndex makes the index of a segment anew that a reader found to be wrong, if it still
// is while the log stands still: a reader may have met a truncation.
func (l *Log) repairIndex(s *segment, again func(limit int64) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, have := range l.segs {
		if have != s {
			continue
		}
		if err := again(s.size); errors.Is(err, errIndex) {
			return s.rebuildIndex(err)
		}
	}
	return nil
}

// rebuildIndex is repairIndex with Log.mu held.
func (s *segment) rebuildIndex(why error) error {
	s.imu.Lock()
	defer s.imu.Unlock()
	s.indexEvent(why)
	if err := s.rebuild(s.size); err != nil {
		s.idx = nil
		return err
	}
	return nil
}

func (s *segment) indexEvent(why error) {
	s.file.c.logger.Warn("index is rebuilt from the batches", "file", s.path+logSuffix, "err", why)
}

// findOwned is find for who holds Log.mu.
func (s *segment) findOwned(offset int64) (pos, size int64, err error) {
	pos, size, err = s.find(offset, s.size)
	if errors.Is(err, errIndex) {
		if err = s.rebuildIndex(err); err == nil {
			pos, size, err = s.find(offset, s.size)
		}
	}
	return pos, size, err
}

// findAgain is find for who does not hold Log.mu, in the first limit bytes of an inactive segment.
func (l *Log) findAgain(s *segment, offset, limit int64) (pos, size int64, err error) {
	pos, size, err = s.find(offset, limit)
	if errors.Is(err, errIndex) {
		if err = l.repairIndex(s, func(limit int64) error { _, _, err := s.find(offset, limit); return err }); err == nil {
			pos, size, err = s.find(offset, limit)
		}
	}
	return pos, size, err
}

// checkSeams looks at the end of every segment that is not scanned and not the last: it must
// end with a whole batch, and, unless compaction may have removed what was there, where the
// next segment begins.
func (l *Log) checkSeams(segs []*segment) error {
	for i, s := range segs {
		if i+1 == len(l.segs) {
			break
		}
		next := l.segs[i+1].base
		last, err := s.tail()
		if err != nil {
			if !isTorn(err) && !errors.Is(err, errIndex) {
				return err
			}
			l.logger.Error("segment is damaged", "topic", l.tp.topic, "partition", l.tp.partition, "file", s.path+logSuffix, "err", err)
			continue
		}
		end := s.base
		if last.ok {
			end = last.last + 1
		}
		if l.hole(end, next) {
			l.logger.Error("offsets are missing at the end of a segment", "topic", l.tp.topic, "partition", l.tp.partition, "file", s.path+logSuffix, "offset", end, "next", next)
		}
	}
	return nil
}

// tail reads the last batch header of a segment, without its index in memory.
func (s *segment) tail() (batchMark, error) {
	if s.size == 0 {
		return batchMark{}, nil
	}
	if e, ok := s.lastEntry(); ok {
		m, err := s.tailFrom(int64(e.pos), s.base+int64(e.rel))
		if err == nil {
			return m, nil
		}
	}
	m, err := s.tailFrom(0, -1) // every header
	return m, err
}

// tailFrom walks from a position, where a batch must end at offset first unless that is negative.
func (s *segment) tailFrom(pos, first int64) (m batchMark, err error) {
	w := s.walker(pos, s.size)
	if first >= 0 {
		w.setWindow(findWindow)
	}
	defer w.close()
	for w.pos < s.size {
		h, err := w.header()
		if err != nil {
			return m, fmt.Errorf("position %d: %w", w.pos, err)
		}
		m = markOf(h)
		if first >= 0 && m.last != first {
			return m, errIndex
		}
		first = -1
		w.pos += batch.SizeOf(h)
	}
	return m, nil
}

// lastEntry reads the last entry of the offset index file.
func (s *segment) lastEntry() (offsetEntry, bool) {
	f, err := s.fs.OpenFile(s.path+indexSuffix, os.O_RDONLY, 0)
	if err != nil {
		return offsetEntry{}, false
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || st.Size() < offsetEntrySize || st.Size()%offsetEntrySize != 0 {
		return offsetEntry{}, false
	}
	var p [offsetEntrySize]byte
	if n, err := f.ReadAt(p[:], st.Size()-offsetEntrySize); n < len(p) || (err != nil && n < len(p)) {
		return offsetEntry{}, false
	}
	e := offsetEntry{int32(be.Uint32(p[:])), int32(be.Uint32(p[4:]))}
	return e, e.rel >= 0 && e.pos >= 0 && int64(e.pos) < s.size
}

// checkCheckpoints compares what the checkpoints say with the log that was found. start is
// the checkpoint of the log start; false: it cannot be right and is not to be used.
func (l *Log) checkCheckpoints(from loadFrom, end int64) bool {
	event := func(what string, offset int64) {
		l.logger.Error(what, "topic", l.tp.topic, "partition", l.tp.partition, "offset", offset, "end", end)
	}
	if from.recoveryPoint > end {
		event("log ends below its recovery point: records are lost, or the checkpoint is wrong", from.recoveryPoint)
	}
	// A clean stop notes every log start but 0. Apache Kafka notes only one inside a segment.
	if first := l.start.Load(); from.clean && len(l.segs) > 0 && first > max(from.start, 0) && (from.start > 0 || l.incarnation != noIncarnation) {
		event("log begins above its start: records are lost, or the checkpoint is wrong", from.start)
	}
	if from.clean && from.hw > end {
		event("high watermark checkpoint is ahead of the log", from.hw)
	}
	if from.cleaned > end {
		event("cleaner checkpoint is ahead of the log", from.cleaned)
	}
	if from.clean && from.start > end {
		event("log start checkpoint is ahead of the log and is not used", from.start)
		return false
	}
	return true
}

// knownFile says what a file of a partition directory is: one of ours or Kafka's, or
// something that a restart may remove.
func knownFile(name string) bool {
	switch name {
	case epochFile, metadataFile, incarnationFile, compactedFile:
		return true
	}
	for _, suffix := range []string{logSuffix, indexSuffix, timeIndexSuffix, txnIndexSuffix, snapshotSuffix} {
		if _, ok := parseSegmentName(name, suffix); ok {
			return true
		}
	}
	return leftover(name)
}

// leftover says that a file is what deletions, compactions and half-written replacements leave.
func leftover(name string) bool {
	if stem, ok := strings.CutSuffix(name, ".tmp"); ok {
		return knownFile(stem)
	}
	for _, end := range []string{deletedSuffix, cleanedSuffix, swapSuffix} {
		if stem, ok := strings.CutSuffix(name, end); ok {
			return knownFile(stem) && !leftover(stem)
		}
	}
	return false
}

// identityLost says why a directory with synced data must not be taken for somebody else's:
// what says whose it is, is missing.
func (l *Log) identityLost() error {
	name := incarnationFile
	if l.id == ([16]byte{}) {
		name = metadataFile
	} else if l.incarnation != noIncarnation {
		return nil
	}
	if l.recoveryPoint.Load() <= l.start.Load() || l.total.Load() == 0 || l.recoveryPoint.Load() == math.MaxInt64 {
		return nil
	}
	return fmt.Errorf("%s is missing, and the directory holds data: put it back, or remove the directory", filepath.Join(l.dir, name))
}
