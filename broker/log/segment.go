package log

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"stet/internal/invariant"
	"stet/internal/vfs"
	"stet/zerocopy/batch"
)

// Suffixes of segment files.
const (
	logSuffix       = ".log"
	indexSuffix     = ".index"
	timeIndexSuffix = ".timeindex"
	txnIndexSuffix  = ".txnindex"
	snapshotSuffix  = ".snapshot"
	deletedSuffix   = ".deleted"
)

// segment is one .log file with its indexes. The log itself holds one reference, every
// Slice another; the file is closed with the last.
type segment struct {
	fs    vfs.FS
	base  int64
	path  string // without suffix
	file  *handle
	refs  atomic.Int32
	named atomic.Bool // its damage was logged

	suspect atomic.Bool // not every byte was checked since the log was opened, or some are corrupt
	check   *checked    // of what was checked; nil for a segment without data at open
	damaged atomic.Pointer[damage]

	// Guarded by Log.mu; size and next are read under Log.pub too, and then change only
	// while both are held.
	size       int64 // valid bytes
	next       int64 // offset after the last batch, or the next segment's base
	createdMs  int64
	reserved   bool  // blocks beyond size are allocated
	jitterMs   int64 // how much earlier than segment.ms it is rolled
	firstTs    int64 // max timestamp of the first batch, -1: empty
	sinceIndex int64 // bytes since the last index entry
	flushed    int64 // bytes known to be on disk, with the index entries for them
	synced     int64 // bytes known to be on disk, by Sync; may be below flushed
	wroteBack  int64 // bytes whose way to the disk has begun

	imu     sync.Mutex
	idx     *index // nil: only on disk
	maxTs   int64  // -1: none
	maxTsAt int64  // last offset of the batch that has it
	txns    []abortedTxn
	latest  *latest // of a segment that is appended to
	used    bool    // since the last sweep of idle indexes
	aside   bool    // not part of the log any more: the files of its name may be another's
	// Entries that the files hold.
	offsetsOnDisk, timesOnDisk, txnsOnDisk int
}

func segmentPath(dir string, base int64) string {
	return filepath.Join(dir, fmt.Sprintf("%020d", base))
}

// parseSegmentName reads the offset of a file named by one.
func parseSegmentName(name, suffix string) (int64, bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	if !ok || len(digits) != 20 {
		return 0, false
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	return n, err == nil && n >= 0
}

// createSegment makes an empty segment with its index files.
func createSegment(c *handles, dir string, base, nowMs int64) (*segment, error) {
	s := &segment{fs: c.fs, base: base, path: segmentPath(dir, base), next: base, createdMs: nowMs, firstTs: -1, maxTs: -1, idx: &index{}}
	s.refs.Store(1)
	for _, suffix := range []string{indexSuffix, timeIndexSuffix} {
		f, err := c.fs.OpenFile(s.path+suffix, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
		if err != nil {
			return nil, err
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
	var err error
	s.file, err = c.create(s.path + logSuffix)
	return s, err
}

// openSegment takes an existing .log file; it is opened when something of it is read.
func openSegment(c *handles, dir string, base int64) (*segment, error) {
	s := &segment{fs: c.fs, base: base, path: segmentPath(dir, base), next: base, firstTs: -1, maxTs: -1}
	s.refs.Store(1)
	st, err := c.fs.Stat(s.path + logSuffix)
	if err != nil {
		return nil, err
	}
	if st.Size() > math.MaxInt32 {
		return nil, fmt.Errorf("%s: %d bytes are more than a segment can have", s.path+logSuffix, st.Size())
	}
	f := c.file(s.path + logSuffix)
	s.file, s.size, s.flushed, s.createdMs = f, st.Size(), st.Size(), st.ModTime().UnixMilli()
	return s, nil
}

func (s *segment) retain() { s.refs.Add(1) }

// tryRetain is retain for who holds no reference: false if the file may be closed already.
func (s *segment) tryRetain() bool {
	for {
		n := s.refs.Load()
		if n <= 0 {
			return false
		}
		if s.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (s *segment) release() {
	n := s.refs.Add(-1)
	invariant.Check(n >= 0, "segment %d released too often", s.base)
	if n == 0 {
		_ = s.file.Close() // nothing can be done about it, and nothing was left to write
	}
}

// fits says that offset can be stored relative to the segment's base.
func (s *segment) fits(offset int64) bool { return offset-s.base <= math.MaxInt32 }

// note updates the indexes for a batch that was written at pos. Log.mu is held.
func (s *segment) note(h batch.Batch, pos, size, interval int64) {
	last, ts := h.LastOffset(), h.MaxTimestamp()
	if pos == 0 {
		s.firstTs = ts
	}
	s.imu.Lock()
	if ts > s.maxTs {
		s.maxTs, s.maxTsAt = ts, last
	}
	if s.sinceIndex > interval && s.idx != nil {
		s.idx.offsets = append(s.idx.offsets, offsetEntry{int32(last - s.base), int32(pos)})
		s.idx.addTime(s.maxTs, int32(s.maxTsAt-s.base))
		s.sinceIndex = 0
	}
	if s.latest != nil {
		s.latest.note(last-s.base, pos, size)
	}
	s.imu.Unlock()
	s.sinceIndex += size
}

// full says that an index file has reached its size limit.
func (s *segment) full(maxIndexBytes int32) bool {
	s.imu.Lock()
	defer s.imu.Unlock()
	return s.idx != nil && (len(s.idx.offsets)+1 > int(maxIndexBytes)/offsetEntrySize || len(s.idx.times)+1 > int(maxIndexBytes)/timeEntrySize)
}

// seal adds the last time entry, as is done when a segment stops being the active one.
func (s *segment) seal() {
	s.imu.Lock()
	defer s.imu.Unlock()
	if s.idx != nil && s.maxTs >= 0 {
		s.idx.addTime(s.maxTs, int32(s.maxTsAt-s.base))
	}
	s.latest = nil
}

func (s *segment) addTxn(e abortedTxn) {
	s.imu.Lock()
	s.txns = append(s.txns, e)
	s.imu.Unlock()
}

// aborted is the transaction index; the slice is never changed in place.
func (s *segment) aborted() []abortedTxn {
	s.imu.Lock()
	defer s.imu.Unlock()
	return s.txns
}

// index returns the loaded index; it is read from disk, or rebuilt from the batches when
// the files are missing, torn or do not cover the log. limit is the valid size of the log.
func (s *segment) index(limit int64) (index, error) {
	s.imu.Lock()
	defer s.imu.Unlock()
	s.used = true
	if s.idx != nil {
		return *s.idx, nil
	}
	if s.aside {
		if err := s.rebuild(limit); err != nil {
			s.idx = nil
			return index{}, err
		}
	} else if x, err := s.readIndex(limit); err == nil {
		s.idx = x
	} else {
		s.indexEvent(err)
		if err := s.rebuild(limit); err != nil {
			s.idx = nil
			return index{}, err
		}
	}
	return *s.idx, nil
}

// readIndex loads the files and checks them against the tail of the log.
func (s *segment) readIndex(limit int64) (*index, error) {
	op, err := readFile(s.fs, s.path+indexSuffix)
	if err != nil {
		return nil, err
	}
	tp, err := readFile(s.fs, s.path+timeIndexSuffix)
	if err != nil {
		return nil, err
	}
	offsets, err := decodeOffsetIndex(op, limit)
	if err != nil {
		return nil, err
	}
	times, err := decodeTimeIndex(tp)
	if err != nil {
		return nil, err
	}
	s.maxTs, s.maxTsAt = -1, s.base
	if n := len(times); n > 0 {
		s.maxTs, s.maxTsAt = times[n-1].ts, s.base+int64(times[n-1].rel)
	}
	// An index that lost its end would hide timestamps and slow reads down.
	from := int64(0)
	if n := len(offsets); n > 0 {
		from = int64(offsets[n-1].pos)
	}
	w := s.walker(from, limit)
	defer w.close()
	for n := 0; ; n++ {
		h, err := w.header()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%w: position %d: %w", errIndex, w.pos, err)
		}
		if h.MaxTimestamp() > s.maxTs || n > 0 && w.pos-from > 64<<10 {
			return nil, fmt.Errorf("%w: it ends before the batch at position %d", errIndex, w.pos)
		}
		if n == 0 && len(offsets) > 0 && h.LastOffset() != s.base+int64(offsets[len(offsets)-1].rel) {
			return nil, fmt.Errorf("%w: position %d", errIndex, w.pos)
		}
		w.pos += batch.SizeOf(h)
	}
	x := &index{offsets, times}
	if n := len(times); n > 0 {
		if err := s.checkTime(x, times[n-1], limit); err != nil {
			return nil, err
		}
	}
	s.offsetsOnDisk, s.timesOnDisk = len(offsets), len(times)
	return x, nil
}

// checkTime says whether the batch that a time index entry speaks of has its timestamp.
func (s *segment) checkTime(x *index, e timeEntry, limit int64) error {
	pos := x.floor(int64(e.rel))
	if pos >= limit {
		pos = 0
	}
	w := s.walker(pos, limit)
	w.setWindow(findWindow)
	defer w.close()
	for {
		h, err := w.header()
		if err != nil {
			return fmt.Errorf("%w: time index entry %d: %w", errIndex, e.rel, err)
		}
		if at := s.base + int64(e.rel); h.LastOffset() >= at {
			return e.check(h, at)
		}
		w.pos += batch.SizeOf(h)
	}
}

// check compares an entry with the first batch that ends at or after its offset.
func (e timeEntry) check(h batch.Batch, at int64) error {
	if h.BaseOffset() > at || h.MaxTimestamp() != e.ts {
		return fmt.Errorf("%w: time index entry (%d, %d), but the batch from %d has %d", errIndex, e.ts, e.rel, h.BaseOffset(), h.MaxTimestamp())
	}
	return nil
}

// rebuild makes the index anew from the batch headers.
func (s *segment) rebuild(limit int64) error {
	if s.suspect.Load() {
		if err := s.survey(limit); err != nil {
			return err
		}
	}
	s.startIndex()
	damaged := s.damaged.Load() != nil
	w := s.walker(0, limit)
	defer w.close()
	since := int64(0)
	for {
		h, err := w.header()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.file.Name(), err)
		}
		if ts := h.MaxTimestamp(); ts > s.maxTs {
			s.maxTs, s.maxTsAt = ts, h.LastOffset()
		}
		if since > defaultIndexInterval {
			s.idx.offsets = append(s.idx.offsets, offsetEntry{int32(h.LastOffset() - s.base), int32(w.pos)})
			if !damaged { // an entry says of all batches up to it that they are older
				s.idx.addTime(s.maxTs, int32(s.maxTsAt-s.base))
			}
			since = 0
		}
		size := batch.SizeOf(h)
		since += size
		w.pos += size
	}
	if s.maxTs >= 0 && !damaged {
		s.idx.addTime(s.maxTs, int32(s.maxTsAt-s.base))
	}
	return nil
}

const defaultIndexInterval = 4096

// startIndex drops all index entries, in memory and by the next write on disk too.
func (s *segment) startIndex() {
	s.idx, s.maxTs, s.maxTsAt = &index{}, -1, s.base
	s.offsetsOnDisk, s.timesOnDisk = -1, -1
}

// writeIndexes brings the index files up to date, by path: Log.mu is held, and the segment
// is part of the log.
func (s *segment) writeIndexes() error {
	s.imu.Lock()
	defer s.imu.Unlock()
	if s.idx != nil {
		if err := s.appendFile(indexSuffix, &s.offsetsOnDisk, len(s.idx.offsets), offsetEntrySize, func(from int) []byte {
			return appendOffsetEntries(nil, s.idx.offsets[from:])
		}); err != nil {
			return err
		}
		if err := s.appendFile(timeIndexSuffix, &s.timesOnDisk, len(s.idx.times), timeEntrySize, func(from int) []byte {
			return appendTimeEntries(nil, s.idx.times[from:])
		}); err != nil {
			return err
		}
	}
	if len(s.txns) == 0 && s.txnsOnDisk == 0 {
		return nil
	}
	return s.appendFile(txnIndexSuffix, &s.txnsOnDisk, len(s.txns), txnEntrySize, func(from int) []byte {
		return appendTxnEntries(nil, s.txns[from:])
	})
}

// indexDirty says that the index files of a segment with data are not up to date.
func (s *segment) indexDirty() bool {
	s.imu.Lock()
	defer s.imu.Unlock()
	return s.size > 0 && s.idx != nil && (s.offsetsOnDisk != len(s.idx.offsets) || s.timesOnDisk != len(s.idx.times) || s.txnsOnDisk != len(s.txns))
}

// appendFile writes the entries from *onDisk on. A negative *onDisk means that the file's
// content is void. The file is cut to its exact size.
func (s *segment) appendFile(suffix string, onDisk *int, n, entry int, encode func(from int) []byte) error {
	if *onDisk == n {
		return nil
	}
	f, err := s.fs.OpenFile(s.path+suffix, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	from := max(*onDisk, 0)
	from = min(from, n)
	if err = f.Truncate(int64(from * entry)); err == nil && from < n {
		_, err = f.WriteAt(encode(from), int64(from*entry))
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		*onDisk = n
	}
	return err
}

// dropIdle unloads the index of an inactive segment that was not used since the last call.
// Log.mu is held.
func (s *segment) dropIdle() {
	s.imu.Lock()
	drop := s.idx != nil && !s.used
	s.used = false
	s.imu.Unlock()
	// One that was rebuilt is written first, else it would be rebuilt again.
	if !drop || s.writeIndexes() != nil {
		return
	}
	s.imu.Lock()
	defer s.imu.Unlock()
	if !s.used {
		s.idx = nil
	}
}

// unload drops an index that the files hold; it is read again when it is needed.
func (s *segment) unload() {
	s.imu.Lock()
	defer s.imu.Unlock()
	if s.idx != nil && s.offsetsOnDisk == len(s.idx.offsets) && s.timesOnDisk == len(s.idx.times) {
		s.idx = nil
	}
}

// largestTs is the largest timestamp of the segment in milliseconds, -1 if there is none.
func (s *segment) largestTs(limit int64) (ts, lastOffset int64, err error) {
	if _, err := s.index(limit); err != nil {
		return -1, -1, err
	}
	s.imu.Lock()
	defer s.imu.Unlock()
	return s.maxTs, s.maxTsAt, nil
}

// find returns errIndex if the index is wrong, and else the position of the first batch whose last offset is at or above offset,
// and its size; pos is limit if there is none.
func (s *segment) find(offset, limit int64) (pos, size int64, err error) {
	if limit == 0 {
		return 0, 0, nil
	}
	if pos, size, ok := s.findLatest(offset, limit); ok {
		return pos, size, nil
	}
	x, err := s.index(limit)
	if err != nil {
		return 0, 0, err
	}
	pos, last := x.floorEntry(offset - s.base)
	if pos >= limit {
		pos, last = 0, -1 // the index is ahead of what may be seen
	}
	if last >= 0 {
		last += s.base
	}
	return findFrom(s.file, offset, pos, last, limit)
}

const findWindow = 4 << 10

var findPool = sync.Pool{New: func() any { return new([findWindow]byte) }}

// findFrom searches from pos on, where a batch ends with the offset last if that is not
// negative. errIndex says that it does not: the index is wrong.
func findFrom(f io.ReaderAt, offset, pos, last, limit int64) (int64, int64, error) {
	buf := findPool.Get().(*[findWindow]byte)
	defer findPool.Put(buf)
	at, n := pos, 0
	for pos < limit {
		if pos < at || pos+batch.HeaderSize > at+int64(n) {
			var err error
			at = pos
			n, err = f.ReadAt(buf[:min(findWindow, limit-pos)], pos)
			if n < batch.HeaderSize {
				if err == nil || errors.Is(err, io.EOF) {
					err = batch.ErrIncomplete
				}
				return 0, 0, err
			}
		}
		h := batch.Batch(buf[pos-at:][:batch.HeaderSize])
		size := batch.SizeOf(h)
		if last >= 0 && h.LastOffset() != last {
			return 0, 0, fmt.Errorf("%w: position %d: a batch up to %d, not to %d", errIndex, pos, h.LastOffset(), last)
		}
		last = -1
		if size < batch.HeaderSize || pos+size > limit {
			return 0, 0, fmt.Errorf("%w: position %d: size %d", batch.ErrCorrupt, pos, size)
		}
		if h.LastOffset() >= offset {
			if h.Magic() != 2 {
				return 0, 0, fmt.Errorf("%w: position %d: magic %d", batch.ErrMagic, pos, h.Magic())
			}
			return pos, size, nil
		}
		pos += size
	}
	return limit, 0, nil
}
