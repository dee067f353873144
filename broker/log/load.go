package log

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"stet/zerocopy/batch"
)

// loadFrom is what the checkpoints of the log directory say about a partition.
type loadFrom struct {
	recoveryPoint int64
	start         int64
	hw            int64
	cleaned       int64 // the cleaner's checkpoint, -1: none
	clean         bool  // the last shutdown was clean: nothing needs to be scanned
}

func newLog(m *Manager, dir string, tp topicPartition, cfg Config) *Log {
	l := &Log{m: m, fs: m.o.FS, logger: m.o.Logger, tp: tp, dir: dir, home: m.dirAt(filepath.Dir(dir)), incarnation: noIncarnation, state: newProducers(), flushedMs: m.o.Clock.Now().UnixMilli()}
	l.cfg.Store(&cfg)
	l.retention.Store(true)
	l.recovered.CutFrom = -1
	l.unstable.Store(noOffset)
	l.cleaned.Store(-1)
	l.compacted.Store(-1)
	return l
}

// open reads the directory. An error means that the partition is offline; the bytes stay.
//
// What a crash may leave, and what is done:
//   - a torn or missing end of a segment that was not synced: cut at the first byte that is
//     not part of a valid batch that follows the one before; later segments go too.
//   - a truncation that was interrupted: the recovery point was lowered first, segments go
//     from the top down, so what is left is a longer prefix than wanted, never one with a hole.
//   - index files that are older or newer than the log: not read for what is scanned,
//     checked against the log's tail otherwise, and rebuilt when they disagree.
//   - snapshots, epochs and transaction index older or newer than the log: only what lies
//     below the scanned part is believed; the rest is made again from batches.
//   - a new partition whose directory entry survived but not its files: made again when it
//     holds no data (Manager.Create).
//   - an exchange of segments by the cleaner: see compact.go.
func (l *Log) open(from loadFrom) error {
	notes, err := finishSwaps(l.fs, l.dir)
	for _, n := range notes {
		l.logger.Info("interrupted compaction", "topic", l.tp.topic, "partition", l.tp.partition, "what", n)
	}
	if err != nil {
		return err
	}
	l.cleaned.Store(from.cleaned)
	l.readCompacted()
	ls, err := list(l.fs, l.dir)
	if err != nil {
		return err
	}
	for _, name := range ls.unknown {
		l.logger.Warn("unknown file is left alone", "topic", l.tp.topic, "partition", l.tp.partition, "file", filepath.Join(l.dir, name))
	}
	for _, name := range ls.orphans {
		if ext := filepath.Ext(name); ext == indexSuffix || ext == timeIndexSuffix || ext == txnIndexSuffix {
			l.logger.Warn("index of a segment that is not there is removed: a deletion was interrupted, or the segment is lost", "topic", l.tp.topic, "partition", l.tp.partition, "file", filepath.Join(l.dir, name))
			continue
		}
		l.logger.Info("leftover file is removed", "topic", l.tp.topic, "partition", l.tp.partition, "file", filepath.Join(l.dir, name))
	}
	removeQuietly(l.fs, l.dir, ls.orphans)
	if len(ls.segments) == 0 {
		l.checkCheckpoints(from, max(from.start, 0))
		return l.openEmpty(max(from.start, 0))
	}
	for i, base := range ls.segments {
		s, err := openSegment(l.m.handles, l.dir, base)
		if err != nil {
			return err
		}
		l.segs = append(l.segs, s)
		if i > 0 {
			l.segs[i-1].next = base
			l.segs[i-1].doubt(l, base)
		}
	}
	l.active().doubt(l, noOffset)
	l.start.Store(max(from.start, ls.segments[0]))

	scanFrom := len(l.segs)
	if !from.clean {
		scanFrom = segmentFor(l.segs, from.recoveryPoint)
	}
	epochs, epochsOK := l.readEpochs()
	epochsOnDisk := epochs
	scanFrom = min(scanFrom, l.readTxnIndexes(ls.txns))
	var end int64
	if scanFrom == len(l.segs) {
		if end, err = l.openActive(from.recoveryPoint); err != nil {
			if l.recovered.CutFrom >= 0 && !isTorn(err) {
				return err // a scan would cut more
			}
			scanFrom = len(l.segs) - 1
		} else if l.recovered.CutFrom >= 0 {
			epochs = slices.DeleteFunc(slices.Clone(epochs), func(e EpochEntry) bool { return e.Start >= end && e.Start > l.start.Load() })
		}
	}
	cut := l.recovered.CutFrom >= 0
	if err := l.checkSeams(l.segs[:scanFrom]); err != nil {
		return err
	}
	if epochsOK {
		if epochsOK, err = l.fitEpochs(epochs, scanFrom, end); err != nil {
			return err
		}
	}
	if epochsOK {
		l.epochs.entries = slices.Clone(epochs)
		if scanFrom < len(l.segs) {
			// One that begins at the very base may come from an earlier log start; if it was
			// that of a lost batch, the scan corrects it.
			l.epochs.reload(l.segs[scanFrom].base+1, l.start.Load())
			if len(l.epochs.entries) == 0 && scanFrom > 0 {
				// The only one was that of a log start which the crash took back.
				if err := l.epochsFrom(l.segs[:scanFrom]); err != nil {
					return err
				}
			}
		}
	} else if err := l.epochsFrom(l.segs[:scanFrom]); err != nil {
		return err
	}
	recoveryPoint := from.recoveryPoint
	if scanFrom < len(l.segs) {
		recoveryPoint = min(recoveryPoint, l.segs[scanFrom].base)
		if end, err = l.recover(scanFrom, ls.txns, from.clean); err != nil {
			return err
		}
	} else {
		recoveryPoint = end
		if err := l.loadState(l.segs, end); err != nil {
			return err
		}
	}
	l.recoveryPoint.Store(min(recoveryPoint, end))
	if !l.checkCheckpoints(from, end) {
		l.start.Store(ls.segments[0])
	}
	if end < l.start.Load() {
		return l.startOver(end)
	}
	if scanFrom < len(l.segs) {
		l.epochs.truncateEnd(end) // what is at the end may have been lost
	} else {
		l.epochs.reload(end, l.start.Load())
	}
	l.epochs.truncateStart(l.start.Load())
	if es := l.epochs.all(); !epochsOK || !slices.Equal(es, epochsOnDisk) {
		if err := l.writeEpochs(false); err != nil {
			return err
		}
	}
	l.dropStraySnapshots(ls.snapshots)
	l.finishOpen(end, from.hw)
	l.settled = scanFrom == len(l.segs) && !cut && epochsOK && slices.Contains(ls.snapshots, end)
	// A clean shutdown syncs the identity of logs with data; of others nobody knows.
	l.newborn = !from.clean || l.total.Load() == 0
	return nil
}

func (l *Log) finishOpen(end, hw int64) {
	l.live.Store(true)
	l.hw.Store(min(max(hw, l.start.Load()), end))
	l.state.replicated(l.hw.Load())
	l.active().jitterMs = l.cfg.Load().jitter()
	l.sizes()
	l.publish(end)
	if l.active().damaged.Load() != nil {
		l.m.flushSoon(l)
	}
}

// openEmpty begins a log that has no segment.
func (l *Log) openEmpty(start int64) error {
	s, err := createSegment(l.m.handles, l.dir, start, l.nowMs())
	if err != nil {
		return err
	}
	l.segs = []*segment{s}
	if err := l.reserve(s); err != nil {
		return err
	}
	l.start.Store(start)
	l.recoveryPoint.Store(start)
	l.dirDirty, l.newborn = true, true
	if err := l.removeSnapshots(func(int64) bool { return true }); err != nil {
		return err
	}
	if err := l.writeEpochs(false); err != nil {
		return err
	}
	l.finishOpen(start, start)
	return nil
}

// startOver is for a log that lost more than its log start: nothing in it may be read.
func (l *Log) startOver(end int64) error {
	l.logger.Warn("log ends below its start: it begins anew", "topic", l.tp.topic, "partition", l.tp.partition, "offset", end, "start", l.start.Load())
	l.sizes()
	l.live.Store(true)
	l.publish(end)
	return l.truncateFully(l.start.Load())
}

func (l *Log) readEpochs() ([]EpochEntry, bool) {
	p, err := readFile(l.fs, filepath.Join(l.dir, epochFile))
	var es []EpochEntry
	if err == nil {
		es, err = decodeEpochs(p)
	}
	if err != nil {
		l.logger.Warn("leader epochs are rebuilt from the batches", "topic", l.tp.topic, "partition", l.tp.partition, "err", err)
		return nil, false
	}
	return es, true
}

// readTxnIndexes returns the first segment whose transaction index cannot be read.
func (l *Log) readTxnIndexes(have map[int64]bool) int {
	bad := len(l.segs)
	for i := len(l.segs) - 1; i >= 0; i-- {
		s := l.segs[i]
		if !have[s.base] {
			continue
		}
		p, err := readFile(l.fs, s.path+txnIndexSuffix)
		if err == nil {
			s.txns, err = decodeTxnIndex(p)
		}
		if err != nil {
			l.logger.Warn("transaction index is rebuilt from the batches", "topic", l.tp.topic, "partition", l.tp.partition, "offset", s.base, "err", err)
			bad = i
		}
		s.txnsOnDisk = len(s.txns)
	}
	return bad
}

// openActive finds the log end after a clean shutdown, which noted it, from the end of the last index. Where that is corrupt the log
// is cut there. An error says that the segment has to be scanned.
func (l *Log) openActive(noted int64) (end int64, err error) {
	s := l.active()
	if s.size == 0 {
		s.idx, s.next = &index{}, s.base
		s.startIndex()
		return s.base, nil
	}
	if noted > s.base {
		s.check.oldEnd = noted
	}
	if end, err = s.end(); isTorn(err) {
		if serr := s.survey(s.size); serr != nil {
			return 0, serr
		}
		if d := s.damaged.Load(); d != nil {
			if pos := d.back(s.size); pos < s.size {
				if end, err = l.cutCorrupt(s, d.after(pos)); err != nil || s.size == 0 {
					return end, err
				}
				noted = end
			}
			end, err = s.end() // past what is corrupt
		}
	}
	if err == nil && noted > s.base && end != noted {
		bad, lerr := s.lastLies(noted)
		if isTorn(lerr) {
			s.check.oldEnd = noOffset // of a wrong checkpoint nothing is corrupt
			if lerr = s.survey(s.size); lerr == nil {
				if d := s.damaged.Load(); d != nil && d.back(s.size) < s.size {
					bad = d.after(d.back(s.size))
				} else {
					bad, lerr = s.lastLies(noted)
				}
			}
		} else if bad != nil {
			l.nameCorrupt([]*CorruptBatchError{bad})
		}
		if lerr != nil {
			return 0, lerr
		}
		if bad != nil {
			if end, err = l.cutCorrupt(s, bad); err != nil || s.size == 0 {
				return end, err
			}
			end, err = s.end()
		}
	}
	if err == nil {
		s.check.oldEnd = end
	}
	return end, err // of an error a scan cuts off what is behind the noted end
}

// cutCorrupt cuts the active segment, while it is opened, where it is corrupt up to its end: nothing that could be read is lost. What
// is corrupt before that stays, and so does what lies between. An error says that the log cannot be opened.
func (l *Log) cutCorrupt(s *segment, b *CorruptBatchError) (end int64, err error) {
	pos, end := b.Position, b.First
	r := &l.recovered
	r.CutFrom, r.CutBytes, r.Reason = end, s.size-pos, b.Why.Error()
	l.logger.Error("corrupt end of the log is cut off", "topic", l.tp.topic, "partition", l.tp.partition, "file", b.File, "position", pos,
		"bytes", s.size-pos, "offset", end, "err", b.Why)
	if err := l.removeSnapshots(func(o int64) bool { return o > end }); err != nil {
		return 0, err
	}
	if err := s.file.Truncate(pos); err != nil {
		return 0, err
	}
	if err := s.file.Sync(); err != nil {
		return 0, err
	}
	s.size, s.flushed, s.synced = pos, min(s.flushed, pos), min(s.synced, pos)
	s.check.old, s.check.oldEnd = pos, end
	s.keep(pos)
	if pos > 0 {
		if err := s.cutIndexes(pos, end); err != nil {
			return 0, err
		}
		return end, s.writeIndexes()
	}
	s.startIndex()
	s.txns, s.next, s.firstTs, s.sinceIndex = nil, s.base, -1, 0
	return end, s.writeIndexes()
}

// lastLies returns the last batch if it is not what was written: its checksum is wrong, or the segment would end where it was noted to if
// the batch began where the one before ends, which it does not. An error for which isTorn holds says that a survey has to tell.
func (s *segment) lastLies(noted int64) (*CorruptBatchError, error) {
	w := s.walker(0, s.size)
	defer w.close()
	expect, before, at, last := s.base, s.base, int64(0), batchMark{}
	for {
		h, err := w.header()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		before, at, last = expect, w.pos, markOf(h)
		expect = h.NextOffset()
		w.pos += batch.SizeOf(h)
	}
	if !last.ok {
		return nil, nil
	}
	lies := &CorruptBatchError{File: s.path + logSuffix, Position: at, Size: s.size - at, First: before, Next: max(noted, before)}
	if last.base != before && before+(last.last-last.base)+1 == noted {
		lies.Why = fmt.Errorf("%w: position %d: the last batch is %d to %d, and the log ended at %d", errOrder, at, last.base, last.last, noted)
		return lies, nil
	}
	w.pos = at
	b, err := w.whole()
	if err == nil {
		err = b.CheckCRC()
	}
	if isTorn(err) {
		lies.Why = err
		return lies, nil
	}
	return nil, err
}

// end reads the offset after the last batch of an active segment, which must not be corrupt.
func (s *segment) end() (end int64, err error) {
	x, err := s.index(s.size)
	if err != nil {
		return 0, err
	}
	if d := s.damaged.Load(); d != nil && d.bad[len(d.bad)-1].end() == s.size {
		return 0, fmt.Errorf("%w: %w", batch.ErrCorrupt, d.bad[len(d.bad)-1])
	}
	w := s.walker(0, s.size)
	defer w.close()
	h, err := w.header()
	if err != nil {
		return 0, err
	}
	s.firstTs = h.MaxTimestamp()
	if n := len(x.offsets); n > 0 {
		w.pos = int64(x.offsets[n-1].pos)
	}
	from := w.pos
	for {
		h, err := w.header()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, err
		}
		if w.pos > from && h.BaseOffset() < s.next {
			return 0, fmt.Errorf("%w: position %d: batch %d to %d, expected %d", errOrder, w.pos, h.BaseOffset(), h.LastOffset(), s.next)
		}
		s.next = h.NextOffset()
		w.pos += batch.SizeOf(h)
	}
	s.sinceIndex = w.pos - from
	return s.next, nil
}

// epochsFrom fills the epoch cache from batch headers.
func (l *Log) epochsFrom(segs []*segment) error {
	for _, s := range segs {
		expect := s.base
		err := eachHeader(s, func(h batch.Batch) {
			if h.BaseOffset() >= expect { // else its offset is wrong, and who reads it finds that out
				l.epochs.assign(h.PartitionLeaderEpoch(), h.BaseOffset())
				expect = h.NextOffset()
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func eachHeader(s *segment, f func(h batch.Batch)) error {
	w := s.walker(0, s.size)
	defer w.close()
	for {
		h, err := w.header()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.file.Name(), err)
		}
		f(h)
		w.pos += batch.SizeOf(h)
	}
}

// loadState makes the producer state as of offset upTo: the newest good snapshot below it,
// and the batches after that. Log.mu is held, or the log is not published yet.
func (l *Log) loadState(segs []*segment, upTo int64) error {
	offsets, err := snapshotOffsets(l.fs, l.dir)
	if err != nil {
		return err
	}
	l.state.clear()
	from := int64(0)
	for i := len(offsets) - 1; i >= 0; i-- {
		if offsets[i] > upTo {
			continue
		}
		p, err := readFile(l.fs, segmentPath(l.dir, offsets[i])+snapshotSuffix)
		var entries []producer
		if err == nil {
			entries, err = decodeSnapshot(p)
		}
		if err == nil {
			l.state.load(entries, offsets[i], l.nowMs(), l.m.producerExpiry.Load())
			from = offsets[i]
			break
		}
		l.logger.Warn("producer snapshot is not used", "topic", l.tp.topic, "partition", l.tp.partition, "offset", offsets[i], "err", err)
		removeQuietly(l.fs, l.dir, []string{filepath.Base(segmentPath(l.dir, offsets[i])) + snapshotSuffix})
	}
	for i, s := range segs {
		if i+1 < len(segs) && segs[i+1].base <= from {
			continue
		}
		if err := l.replay(s, from, upTo); err != nil {
			return err
		}
	}
	l.state.mapEnd = upTo
	return nil
}

// replay applies the batches of a segment in [from, upTo) to the producer state.
func (l *Log) replay(s *segment, from, upTo int64) error {
	if s.base >= upTo || from >= upTo || s.size == 0 {
		return nil
	}
	if s.suspect.Load() {
		if err := s.survey(s.size); err != nil {
			return err
		}
	}
	pos := int64(0)
	if from > s.base {
		var err error
		if pos, err = s.findForCut(from); err != nil {
			return err
		}
	}
	w := s.walker(pos, s.size)
	defer w.close()
	for {
		b, err := w.forState()
		if errors.Is(err, io.EOF) || (err == nil && b.BaseOffset() >= upTo) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.file.Name(), err)
		}
		l.state.apply(b)
		w.pos += batch.SizeOf(b)
	}
}

// dropStraySnapshots removes snapshots that belong to no segment and are not the newest.
func (l *Log) dropStraySnapshots(offsets []int64) {
	var names []string
	end := l.active().next
	for i, o := range offsets {
		_, isBase := slices.BinarySearchFunc(l.segs, o, func(s *segment, o int64) int {
			switch {
			case s.base < o:
				return -1
			case s.base > o:
				return 1
			}
			return 0
		})
		newest := i == len(offsets)-1 && o <= end
		if !isBase && !newest {
			names = append(names, filepath.Base(segmentPath(l.dir, o))+snapshotSuffix)
		}
	}
	removeQuietly(l.fs, l.dir, names)
}

// close ends the log's life in this process. With clean it is written out so that the next
// start needs no scan; the error says that it could not be.
func (l *Log) close(clean bool) error {
	var err error
	if clean {
		if err = l.Flush(); err == nil {
			err = l.settle()
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop()
	return err
}

// settle writes the last time index entry and the snapshot at the log end.
func (l *Log) settle() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	l.active().seal()
	if l.settled && !l.active().indexDirty() {
		return nil // as it was at the last clean shutdown
	}
	if err := l.writeIndexes(l.active()); err != nil {
		return err
	}
	end := l.end.Load()
	if err := l.writeSnapshot(end); err != nil {
		return err
	}
	if err := l.removeSnapshots(func(o int64) bool { return o > end }); err != nil {
		return err
	}
	if err := syncPath(l.fs, segmentPath(l.dir, end)+snapshotSuffix); err != nil {
		return l.fail("sync snapshot", err)
	}
	if err := l.syncFiles(l.active()); err != nil {
		return err
	}
	return l.syncDir()
}

// drop releases the files. Log.mu is held.
func (l *Log) drop() {
	if l.closed {
		return
	}
	l.closed = true
	l.pub.Lock()
	l.view.segs = nil
	l.pub.Unlock()
	for _, s := range l.segs {
		if s.refs.Load() > 1 {
			_ = s.file.keep() // the directory may be renamed under its readers
		}
		s.release()
	}
	l.segs = nil
}

// nameAgain writes partition.metadata where it is lost.
func (l *Log) nameAgain(lost error) error {
	if lost == nil {
		return nil
	}
	file := filepath.Join(l.dir, metadataFile)
	l.logger.Warn("file with the topic id is written again", "topic", l.tp.topic, "partition", l.tp.partition, "file", file, "err", lost)
	return writeFile(l.fs, file, encodeMetadata(l.id), true)
}

// openPartition opens a directory. On failure the log is there, offline, and its files stay
// as they are.
func openPartition(m *Manager, dir string, tp topicPartition, cfg Config, from loadFrom) *Log {
	l := newLog(m, dir, tp, cfg)
	l.mu.Lock()
	defer l.mu.Unlock()
	who, err := readIdentity(m.o.FS, dir)
	l.id, l.incarnation = who.id, who.incarnation
	if err != nil {
		l.nameless.Store(true)
	} else {
		err = l.nameAgain(who.lost)
	}
	if err == nil {
		err = l.open(from)
	}
	if err != nil {
		_ = l.fail("open", err)
		// The checkpoints keep their lines for it.
		l.start.Store(from.start)
		l.hw.Store(from.hw)
		l.recoveryPoint.Store(from.recoveryPoint)
		l.cleaned.Store(from.cleaned)
		l.pub.Lock()
		l.view = view{}
		l.pub.Unlock()
		for _, s := range l.segs {
			s.release()
		}
		l.segs = nil
	}
	l.touch()
	return l
}
