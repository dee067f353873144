package log

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"stet/internal/vfs"
)

const (
	lockFile     = ".lock"
	metaFile     = "meta.properties"
	cleanFile    = ".kafka_cleanshutdown"
	deleteSuffix = "-delete"
	// raftDir is Kafka's own metadata log: not a partition of ours, and not ours to touch.
	raftDir = "__cluster_metadata-0"
)

// dataDir is one of log.dirs.
type dataDir struct {
	fs       vfs.FS
	path     string
	lock     io.Closer
	id       string // directory.id
	nameless bool   // it had no meta.properties

	failure atomic.Pointer[error] // the disk failed: all partitions are offline

	syncs      syncer
	writeBacks writeBacks

	mu      sync.Mutex
	durable map[topicPartition]int64 // recovery points as the checkpoint on disk has them
	starts  map[topicPartition]int64 // the same for log starts
	cleaned map[topicPartition]int64 // the same for the cleaner
	hw      map[topicPartition]int64 // the lines of the high watermark checkpoint
	hwStale bool                     // the file has others
	gone    map[topicPartition]bool  // partitions that are not there, but have lines on disk
}

// offsets are a partition's lines in the checkpoint files.
type offsets struct {
	recoveryPoint, start, hw int64
	startLine                bool // the start is not simply the first segment's base
	ok                       bool
}

// offsets reads the log's checkpoint values; they stay readable after it was closed.
func (l *Log) offsets() offsets {
	l.pub.Lock()
	first := int64(-1)
	if len(l.view.segs) > 0 {
		first = l.view.segs[0].base
	}
	l.pub.Unlock()
	start := l.start.Load()
	return offsets{l.recoveryPoint.Load(), start, l.hw.Load(), start > first, l.Err() == nil}
}

func (m *Manager) openDirs() error {
	fsys := m.o.FS
	var fresh []*dataDir
	for _, path := range m.o.Dirs {
		path = filepath.Clean(path)
		for _, d := range m.dirs {
			if d.path == path {
				return fmt.Errorf("log.dirs names %s twice", path)
			}
		}
		d := &dataDir{fs: fsys, path: path, durable: map[topicPartition]int64{}, starts: map[topicPartition]int64{}, cleaned: map[topicPartition]int64{}, hw: map[topicPartition]int64{}, hwStale: true, gone: map[topicPartition]bool{}}
		d.writeBacks.init()
		m.dirs = append(m.dirs, d)
		if err := m.vanished(path); err != nil {
			d.takeOffline(m.o.Logger, err)
			continue
		}
		err := makeDir(fsys, path)
		if err == nil {
			d.lock, err = fsys.Lock(filepath.Join(path, lockFile))
		}
		if err != nil && len(m.o.Dirs) > 1 && d.check(m.o.Logger, err) {
			continue
		}
		if err != nil {
			if errors.Is(err, vfs.ErrLocked) {
				return fmt.Errorf("log directory %s is in use: %w", path, err)
			}
			return fmt.Errorf("log directory %s: %w", path, err)
		}
		p, err := readFile(fsys, filepath.Join(path, metaFile))
		if isNotExist(err) {
			fresh = append(fresh, d)
			d.nameless = true
			continue
		}
		if err == nil {
			err = d.checkMeta(p, m)
		}
		if err != nil && len(m.o.Dirs) > 1 && d.check(m.o.Logger, err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("log directory %s: %w", path, err)
		}
	}
	if m.clusterID == "" {
		var id [16]byte
		_, _ = rand.Read(id[:]) // never fails
		m.clusterID = idString(id)
	}
	for _, d := range fresh {
		var id [16]byte
		_, _ = rand.Read(id[:])
		d.id = idString(id)
		text := fmt.Appendf(nil, "#\ncluster.id=%s\ndirectory.id=%s\nnode.id=%d\nversion=1\n", m.clusterID, d.id, m.o.NodeID)
		err := writeFile(fsys, filepath.Join(d.path, metaFile), text, true)
		if err != nil && len(m.o.Dirs) > 1 && d.check(m.o.Logger, err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("log directory %s: %w", d.path, err)
		}
	}
	return nil
}

// makeDir makes a directory and its parents durably.
func makeDir(fsys vfs.FS, path string) error {
	var parents []string
	for p := path; ; p = filepath.Dir(p) {
		if _, err := fsys.Stat(p); err == nil || p == filepath.Dir(p) {
			break
		}
		parents = append(parents, filepath.Dir(p))
	}
	if err := fsys.MkdirAll(path, 0o755); err != nil {
		return err
	}
	for _, p := range parents {
		if err := fsys.SyncDir(p); err != nil {
			return err
		}
	}
	return nil
}

// checkMeta compares meta.properties with the options.
func (d *dataDir) checkMeta(p []byte, m *Manager) error {
	kv := map[string]string{}
	for line := range strings.Lines(string(p)) {
		line = strings.TrimSpace(line)
		if k, v, ok := strings.Cut(line, "="); ok && !strings.HasPrefix(line, "#") {
			kv[strings.TrimSpace(k)] = strings.TrimSpace(v)
		}
	}
	if v := kv["version"]; v != "1" {
		return fmt.Errorf("%s: version is %q, must be 1", metaFile, v)
	}
	cluster := kv["cluster.id"]
	if cluster == "" {
		return fmt.Errorf("%s: no cluster.id", metaFile)
	}
	if m.clusterID == "" {
		m.clusterID = cluster
	}
	if cluster != m.clusterID {
		return fmt.Errorf("%s: cluster.id is %s, this broker's is %s", metaFile, cluster, m.clusterID)
	}
	if n, err := strconv.ParseInt(kv["node.id"], 10, 32); err != nil || int32(n) != m.o.NodeID {
		return fmt.Errorf("%s: node.id is %q, this broker's is %d", metaFile, kv["node.id"], m.o.NodeID)
	}
	d.id = kv["directory.id"]
	return nil
}

// loadDirs opens the partitions of all directories, side by side. errs is what failed, by
// directory. What memory it takes is a window and the indexes of one segment per thread.
func (m *Manager) loadDirs() (errs []error) {
	errs = make([]error, len(m.dirs))
	found := make([][]*Log, len(m.dirs))
	parallel(len(m.dirs), len(m.dirs), func(i int) {
		if errs[i] = m.dirs[i].err(); errs[i] == nil {
			found[i], errs[i] = m.loadDir(m.dirs[i])
		}
	})
	for _, logs := range found {
		for _, l := range logs {
			if other := m.logs[l.tp]; other != nil {
				_ = l.fail("open", fmt.Errorf("the partition is also in %s", other.dir))
				_ = l.close(false)
				continue
			}
			m.logs[l.tp] = l
		}
	}
	return errs
}

// loadDir opens the partitions of a directory.
func (m *Manager) loadDir(d *dataDir) ([]*Log, error) {
	marker := filepath.Join(d.path, cleanFile)
	_, err := m.o.FS.Stat(marker)
	clean := err == nil
	if clean {
		// From here on a crash is a crash.
		if err = m.o.FS.Remove(marker); err == nil {
			err = m.o.FS.SyncDir(d.path)
		}
		if err != nil {
			return nil, fmt.Errorf("log directory %s: %w", d.path, err)
		}
	}
	entries, err := m.o.FS.ReadDir(d.path)
	if err != nil {
		return nil, fmt.Errorf("log directory %s: %w", d.path, err)
	}
	var recovery, start, hw, cleaned map[topicPartition]int64
	for _, c := range []struct {
		name string
		m    *map[topicPartition]int64
	}{{recoveryPointFile, &recovery}, {logStartFile, &start}, {highWatermarkFile, &hw}, {cleanerFile, &cleaned}} {
		p, err := readFile(m.o.FS, filepath.Join(d.path, c.name))
		if err == nil {
			*c.m, err = decodeOffsets(p)
		}
		if err != nil && !isNotExist(err) {
			// Without it more is scanned, or a log start is found again: nothing is lost.
			m.o.Logger.Warn("checkpoint is not used", "file", filepath.Join(d.path, c.name), "err", err)
			if c.name == recoveryPointFile {
				clean = false
			}
		}
	}
	maps.Copy(d.durable, recovery)
	maps.Copy(d.starts, start)
	maps.Copy(d.cleaned, cleaned)
	var found []topicPartition
	for _, e := range entries {
		name := e.Name()
		tp, err := parsePartitionDir(name)
		switch {
		case e.IsDir() && err == nil && name != raftDir:
			found = append(found, tp)
		case knownInDataDir(name):
		case e.IsDir() && isDeletedDir(name):
			m.removeLater(filepath.Join(d.path, name), 0)
		default:
			m.o.Logger.Warn("unknown file is left alone", "file", filepath.Join(d.path, name))
		}
	}
	if d.nameless && len(found) > 0 {
		m.o.Logger.Warn(metaFile+" was missing in a directory with partitions; it is written again", "file", filepath.Join(d.path, metaFile), "partitions", len(found))
	}
	for _, c := range []map[topicPartition]int64{recovery, start, hw, cleaned} {
		for tp := range c {
			d.gone[tp] = true
		}
	}
	for _, tp := range found {
		delete(d.gone, tp)
	}
	logs := make([]*Log, len(found))
	parallel(len(found), m.o.RecoveryThreads, func(i int) {
		tp := found[i]
		dir := filepath.Join(d.path, tp.String())
		if m.unborn(dir) {
			d.mu.Lock()
			d.gone[tp] = true
			d.mu.Unlock()
			return
		}
		from := loadFrom{recoveryPoint: recovery[tp], start: start[tp], hw: hw[tp], cleaned: -1, clean: clean}
		if o, ok := cleaned[tp]; ok {
			from.cleaned = o
		}
		l := openPartition(m, dir, tp, m.configOf(tp.topic), from)
		if l.recoveryPoint.Load() < l.end.Load() {
			m.flushSoon(l)
		}
		logs[i] = l
	})
	return slices.DeleteFunc(logs, func(l *Log) bool { return l == nil }), nil
}

// knownInDataDir says what belongs into a log directory beside partitions: our files and
// Kafka's, and the metadata.
func knownInDataDir(name string) bool {
	switch stem := strings.TrimSuffix(name, ".tmp"); stem {
	case lockFile, metaFile, cleanFile, recoveryPointFile, logStartFile, highWatermarkFile, cleanerFile, raftDir, "bootstrap.checkpoint", "lost+found":
		return true
	default:
		return strings.HasPrefix(name, "stet-")
	}
}

// isDeletedDir recognises what deletedDirName and Apache Kafka make.
func isDeletedDir(name string) bool {
	stem, ok := strings.CutSuffix(name, deleteSuffix)
	i := strings.LastIndexByte(stem, '.')
	if !ok || i < 0 {
		return false
	}
	id, err := hex.DecodeString(stem[i+1:])
	return err == nil && len(id) == 16
}

// unborn says that a directory is what a crash left of a partition being created: its
// identity is unreadable or missing, and it holds no data. It is removed.
func (m *Manager) unborn(dir string) bool {
	who, err := readIdentity(m.o.FS, dir)
	if err == nil && who.id != ([16]byte{}) {
		return false
	}
	if data, derr := hasData(m.o.FS, dir); derr != nil || data {
		return false
	}
	return m.o.FS.RemoveAll(dir) == nil
}

// forgetGone makes sure that a new partition does not inherit the checkpoint lines of a
// deleted one of the same name: a crash would then trust bytes that nobody synced, or start
// the log at the old one's start. m.mu is held.
func (m *Manager) forgetGone(d *dataDir, tp topicPartition) error {
	d.mu.Lock()
	gone := d.gone[tp]
	d.mu.Unlock()
	if !gone {
		return nil
	}
	logs := make([]*Log, 0, len(m.logs))
	for _, l := range m.logs {
		logs = append(logs, l)
	}
	return d.checkpointOffsets(logs, true)
}

// writeRecoveryPoints writes the checkpoint durably. d.mu is held.
func (d *dataDir) writeRecoveryPoints(points map[topicPartition]int64) error {
	if err := writeFile(d.fs, filepath.Join(d.path, recoveryPointFile), encodeOffsets(points), true); err != nil {
		return err
	}
	d.durable = points
	return nil
}

// raiseDurable notes at once that everything below offset is on disk, so that a crash does not make it be scanned.
func (m *Manager) raiseDurable(l *Log, offset int64) error {
	d := m.dirOf(l)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.durable[l.tp] >= offset {
		return nil
	}
	points := maps.Clone(d.durable)
	points[l.tp] = offset
	return d.writeRecoveryPoints(points)
}

// lowerDurable makes sure that the checkpoints on disk claim nothing from offset on: neither
// that it is synced, nor that the log starts later.
func (m *Manager) lowerDurable(l *Log, offset int64) error {
	d := m.dirOf(l)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.durable[l.tp] > offset {
		points := maps.Clone(d.durable)
		points[l.tp] = offset
		if err := d.writeRecoveryPoints(points); err != nil {
			return err
		}
	}
	if o, ok := d.cleaned[l.tp]; ok && o > offset {
		if err := d.writeCleaned(l.tp, offset); err != nil {
			return err
		}
	}
	if d.starts[l.tp] > offset {
		starts := maps.Clone(d.starts)
		starts[l.tp] = offset
		return d.writeStarts(starts, true)
	}
	return nil
}

// checkpointAll writes all three checkpoint files, for a clean shutdown.
func (d *dataDir) checkpointAll(logs []*Log, points map[*Log]offsets) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	recovery, start := map[topicPartition]int64{}, map[topicPartition]int64{}
	for _, l := range logs {
		if l.home != d || l.deleted {
			continue
		}
		o := points[l]
		recovery[l.tp] = o.recoveryPoint
		d.setWatermark(l.tp, o.hw)
		if o.start > 0 {
			start[l.tp] = o.start
		}
	}
	if err := d.writeRecoveryPoints(recovery); err != nil {
		return err
	}
	if err := d.writeStarts(start, true); err != nil {
		return err
	}
	return d.writeWatermarks(true)
}

func (d *dataDir) markClean() error {
	return writeFile(d.fs, filepath.Join(d.path, cleanFile), []byte(`{"version":0,"brokerEpoch":-1}`), true)
}

// deletedDirName is Kafka's name for a directory on its way out, at most 255 bytes.
func deletedDirName(tp topicPartition) string {
	var id [16]byte
	_, _ = rand.Read(id[:])
	suffix := fmt.Sprintf("-%d.%s%s", tp.partition, hex.EncodeToString(id[:]), deleteSuffix)
	return tp.topic[:min(len(tp.topic), 255-len(suffix))] + suffix
}
