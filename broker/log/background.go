package log

import (
	"context"
	"maps"
	"path/filepath"
	"sync"
	"time"

	"stet/internal/vfs"
)

// background is the work that Run does.
type background struct {
	mu      sync.Mutex
	flushes map[*Log]bool
	removal []removal
	wake    chan struct{}
}

type removal struct {
	path  string
	dueMs int64
}

func (b *background) init() {
	b.flushes = map[*Log]bool{}
	b.wake = make(chan struct{}, 1)
}

// flushSoon asks for a flush of the segments that are not written to any more.
func (m *Manager) flushSoon(l *Log) {
	m.bg.mu.Lock()
	m.bg.flushes[l] = true
	m.bg.mu.Unlock()
	select {
	case m.bg.wake <- struct{}{}:
	default:
	}
}

// removeLater removes a file or directory after delayMs.
func (m *Manager) removeLater(path string, delayMs int64) {
	due := m.o.Clock.Now().UnixMilli() + max(delayMs, 0)
	m.bg.mu.Lock()
	m.bg.removal = append(m.bg.removal, removal{path, due})
	m.bg.mu.Unlock()
}

func (b *background) removeAll(fsys vfs.FS) {
	b.mu.Lock()
	all := b.removal
	b.removal = nil
	b.mu.Unlock()
	for _, r := range all {
		_ = fsys.RemoveAll(r.path) // it is tried again at the next start
	}
}

// RemoveDue removes the files whose delay is over. Run calls it.
func (m *Manager) RemoveDue() {
	now := m.o.Clock.Now().UnixMilli()
	m.bg.mu.Lock()
	var due []removal
	keep := m.bg.removal[:0]
	for _, r := range m.bg.removal {
		if r.dueMs <= now {
			due = append(due, r)
		} else {
			keep = append(keep, r)
		}
	}
	m.bg.removal = keep
	m.bg.mu.Unlock()
	for _, r := range due {
		if err := m.o.FS.RemoveAll(r.path); err != nil {
			m.o.Logger.Warn("file could not be removed", "file", r.path, "err", err)
		}
	}
}

// FlushSealed flushes the segments that were rolled since the last call. Run calls it.
func (m *Manager) FlushSealed() {
	m.bg.mu.Lock()
	todo := m.bg.flushes
	m.bg.flushes = map[*Log]bool{}
	m.bg.mu.Unlock()
	for l := range todo {
		_ = l.flush(true) // a failure takes the log offline by itself
	}
}

// Checkpoint writes the three checkpoint files where they changed, and the index entries
// that only memory has. Run calls it.
func (m *Manager) Checkpoint() {
	m.checkpointWatermarks()
	logs := m.all()
	for _, l := range logs {
		l.persist()
	}
	for _, d := range m.dirs {
		if d.err() != nil {
			continue
		}
		if err := d.checkpointOffsets(logs, false); err != nil {
			d.check(m.o.Logger, err)
			m.o.Logger.Error("checkpoint could not be written", "file", d.path, "err", err)
		}
	}
}

// checkpointOffsets writes recovery points (durably) and log starts. With sync all three
// files are written durably.
func (d *dataDir) checkpointOffsets(logs []*Log, sync bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	recovery, start := map[topicPartition]int64{}, map[topicPartition]int64{}
	changed := sync
	for _, l := range logs {
		if l.home != d || l.deleted {
			continue
		}
		o := l.offsets()
		d.setWatermark(l.tp, o.hw)
		r, had := d.durable[l.tp]
		if !o.ok && !had {
			continue
		}
		if o.ok { // of an offline log, what was true stays true
			r = o.recoveryPoint
		}
		recovery[l.tp] = r
		if o.startLine {
			start[l.tp] = o.start
		}
		changed = changed || !had || r != d.durable[l.tp]
	}
	if changed || len(recovery) != len(d.durable) {
		if err := d.writeRecoveryPoints(recovery); err != nil {
			return err
		}
	}
	if sync {
		if err := d.writeWatermarks(true); err != nil {
			return err
		}
	}
	if err := d.writeStarts(start, sync); err != nil {
		return err
	}
	if sync {
		if err := d.forgetCleaned(); err != nil {
			return err
		}
		clear(d.gone)
	}
	return nil
}

// writeStarts writes the log starts if they changed. d.mu is held.
func (d *dataDir) writeStarts(starts map[topicPartition]int64, sync bool) error {
	if maps.Equal(starts, d.starts) && !sync {
		return nil
	}
	if err := writeFile(d.fs, filepath.Join(d.path, logStartFile), encodeOffsets(starts), sync); err != nil {
		return err
	}
	d.starts = starts
	return nil
}

// setWatermark changes a line of the high watermark checkpoint. d.mu is held.
func (d *dataDir) setWatermark(tp topicPartition, hw int64) {
	if old, ok := d.hw[tp]; !ok || old != hw {
		d.hw[tp] = hw
		d.hwStale = true
	}
}

// disown ends the lines of a partition that is deleted: whoever still has the log does not write them again.
func (d *dataDir) disown(l *Log) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l.deleted = true
	delete(d.hw, l.tp)
	d.hwStale = true
}

// writeWatermarks writes the high watermarks if they changed. d.mu is held.
func (d *dataDir) writeWatermarks(sync bool) error {
	if !d.hwStale && !sync {
		return nil
	}
	if err := writeFile(d.fs, filepath.Join(d.path, highWatermarkFile), encodeOffsets(d.hw), sync); err != nil {
		return err
	}
	d.hwStale = false
	return nil
}

func (m *Manager) checkpointWatermarks() {
	m.noteWatermarks()
	for _, d := range m.dirs {
		if d.err() != nil {
			continue
		}
		d.mu.Lock()
		err := d.writeWatermarks(false)
		d.mu.Unlock()
		if err != nil {
			d.check(m.o.Logger, err)
			m.o.Logger.Error("checkpoint could not be written", "file", d.path, "err", err)
		}
	}
	if err := m.saveSettled(); err != nil {
		m.o.Logger.Error("list of partitions could not be written", "err", err)
	}
}

// noteWatermarks takes over the high watermarks that changed. Whoever deletes a partition holds the manager's lock too:
// its line does not come back.
func (m *Manager) noteWatermarks() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.takeDirty(forWatermarks) {
		d := l.home
		if d == nil || m.logs[l.tp] != l {
			continue
		}
		d.mu.Lock()
		d.setWatermark(l.tp, l.hw.Load())
		d.mu.Unlock()
	}
}

// ApplyRetention applies every topic's retention and forgets expired producers. Run calls it.
func (m *Manager) ApplyRetention() {
	now := m.o.Clock.Now().UnixMilli()
	for _, l := range m.all() {
		if l.Err() != nil {
			continue
		}
		if err := l.ApplyRetention(); err != nil {
			m.o.Logger.Error("retention failed", "topic", l.tp.topic, "partition", l.tp.partition, "err", err)
		}
		l.expireProducers(now, m.producerExpiry.Load())
		l.dropIdleIndexes()
	}
}

// tick does every second what the logs that changed need: a flush by flush.ms, the epochs.
func (m *Manager) tick() {
	now := m.o.Clock.Now().UnixMilli()
	for _, l := range m.takeDirty(forTick) {
		if l.flushOld(now) {
			l.touchFor(1 << forTick)
		}
		l.persistEpochs()
	}
}

// flushOld flushes the log if flush.ms has passed. It reports whether that is still to come.
func (l *Log) flushOld(now int64) (later bool) {
	every := l.cfg.Load().FlushMs
	if every <= 0 || every > 1<<50 {
		return false
	}
	l.mu.Lock()
	unflushed := l.usable() == nil && l.recoveryPoint.Load() < l.end.Load()
	due := unflushed && now-l.flushedMs >= every
	l.mu.Unlock()
	if due {
		_ = l.Flush() // a failure takes the log offline by itself
	}
	return unflushed && !due
}

// runFlusher flushes rolled segments until ctx ends. It has a goroutine of its own: many
// small segments on a slow disk must not hold back retention and checkpoints.
func (m *Manager) runFlusher(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.bg.wake:
			m.FlushSealed()
		}
	}
}

// Run does the periodic work until ctx ends: flushes of rolled segments and by flush.ms,
// checkpoints, delayed removal, retention, expiry of producers; flushes of rolled segments, write-back, readahead, compaction and the check for corrupt batches on
// goroutines of their own, which have ended when it returns.
func (m *Manager) Run(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	var sinceHW, sinceOffsets, sinceRetention time.Duration
	m.RemoveDue()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { m.runFlusher(ctx) })
	wg.Go(func() { m.runSettler(ctx) })
	wg.Go(func() { m.runReadahead(ctx) })
	wg.Go(func() { m.runCleaners(ctx) })
	for i := range m.dirs {
		wg.Go(func() { m.runChecker(ctx, i) })
		wg.Go(func() { m.dirs[i].writeBacks.run(ctx) })
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		m.tick()
		m.RemoveDue()
		sinceHW += time.Second
		sinceOffsets += time.Second
		sinceRetention += time.Second
		if sinceHW >= ms(m.o.HighWatermarkCheckpointMs) {
			sinceHW = 0
			m.checkpointWatermarks()
		}
		if sinceOffsets >= ms(m.o.FlushOffsetCheckpointMs) {
			sinceOffsets = 0
			m.Checkpoint()
		}
		if sinceRetention >= ms(m.o.RetentionCheckMs) {
			sinceRetention = 0
			m.ApplyRetention()
		}
	}
}
