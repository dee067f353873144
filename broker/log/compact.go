package log

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"stet/zerocopy/batch"
)

// Compaction keeps of every key the record with the highest offset. A round goes over the
// inactive segments from the log's first to the end of what could be read into the offset
// map; each group of segments becomes one cleaned segment that takes their place. Nothing at or above
// min(high watermark, first unstable offset) is looked at, never the active segment, and
// only whole segments.
//
// What a crash may leave of the exchange of a group that begins at base B (cleanedwriter.go
// and swap.go), in the order of the writes:
//
//  1. B.*.cleaned, whole or in parts: the group is untouched. They are removed at open.
//  2. B.log.cleaned is whole and synced; the index files are renamed to .swap, then the log,
//     then the directory is synced. Before B.log.swap exists: as 1, the .swap files of B go too.
//     With B.log.swap the exchange is decided, and is completed at open.
//  3. The files of the group are moved aside from the oldest segment on. At open the
//     segments with bases below the end of B.log.swap go, again from the oldest on. The last batch of a
//     group is always kept, if only its header, so that this end is exactly the group's end.
//  4. B.log.swap is renamed to B.log, then the indexes. Index .swap files beside a B.log, with
//     no .cleaned file about, are the rest of this step. The directory is synced.
//  5. cleaner-offset-checkpoint is written. Without it the next round reads more than it must.
//
// Kafka's cleaner leaves the same names; its logs may have gone to .swap while their indexes
// are still .cleaned. A .cleaned file voids the .swap files at and above its base, as in Kafka:
// nothing was moved aside before the last .cleaned file was renamed. Before a group is
// begun every older .cleaned file is gone, or the group is not begun.
//
// Before the first exchange of a round, stet.compacted is synced: the offset below which a
// record may be gone because of a later one. It is what TruncationNeedsFullCopy goes by when the checkpoint of step 5
// was lost.

// cleanable is what a round of a log would do.
type cleanable struct {
	l          *Log
	first      int64 // first dirty offset: below it each key is there once
	bound      int64 // first offset that may not be compacted, a segment's base
	clean      int64 // bytes below first
	dirty      int64 // bytes from first to bound
	overdue    bool  // max.compaction.lag.ms has passed
	checkpoint int64 // the one that first comes from
}

func (c *cleanable) ratio() float64 {
	if c.clean+c.dirty == 0 {
		return 0
	}
	return float64(c.dirty) / float64(c.clean+c.dirty)
}

// due says whether the topic's settings ask for a round now.
func (c *cleanable) due(cfg *Config) bool {
	return c.dirty > 0 && (c.overdue || c.ratio() > cfg.MinCleanableRatio)
}

// CleanerCheckpoint is the first offset that no compaction has looked at, -1 if there was none.
func (l *Log) CleanerCheckpoint() int64 { return l.cleaned.Load() }

// TruncationNeedsFullCopy says that a cut at the offset would leave keys without a value
// that they had: an older record may have been removed because of one that is now cut. The replica must copy
// the partition again from the start (SPEC 4.7).
func (l *Log) TruncationNeedsFullCopy(to int64) bool {
	return to < l.end.Load() && to < max(l.cleaned.Load(), l.compacted.Load())
}

// cleanable works out what a round would find.
func (l *Log) cleanable(nowMs int64) (cleanable, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := cleanable{l: l, checkpoint: l.cleaned.Load()}
	if err := l.usable(); err != nil {
		return c, err
	}
	cfg, start, end := l.cfg.Load(), l.start.Load(), l.end.Load()
	for _, s := range l.segs[:len(l.segs)-1] {
		if s.damaged.Load() != nil {
			return c, nil // corrupt batches are neither copied nor dropped: until the segment is gone nothing is due
		}
	}
	c.first = c.checkpoint
	if c.first < start || c.first > end {
		c.first = start
	}
	c.bound = l.segs[segmentFor(l.segs, min(l.LastStableOffset(), l.active().base))].base
	from := segmentFor(l.segs, c.first)
	earliest := int64(math.MaxInt64)
	for _, s := range l.segs[from : len(l.segs)-1] {
		if s.base >= c.bound {
			break
		}
		if cfg.MinCompactionLagMs > 0 {
			ts, _, err := s.largestTs(s.size)
			if err != nil {
				return c, l.fail("read index", err)
			}
			if ts > nowMs-cfg.MinCompactionLagMs {
				c.bound = s.base
				break
			}
		}
		if cfg.MaxCompactionLagMs < math.MaxInt64 {
			ts, err := s.firstBatchTs()
			if err != nil {
				return c, l.fail("read", err)
			}
			if ts > 0 {
				earliest = min(earliest, ts)
			}
		}
	}
	c.overdue = earliest < nowMs-cfg.MaxCompactionLagMs
	c.bound = max(c.bound, c.first)
	for i, s := range l.segs[:len(l.segs)-1] {
		switch {
		case i < from:
			c.clean += s.size
		case s.base < c.bound:
			c.dirty += s.size
		}
	}
	return c, nil
}

// firstBatchTs is the largest timestamp of the segment's first batch, -1 for an empty one.
func (s *segment) firstBatchTs() (int64, error) {
	if s.size == 0 || s.firstTs >= 0 {
		return s.firstTs, nil
	}
	w := s.walker(0, s.size)
	defer w.close()
	h, err := w.header()
	if err != nil {
		return -1, fmt.Errorf("%s: %w", s.file.Name(), err)
	}
	s.firstTs = h.MaxTimestamp()
	return s.firstTs, nil
}

// cleanerOptions are what a round may use.
type cleanerOptions struct {
	dedupeBytes int64
	load        float64
	io          *ioLimit
	window      int // bytes that are read at once; 0: walkWindow
}

// CompactionStats tells what a round did.
type CompactionStats struct {
	FirstDirty, End         int64 // the offsets that were read into the map
	Keys                    int
	BytesRead, BytesWritten int64 // of the segments that were gone over, and of what is left of them
	RecordsRemoved          int64
	Groups, Swapped         int // groups of segments, and those that changed
}

// errAbandoned says that the log was cut or deleted under a round.
var errAbandoned = errors.New("the log changed under the cleaner")

// round is one compaction of a log.
type round struct {
	l     *Log
	o     cleanerOptions
	cfg   *Config
	cuts  int64
	segs  []*segment         // inactive ones below the bound, retained
	index []int64            // sizes of their offset indexes in bytes
	sizes map[*segment]int64 // a cut may change a segment's own
	f     filter
	stats CompactionStats
	buf   []byte
}

// compact runs one round. Errors that wrap ErrStorage have taken the log offline.
func (l *Log) compact(ctx context.Context, c cleanable, o cleanerOptions) (CompactionStats, error) {
	r := &round{l: l, o: o, stats: CompactionStats{FirstDirty: c.first}}
	aborted, err := r.begin(c)
	if err != nil {
		return r.stats, err
	}
	defer r.release()
	if len(r.segs) == 0 || c.dirty == 0 {
		return r.stats, nil
	}
	if err := r.checkFirst(ctx); err != nil {
		return r.stats, r.diagnose(err)
	}
	// The map begins in the middle of the log: what ended before is not to be met there.
	later := slices.DeleteFunc(slices.Clone(aborted), func(a abortedTxn) bool { return a.lastOffset < c.first })
	if err := r.buildMap(ctx, c, newCleanedTxns(later)); err != nil {
		return r.stats, r.diagnose(err)
	}
	r.stats.End, r.stats.Keys = r.f.m.latest+1, r.f.m.n
	if r.stats.End <= c.first {
		return r.stats, fmt.Errorf("%s: a single batch has more keys than log.cleaner.dedupe.buffer.size of %d bytes can hold", l.tp, o.dedupeBytes)
	}
	r.f.txns = newCleanedTxns(aborted)
	for rest := r.segs; len(rest) > 0 && rest[0].base < r.stats.End; {
		n := r.groupSize(rest, c.bound)
		if err := r.cleanGroup(ctx, rest[:n]); err != nil {
			return r.stats, r.diagnose(err)
		}
		rest = rest[n:]
	}
	r.stats.RecordsRemoved = r.f.dropped
	return r.stats, l.setCleaned(c.checkpoint, r.cuts, r.stats.End)
}

// begin takes what the round needs from under the lock.
func (r *round) begin(c cleanable) (aborted []abortedTxn, err error) {
	l := r.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return nil, err
	}
	r.cfg, r.cuts, r.sizes = l.cfg.Load(), l.cuts, map[*segment]int64{}
	for _, s := range l.segs[:len(l.segs)-1] {
		aborted = append(aborted, s.aborted()...)
		if s.base >= c.bound {
			continue
		}
		x, err := s.index(s.size)
		if err != nil {
			r.releaseLocked()
			return nil, l.fail("read index", err)
		}
		s.retain()
		r.segs = append(r.segs, s)
		r.sizes[s] = s.size
		r.index = append(r.index, int64(max(len(x.offsets)*offsetEntrySize, len(x.times)*timeEntrySize)))
	}
	aborted = append(aborted, l.active().aborted()...)
	r.f = filter{nowMs: l.nowMs(), retention: r.cfg.DeleteRetentionMs, producers: map[int64]lastOfProducer{}}
	for id, p := range l.state.m {
		r.f.producers[id] = lastOfProducer{p.lastOffset(), p.epoch}
	}
	return aborted, nil
}

func (r *round) releaseLocked() {
	for _, s := range r.segs {
		s.release()
	}
	r.segs = nil
}

func (r *round) release() { r.releaseLocked() }

// diagnose tells a failing disk from a broken batch and from a log that was cut meanwhile.
func (r *round) diagnose(err error) error {
	l := r.l
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errAbandoned) || errors.Is(err, ErrStorage) {
		return err
	}
	l.mu.Lock()
	changed := l.cuts != r.cuts || l.closed
	l.mu.Unlock()
	if changed {
		return errAbandoned
	}
	return err
}

// checkFirst checks what was not checked since the start: a corrupt batch ends the round before anything was changed.
func (r *round) checkFirst(ctx context.Context) error {
	for _, s := range r.segs {
		if s.suspect.Load() {
			size := r.sizes[s]
			_, err := s.checkAll(ctx, func() int64 { return size }, s.checkWarm, func(n int64) error { return r.o.io.wait(ctx, n) })
			if err == nil && s.suspect.Load() { // spans were forgotten
				err = s.survey(size)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", s.file.Name(), err)
			}
		}
		if d := s.damaged.Load(); d != nil {
			return d.bad[0]
		}
	}
	return nil
}

// buildMap reads the dirty part into the offset map, as far as it has room.
func (r *round) buildMap(ctx context.Context, c cleanable, txns *cleanedTxns) error {
	var upper int64
	for i, s := range r.segs {
		next := c.bound
		if i+1 < len(r.segs) {
			next = r.segs[i+1].base
		}
		if next > c.first {
			// No more keys than offsets, and a record takes seven bytes at the very least; a
			// compressed one may take less.
			upper += next - max(s.base, c.first)
		}
	}
	m := newOffsetMap(r.o.dedupeBytes, r.o.load, upper)
	r.f.m = m
	for i, s := range r.segs {
		next := c.bound
		if i+1 < len(r.segs) {
			next = r.segs[i+1].base
		}
		if next <= c.first {
			continue
		}
		full, err := r.mapSegment(ctx, s, c.first, txns)
		if err != nil {
			return fmt.Errorf("%s: %w", s.file.Name(), err)
		}
		if full {
			return nil
		}
		m.latest = max(m.latest, next-1)
	}
	return nil
}

func (r *round) mapSegment(ctx context.Context, s *segment, from int64, txns *cleanedTxns) (full bool, err error) {
	pos := int64(0)
	if from > s.base {
		if pos, _, err = r.l.findAgain(s, from, r.sizes[s]); err != nil {
			return false, err
		}
	}
	err = r.walk(ctx, s, pos, func(b batch.Batch, _ bool) error {
		if b.IsControl() {
			txns.control(b)
		} else if !txns.data(b) {
			if err := r.f.m.addBatch(b, from); err != nil {
				return err
			}
		}
		if b.LastOffset() >= from {
			r.f.m.latest = max(r.f.m.latest, b.LastOffset())
		}
		return nil
	})
	if errors.Is(err, errMapFull) {
		return true, nil
	}
	return false, err
}

// walk calls f for every whole, checked batch of a segment from pos on.
func (r *round) walk(ctx context.Context, s *segment, pos int64, f func(b batch.Batch, last bool) error) error {
	end := r.sizes[s]
	w := newWalker(s.file, pos, end)
	w.setWindow(r.o.window)
	defer w.close()
	throttled := int64(0)
	for {
		b, err := w.whole()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = b.CheckCRC()
		}
		if err != nil {
			return fmt.Errorf("position %d: %w", w.pos, err)
		}
		size := int64(len(b))
		if throttled += size; throttled >= walkWindow || w.pos+size == end {
			if err := r.o.io.wait(ctx, throttled); err != nil {
				return err
			}
			throttled = 0
		}
		if err := f(b, w.pos+size == end); err != nil {
			return err
		}
		w.pos += size
	}
}

// groupSize is how many segments go into one, by Kafka's rule: the sum of sizes and of
// index sizes stays within the limits, and every offset fits.
func (r *round) groupSize(rest []*segment, bound int64) int {
	at := len(r.segs) - len(rest)
	size, index := r.sizes[rest[0]], r.index[at]
	n := 1
	for ; n < len(rest) && rest[n].base < r.stats.End; n++ {
		s := rest[n]
		last := bound - 1
		if n+1 < len(rest) {
			last = rest[n+1].base - 1
		}
		if size+r.sizes[s] > int64(r.cfg.SegmentBytes) || index+r.index[at+n] > int64(r.cfg.SegmentIndexBytes) || last-rest[0].base > math.MaxInt32 {
			break
		}
		size += r.sizes[s]
		index += r.index[at+n]
	}
	return n
}

// cleanGroup writes what is left of a group and puts it in the group's place.
func (r *round) cleanGroup(ctx context.Context, group []*segment) error {
	var total int64
	for _, s := range group {
		total += r.sizes[s]
	}
	r.stats.BytesRead += total
	if total == 0 {
		return nil
	}
	r.stats.Groups++
	before := r.f.rewrote + r.f.emptied
	c, err := newCleaned(r.l, group[0].base, r.cfg)
	if err != nil {
		return err
	}
	for i, s := range group {
		err := r.walk(ctx, s, 0, func(b batch.Batch, last bool) error {
			out, keep, hasKeep, err := r.f.batch(r.buf[:0], b, last && r.lastWithData(group[i+1:]))
			r.buf = out
			if err != nil {
				return err
			}
			if hasKeep {
				c.seg.addTxn(keep)
			}
			if len(out) == 0 {
				return nil
			}
			if err := r.o.io.wait(ctx, int64(len(out))); err != nil {
				return err
			}
			return c.add(out)
		})
		if err != nil {
			c.discard()
			return fmt.Errorf("%s: %w", s.file.Name(), err)
		}
	}
	r.stats.BytesWritten += c.seg.size
	if len(group) == 1 && c.seg.size == total && before == r.f.rewrote+r.f.emptied && slices.Equal(c.seg.txns, group[0].aborted()) {
		c.discard() // nothing was lost: the segment stays as it is
		return nil
	}
	if err := c.finish(group[len(group)-1]); err != nil {
		c.discard()
		return err
	}
	swapped, err := r.l.exchange(group, c, r.cuts, r.stats.End)
	if err == nil && !swapped {
		err = errAbandoned
	}
	if err == nil {
		r.stats.Swapped++
	}
	return err
}

func (r *round) lastWithData(following []*segment) bool {
	for _, s := range following {
		if r.sizes[s] > 0 {
			return false
		}
	}
	return true
}
