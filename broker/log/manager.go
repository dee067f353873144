package log

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"stet/internal/clock"
	"stet/internal/vfs"
)

// ManagerOptions configures OpenManager. Zero values take Kafka's defaults.
type ManagerOptions struct {
	FS                     vfs.FS   // vfs.OS
	Dirs                   []string // log.dirs; a new partition goes to the one with the fewest
	NodeID                 int32
	ClusterID              string // "": what the directories say, or a new one
	Clock                  clock.Clock
	Logger                 *slog.Logger
	ProducerIDExpirationMs int64 // producer.id.expiration.ms, a day; SetProducerIDExpirationMs changes it

	RetentionCheckMs          int64 // log.retention.check.interval.ms, 300000
	FlushOffsetCheckpointMs   int64 // log.flush.offset.checkpoint.interval.ms, 60000
	HighWatermarkCheckpointMs int64 // replica.high.watermark.checkpoint.interval.ms, 5000

	RecoveryThreads int // num.recovery.threads.per.data.dir, 2: partitions of a directory that are opened at once

	MaxOpenFiles int // segment files that are kept open; half of the process's limit

	Cleaner CleanerConfig // SetCleaner changes it

	CheckBytesPerSec int64 // log.check.io.max.bytes.per.second, 0: no check in the background; SetCheckRate changes it
}

// SetProducerIDExpirationMs changes producer.id.expiration.ms for what expires from now on.
func (m *Manager) SetProducerIDExpirationMs(ms int64) { m.producerExpiry.Store(ms) }

// Manager owns the log directories of a broker. It is safe for concurrent use.
type Manager struct {
	o         ManagerOptions
	clusterID string
	dirs      []*dataDir
	configOf  func(topic string) Config

	mu      sync.Mutex
	logs    map[topicPartition]*Log
	closed  bool
	settled map[topicPartition]settled // as the file has it, without what was deleted since
	applied bool                       // ImageApplied was called
	refused map[topicPartition]refusal
	stuck   map[topicPartition]*Log // deleted, but their directories could not be renamed

	settledStale bool       // the file has lines of deleted partitions
	settledDue   bool       // all partitions have to be looked at
	settledMu    sync.Mutex // held while the file of settled partitions is written

	entries chan struct{} // holds those who sync a directory
	handles *handles
	bg      background
	dirty   dirtyLogs
	clean   cleaner
	ahead   aheadQueue
	rot     rotChecker

	producerExpiry atomic.Int64 // producer.id.expiration.ms
	corrupt        atomic.Int64 // batches that were found to be corrupt
}

// OpenManager locks the directories, reads their meta.properties and checkpoints, and opens
// every partition, recovering what was not shut down cleanly. A partition that cannot be
// opened is there with Err set. Of several directories, one whose disk fails is offline (DirSizes
// tells) and the others work. A directory that cannot be used for another reason is an error that names it:
// locked by another process (vfs.ErrLocked), not writable, or of another cluster or node.
func OpenManager(o ManagerOptions, configOf func(topic string) Config) (*Manager, error) {
	o.setDefaults()
	m := &Manager{o: o, clusterID: o.ClusterID, configOf: configOf, logs: map[topicPartition]*Log{}, refused: map[topicPartition]refusal{}, stuck: map[topicPartition]*Log{}, entries: make(chan struct{}, maxEntrySyncs)}
	m.handles = newHandles(o.FS, o.MaxOpenFiles, o.Logger)
	m.bg.init()
	m.clean.init(&m.o)
	m.producerExpiry.Store(o.ProducerIDExpirationMs)
	m.ahead.init()
	m.rot.init(o.CheckBytesPerSec, len(o.Dirs))
	if len(o.Dirs) == 0 {
		return nil, fmt.Errorf("log.dirs is empty")
	}
	m.readSettled()
	if err := m.openDirs(); err != nil {
		m.unlock()
		return nil, err
	}
	online := 0
	errs := m.loadDirs()
	for i, d := range m.dirs {
		err := errs[i]
		if err != nil && len(m.dirs) > 1 && (d.err() != nil || d.check(o.Logger, err)) {
			continue // its partitions are offline, the others are not
		}
		if err == nil {
			online++
		}
		if err != nil {
			for _, l := range m.logs {
				_ = l.close(false)
			}
			m.unlock()
			return nil, err
		}
	}
	if online == 0 {
		m.unlock()
		return nil, m.dirs[0].err()
	}
	return m, nil
}

func (o *ManagerOptions) setDefaults() {
	if o.FS == nil {
		o.FS = vfs.OS
	}
	if o.Clock == nil {
		o.Clock = clock.System
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	for _, d := range []struct {
		v *int64
		d int64
	}{
		{&o.ProducerIDExpirationMs, 86400000},
		{&o.RetentionCheckMs, 300000},
		{&o.FlushOffsetCheckpointMs, 60000},
		{&o.HighWatermarkCheckpointMs, 5000},
	} {
		if *d.v <= 0 {
			*d.v = d.d
		}
	}
	if o.RecoveryThreads <= 0 {
		o.RecoveryThreads = 2
	}
	if o.MaxOpenFiles <= 0 {
		o.MaxOpenFiles = openFilesLimit()
	}
	o.Cleaner.setDefaults()
}

// ClusterID is the cluster that the directories belong to.
func (m *Manager) ClusterID() string { return m.clusterID }

// Logs are all open partitions, by topic and partition.
func (m *Manager) Logs() []*Log {
	out := m.all()
	slices.SortFunc(out, func(a, b *Log) int {
		if c := strings.Compare(a.tp.topic, b.tp.topic); c != 0 {
			return c
		}
		return int(a.tp.partition - b.tp.partition)
	})
	return out
}

// all is Logs without the sorting.
func (m *Manager) all() []*Log {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]*Log, 0, len(m.logs))
	for _, l := range m.logs {
		out = append(out, l)
	}
	return out
}

// Get is the open partition, or nil.
func (m *Manager) Get(topic string, partition int32) *Log {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.logs[topicPartition{topic, partition}]
}

// Create opens the partition's log. An existing directory is taken if it is of the same
// topic id and incarnation; any other is moved aside and removed later, never adopted. A
// directory that could not be opened is returned with its Err, and so is the log of a partition
// that was here before and has no directory any more.
func (m *Manager) Create(topic string, partition int32, id [16]byte, incarnation int64, cfg Config) (*Log, error) {
	tp := topicPartition{topic, partition}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, fmt.Errorf("%w: manager", ErrClosed)
	}
	before, was := m.settled[tp]
	was = was && before.incarnation == incarnation
	if l := m.logs[tp]; l != nil {
		if l.nameless.Load() || (l.id == id && l.incarnation == incarnation) {
			l.SetConfig(cfg)
			return l, nil
		}
		if err := l.identityLost(); err != nil {
			l.nameless.Store(true)
			_ = l.fail("open", err)
			return l, nil
		}
		if l.incarnation == incarnation && l.id != ([16]byte{}) { // no other topic has it: the file with the id is damaged
			l.nameless.Store(true)
			_ = l.fail("open", fmt.Errorf("%s: topic id %s, the metadata have %s", filepath.Join(l.dir, metadataFile), idString(l.id), idString(id)))
			return l, nil
		}
		m.o.Logger.Warn("directory of another topic of the same name is moved aside", "topic", topic, "partition", partition, "file", l.dir,
			"id", idString(l.id), "incarnation", l.incarnation)
		if err := m.delete(l); err != nil {
			return nil, err
		}
	}
	if l := m.stuck[tp]; l != nil && l.home.err() == nil { // nothing is made in a directory that is offline
		if err := m.discard(l); err != nil {
			return nil, err
		}
	}
	if was {
		l := m.lostPartition(tp, id, before, cfg)
		m.logs[tp] = l
		return l, nil
	}
	if err := m.mayMake(tp, incarnation); err != nil {
		return nil, err
	}
	d, dir, err := m.makePartition(tp, id, incarnation)
	if err != nil {
		return nil, err
	}
	if err := m.forgetGone(d, tp); err != nil {
		return nil, fmt.Errorf("%w: create %s: %w", ErrStorage, dir, err)
	}
	l := openPartition(m, dir, tp, cfg, loadFrom{cleaned: -1})
	if err := l.Err(); err != nil {
		return nil, err
	}
	m.logs[tp] = l
	return l, nil
}

// makePartition makes the directory where there is most room; one whose disk turns out to have failed is passed over.
func (m *Manager) makePartition(tp topicPartition, id [16]byte, incarnation int64) (*dataDir, string, error) {
	for {
		d, err := m.emptiestDir()
		if err != nil {
			return nil, "", fmt.Errorf("%w: create %s: %w", ErrStorage, tp, err)
		}
		dir := filepath.Join(d.path, tp.String())
		if err = createPartition(m.o.FS, dir, id, incarnation); err == nil {
			return d, dir, nil
		}
		if !d.check(m.o.Logger, err) {
			return nil, "", fmt.Errorf("%w: create %s: %w", ErrStorage, dir, err)
		}
		if _, serr := m.o.FS.Stat(dir); serr != nil && isNotExist(serr) {
			continue
		}
		// What was begun must not come back beside the one made elsewhere.
		if rerr := errors.Join(m.o.FS.RemoveAll(dir), m.o.FS.SyncDir(d.path)); rerr != nil {
			return nil, "", m.refuse(tp, incarnation, err)
		}
	}
}

// CanCreate is why no partition can be made, wrapping ErrStorage: no directory is online. nil: one is.
func (m *Manager) CanCreate() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, err := m.emptiestDir()
	return err
}

// emptiestDir is where a new partition goes: the directory with the fewest, of those that are online.
func (m *Manager) emptiestDir() (*dataDir, error) {
	n := map[string]int{}
	for _, l := range m.logs {
		n[filepath.Dir(l.dir)]++
	}
	var best *dataDir
	for _, d := range m.dirs {
		if d.err() == nil && (best == nil || n[d.path] < n[best.path]) {
			best = d
		}
	}
	if best == nil {
		return nil, m.dirs[0].err()
	}
	return best, nil
}

// Delete renames the partition's directory; its files are removed in the background.
// Readers that hold a Slice are not disturbed. A partition that is not there is no error.
func (m *Manager) Delete(topic string, partition int32) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.logs[topicPartition{topic, partition}]
	if l == nil {
		return nil
	}
	return m.delete(l)
}

func (m *Manager) delete(l *Log) error {
	l.mu.Lock()
	l.drop()
	l.mu.Unlock()
	m.clean.forgetLog(l)
	delete(m.logs, l.tp)
	m.forgetSettled(l.tp)
	if d := m.dirOf(l); d != nil {
		d.disown(l)
	}
	return m.discard(l)
}

// discard moves the directory of a deleted log away. As long as it cannot be, nothing is made in its place: the new one
// would begin with the old one's records.
func (m *Manager) discard(l *Log) error {
	d := m.dirOf(l)
	to := filepath.Join(filepath.Dir(l.dir), deletedDirName(l.tp))
	err := m.o.FS.Rename(l.dir, to)
	if err != nil && !isNotExist(err) {
		if d != nil {
			m.stuck[l.tp] = l
		}
		return fmt.Errorf("%w: delete %s: %w", ErrStorage, l.dir, err)
	}
	delete(m.stuck, l.tp)
	if d != nil && (err == nil || d.err() == nil) { // else it went with its volume
		d.mu.Lock()
		d.gone[l.tp] = true
		d.mu.Unlock()
		if err := m.o.FS.SyncDir(d.path); err != nil {
			return fmt.Errorf("%w: delete %s: %w", ErrStorage, l.dir, err)
		}
	}
	m.removeLater(to, l.cfg.Load().FileDeleteDelayMs)
	return nil
}

func (m *Manager) dirOf(l *Log) *dataDir { return l.home }

func (m *Manager) dirAt(path string) *dataDir {
	for _, d := range m.dirs {
		if d.path == path {
			return d
		}
	}
	return nil
}

// Close shuts down cleanly: everything is flushed, indexes and snapshots are written, the
// checkpoints, and then the marker that spares the next start the scan. A directory in which
// anything failed gets no marker.
func (m *Manager) Close() error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil
	}
	m.closed = true
	m.mu.Unlock()
	m.ahead.drain(true)
	logs := m.all()
	points := make(map[*Log]offsets, len(logs))
	var mu sync.Mutex
	failed := map[*dataDir]error{}
	parallel(len(logs), 2*runtime.GOMAXPROCS(0), func(i int) {
		l := logs[i]
		err := l.Err()
		if err == nil {
			err = l.close(true)
		} else {
			_ = l.close(false)
		}
		mu.Lock()
		defer mu.Unlock()
		points[l] = l.offsets()
		if err != nil {
			failed[m.dirOf(l)] = err
		}
	})
	var first error
	for _, d := range m.dirs {
		err := failed[d]
		if err == nil {
			err = d.err()
		}
		if err == nil {
			err = d.checkpointAll(logs, points)
		}
		if err == nil {
			err = d.markClean()
		}
		if first == nil {
			first = err
		}
	}
	if err := m.saveSettled(); first == nil {
		first = err
	}
	m.bg.removeAll(m.o.FS)
	m.unlock()
	return first
}

func (m *Manager) unlock() {
	for _, d := range m.dirs {
		if d.lock != nil {
			_ = d.lock.Close()
		}
	}
}

// parallel runs f(0..n-1) on at most so many goroutines, and waits for them.
func parallel(n, threads int, f func(i int)) {
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(n, threads) {
		wg.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}

var _ io.Closer = (*Manager)(nil)
