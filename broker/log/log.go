package log

import (
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"stet/internal/invariant"
	"stet/internal/vfs"
)

// Log is one partition on disk. It is safe for concurrent use; appends, truncations and
// rolls run one at a time.
type Log struct {
	m           *Manager
	fs          vfs.FS
	logger      *slog.Logger
	tp          topicPartition
	id          [16]byte
	incarnation int64
	nameless    atomic.Bool // its identity could not be read
	dir         string
	home        *dataDir
	deleted     bool // its lines in the directory's checkpoints are no more its own; under home.mu
	cfg         atomic.Pointer[Config]
	retention   atomic.Bool
	failure     atomic.Pointer[error]
	ahead       atomic.Pointer[readahead] // nil until somebody reads far behind the tail
	live        atomic.Bool               // it was opened

	dirty atomic.Uint32 // bit per watcher that will look at it

	mu             sync.Mutex
	closed         bool
	segs           []*segment // ascending; the last is the active one; replaced, never changed in place
	state          *producers
	epochs         epochCache
	epochDirty     bool  // the checkpoint file is not synced
	epochOld       bool  // it is not even written
	dirDirty       bool  // files were created or renamed since the last SyncDir
	dirChanges     int   // how often that was set
	newborn        bool  // not even the partition's own directory entry is synced yet
	cuts           int64 // truncations so far: a flush that overlaps one proves nothing
	flushedMs      int64
	recovered      Recovery
	wantsWriteBack bool // it is in its directory's writeBacks, or was taken from there
	settled        bool // nothing happened since the last clean shutdown wrote all files

	recoveryPoint atomic.Int64 // below it everything is on disk
	cleaned       atomic.Int64 // the cleaner's checkpoint, -1: none
	compacted     atomic.Int64 // below it records may be gone because of later ones, -1: none

	pub  sync.Mutex
	view view

	// Copies for lock-free reading.
	end, start, hw, unstable atomic.Int64
	total                    atomic.Int64 // bytes of all segments
}

// view is what readers see. It changes only under Log.pub, and only as a whole.
type view struct {
	segs []*segment
	size int64 // valid bytes of the active segment
	end  int64 // log end offset that belongs to size
}

// Recovery tells what opening the log after a crash found.
type Recovery struct {
	ScannedBytes int64 // batches whose CRC was checked
	CutFrom      int64 // first offset that was lost with the torn tail, -1: nothing was cut
	CutBytes     int64
	Reason       string // why the first cut byte is not part of a batch
}

// Topic is the topic's name.
func (l *Log) Topic() string { return l.tp.topic }

// Partition is the index of the partition.
func (l *Log) Partition() int32 { return l.tp.partition }

// TopicID is the id in partition.metadata, zero if the directory has none.
func (l *Log) TopicID() [16]byte { return l.id }

// Incarnation is the metadata offset of the topic's creation (SPEC 10), -1 for a directory
// that Apache Kafka wrote.
func (l *Log) Incarnation() int64 { return l.incarnation }

// Dir is the partition's directory.
func (l *Log) Dir() string { return l.dir }

// Size is the bytes of all segments.
func (l *Log) Size() int64 { return l.total.Load() }

// LogStartOffset is the first offset that may be read.
func (l *Log) LogStartOffset() int64 { return l.start.Load() }

// LogEndOffset is the offset that the next record gets.
func (l *Log) LogEndOffset() int64 { return l.end.Load() }

// HighWatermark is the first offset that is not known to be replicated.
func (l *Log) HighWatermark() int64 { return l.hw.Load() }

// LastStableOffset is the first offset that a read-committed reader may not see yet.
func (l *Log) LastStableOffset() int64 {
	hw := l.hw.Load() // first: a transaction is in unstable before the high watermark passes its records
	return min(max(l.unstable.Load(), l.start.Load()), hw)
}

// Bounds are the high watermark and the last stable offset of one moment: a transaction that the last stable
// offset is beyond has its marker below the high watermark. Whoever mirrors this log relies on that.
func (l *Log) Bounds() (highWatermark, lastStable int64) {
	lastStable = l.LastStableOffset() // first: setHighWatermark moves it last
	return l.hw.Load(), lastStable
}

// RecoveryPoint is the offset below which everything is known to be on disk.
func (l *Log) RecoveryPoint() int64 { return l.recoveryPoint.Load() }

// Recovered tells what opening the log found and cut.
func (l *Log) Recovered() Recovery {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.recovered
}

// Config is the configuration in force.
func (l *Log) Config() Config { return *l.cfg.Load() }

// SetConfig replaces the configuration.
func (l *Log) SetConfig(c Config) {
	l.cfg.Store(&c)
	l.touchFor(1 << forTick) // flush.ms may be due
}

// SetRetentionEnabled switches deletion by time and size, which is off for a mirror
// partition: its log start follows the source's (SPEC 5). Deletion below the log start goes on.
func (l *Log) SetRetentionEnabled(on bool) { l.retention.Store(on) }

// Err is the storage failure that took the partition offline, wrapping ErrStorage, or nil.
func (l *Log) Err() error {
	if p := l.failure.Load(); p != nil {
		return *p
	}
	if err := l.home.err(); err != nil {
		return err
	}
	return nil
}

// fail takes the partition offline and returns the error for the caller.
func (l *Log) fail(what string, err error) error {
	e := fmt.Errorf("%w: %s: %s: %w", ErrStorage, l.tp, what, err)
	if l.failure.CompareAndSwap(nil, &e) {
		l.logger.Error("partition is offline", "topic", l.tp.topic, "partition", l.tp.partition, "err", e)
	}
	if what != "read" { // a sector that cannot be read is one partition's trouble
		l.home.check(l.logger, err)
	}
	return e
}

// usable is checked at the start of everything that changes the log. Log.mu is held.
func (l *Log) usable() error {
	if l.closed {
		return fmt.Errorf("%w: %s", ErrClosed, l.tp)
	}
	return l.Err()
}

func (l *Log) active() *segment { return l.segs[len(l.segs)-1] }

// publish makes the current state visible to readers. Log.mu is held.
func (l *Log) publish(end int64) {
	l.settled = false
	l.pub.Lock()
	l.view = view{l.segs, l.active().size, end}
	l.pub.Unlock()
	l.end.Store(end)
	l.unstable.Store(l.state.firstUnstable())
	l.touch()
	invariant.Check(l.active().next <= end || l.active().size == 0, "%s: end %d below the active segment's %d", l.tp, end, l.active().next)
}

func (l *Log) snapshotView() view {
	l.pub.Lock()
	defer l.pub.Unlock()
	return l.view
}

// AdvanceHighWatermark moves the high watermark to the log end, which is taken under the log's lock: an end that the caller
// read could be set after that of a later append, and what that one stored would stay unreadable until the next append.
func (l *Log) AdvanceHighWatermark() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.setHighWatermark(l.end.Load())
}

// SetHighWatermark moves the high watermark, bounded by log start and log end; it may also
// go back. It reports whether it went forward. For the log end itself there is AdvanceHighWatermark.
func (l *Log) SetHighWatermark(hw int64) (advanced bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.setHighWatermark(hw)
}

func (l *Log) setHighWatermark(hw int64) bool {
	hw = min(max(hw, l.start.Load()), l.end.Load())
	old := l.hw.Load()
	if hw == old {
		return false
	}
	l.hw.Store(hw)
	l.touch()
	if hw > old && len(l.state.finished) > 0 {
		l.state.replicated(hw)
		l.unstable.Store(l.state.firstUnstable())
	}
	return hw > old
}

// LatestEpoch is the leader epoch of the last batch.
func (l *Log) LatestEpoch() (epoch int32, ok bool) { return l.epochs.latest() }

// EpochStartOffset is the first offset of the epoch.
func (l *Log) EpochStartOffset(epoch int32) (int64, bool) { return l.epochs.start(epoch) }

// EpochAt is the epoch of the record at offset, or of the last one when offset is the log end.
func (l *Log) EpochAt(offset int64) (int32, bool) { return l.epochs.at(offset) }

// EpochEntries are all epochs of the log, ascending.
func (l *Log) EpochEntries() []EpochEntry { return l.epochs.all() }

// EndOffsetForEpoch answers OffsetForLeaderEpoch: the largest epoch not above the
// requested one and the offset at which it ends; (-1, -1) if that is unknown. An epoch above
// the latest one of the log that is not above currentLeaderEpoch ends at the log end (SPEC 4.1).
func (l *Log) EndOffsetForEpoch(requested, currentLeaderEpoch int32) (epoch int32, end int64) {
	return l.epochs.endOffset(requested, currentLeaderEpoch, l.end.Load())
}

// OpenTransactions are the transactions without a marker, by first offset.
func (l *Log) OpenTransactions() []OpenTxn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state.openTransactions()
}

// ActiveProducers is the producer state, by producer id.
func (l *Log) ActiveProducers() []ProducerState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state.states()
}

// AbortedTxns are the aborted transactions that overlap [from, upTo), as a read-committed
// fetch response lists them.
func (l *Log) AbortedTxns(from, upTo int64) []AbortedTxn {
	v := l.snapshotView()
	var out []AbortedTxn
	for _, s := range v.segs[segmentFor(v.segs, from):] {
		for _, e := range s.aborted() {
			if e.lastOffset >= from && e.firstOffset < upTo {
				out = append(out, AbortedTxn{e.producerID, e.firstOffset})
			}
			if e.lastStableOffset >= upTo {
				return out
			}
		}
	}
	return out
}

// segmentFor is the index of the segment that holds offset: the last that does not begin
// above it.
func segmentFor(segs []*segment, offset int64) int {
	i, found := slices.BinarySearchFunc(segs, offset, func(s *segment, o int64) int {
		switch {
		case s.base < o:
			return -1
		case s.base > o:
			return 1
		}
		return 0
	})
	if !found && i > 0 {
		i--
	}
	return i
}

// sizes recomputes the total. Log.mu is held.
func (l *Log) sizes() {
	var n int64
	for _, s := range l.segs {
		n += s.size
	}
	l.total.Store(n)
}

func (l *Log) nowMs() int64 { return l.m.o.Clock.Now().UnixMilli() }

// noOffset is an absent upper bound.
const noOffset = int64(math.MaxInt64)
