package log

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"sync"
	"time"
)

// cleaner shares the work of compaction between its goroutines. Its lock is taken before
// those of logs and after the manager's.
type cleaner struct {
	mu      sync.Mutex
	busy    map[string]bool // by directory: a topic that is made again waits for the old one's round
	retryMs map[*Log]int64  // when a log that could not be compacted is tried again
	io      *ioLimit
	cfg     CleanerConfig
	changed chan struct{} // closed when cfg changes
}

// cleanerRetryMs is how long a log is left alone after a round that failed.
const cleanerRetryMs = 5 * 60 * 1000

func (c *cleaner) init(o *ManagerOptions) {
	c.busy, c.retryMs = map[string]bool{}, map[*Log]int64{}
	c.cfg, c.changed = o.Cleaner, make(chan struct{})
	c.io = newIOLimit(o.Cleaner.IOBytesPerSec)
}

// take picks the log that gains most from a round: one whose max.compaction.lag.ms has
// passed before others, then by the share of bytes that were not compacted yet.
func (m *Manager) take() (best cleanable, ok bool) {
	now := m.o.Clock.Now().UnixMilli()
	c := &m.clean
	logs := m.all() // before the cleaner's lock: who deletes a log takes that one second
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range logs {
		cfg := l.cfg.Load()
		if !cfg.compacted() || l.Err() != nil || c.busy[l.dir] || c.retryMs[l] > now {
			continue
		}
		one, err := l.cleanable(now)
		if err != nil || !one.due(cfg) {
			continue
		}
		if !ok || (one.overdue && !best.overdue) || (one.overdue == best.overdue && one.ratio() > best.ratio()) {
			best, ok = one, true
		}
	}
	if ok {
		c.busy[best.l.dir] = true
	}
	return best, ok
}

// CompactOnce runs one round of the log that needs it most. It returns false if none does.
// Run calls it.
func (m *Manager) CompactOnce(ctx context.Context) (worked bool) {
	c, ok := m.take()
	if !ok {
		return false
	}
	l := c.l
	cfg, _ := m.clean.config()
	began := m.o.Clock.Now()
	stats, err := l.compact(ctx, c, cfg.forRound(m.clean.io))
	m.clean.mu.Lock()
	defer m.clean.mu.Unlock()
	delete(m.clean.busy, l.dir)
	delete(m.clean.retryMs, l)
	corrupt := (*CorruptBatchError)(nil)
	switch {
	case err == nil:
		m.o.Logger.Info("log compacted", "topic", l.tp.topic, "partition", l.tp.partition, "from", stats.FirstDirty, "offset", stats.End,
			"keys", stats.Keys, "removed", stats.RecordsRemoved, "read", stats.BytesRead, "left", stats.BytesWritten, "groups", stats.Groups, "took", m.o.Clock.Now().Sub(began))
	case errors.As(err, &corrupt):
		// It was named when it was found, and nothing of the log is due while it is there.
	case errors.Is(err, errAbandoned), errors.Is(err, ErrClosed), errors.Is(err, context.Canceled), errors.Is(err, ErrStorage):
		// It begins anew, or the log is gone or offline and has said so itself.
	default:
		m.o.Logger.Error("log is not compacted", "topic", l.tp.topic, "partition", l.tp.partition, "err", err)
		m.clean.retryMs[l] = m.o.Clock.Now().UnixMilli() + cleanerRetryMs
	}
	return true
}

// forgetLog drops what the cleaner knows of a deleted log.
func (c *cleaner) forgetLog(l *Log) {
	c.mu.Lock()
	delete(c.retryMs, l)
	c.mu.Unlock()
}

// runCleaners runs as many goroutines as there are to be cleaner threads until ctx ends, more
// or fewer of them when that changes.
func (m *Manager) runCleaners(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	ended := make(chan int)
	running := map[int]bool{}
	for {
		cfg, changed := m.clean.config()
		for i := range max(cfg.Threads, 0) {
			if !running[i] {
				running[i] = true
				wg.Go(func() {
					m.runCleaner(ctx, i)
					select {
					case ended <- i:
					case <-ctx.Done():
					}
				})
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case i := <-ended:
			delete(running, i)
		}
	}
}

// runCleaner is cleaner thread number i. It ends when there are to be fewer.
func (m *Manager) runCleaner(ctx context.Context, i int) {
	for {
		cfg, changed := m.clean.config()
		if i >= cfg.Threads || ctx.Err() != nil {
			return
		}
		if m.CompactOnce(ctx) {
			continue
		}
		backoff := time.NewTimer(time.Duration(cfg.BackoffMs) * time.Millisecond)
		select {
		case <-ctx.Done():
		case <-changed:
		case <-backoff.C:
		}
		backoff.Stop()
	}
}

// setCleaned writes the cleaner's checkpoint of a log durably. Log.mu is held.
func (m *Manager) setCleaned(l *Log, offset int64) error {
	d := m.dirOf(l)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.writeCleaned(l.tp, offset); err != nil {
		return err
	}
	l.cleaned.Store(offset)
	return nil
}

// writeCleaned replaces the checkpoint file. d.mu is held.
func (d *dataDir) writeCleaned(tp topicPartition, offset int64) error {
	next := maps.Clone(d.cleaned)
	next[tp] = offset
	return d.writeCleanedAll(next)
}

func (d *dataDir) writeCleanedAll(next map[topicPartition]int64) error {
	if err := writeFile(d.fs, filepath.Join(d.path, cleanerFile), encodeOffsets(next), true); err != nil {
		return err
	}
	d.cleaned = next
	return nil
}

// forgetCleaned drops the lines of partitions that are gone. d.mu is held.
func (d *dataDir) forgetCleaned() error {
	next := maps.Clone(d.cleaned)
	maps.DeleteFunc(next, func(tp topicPartition, _ int64) bool { return d.gone[tp] })
	if len(next) == len(d.cleaned) {
		return nil
	}
	return d.writeCleanedAll(next)
}
