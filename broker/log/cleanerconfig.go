package log

import "math"

// CleanerConfig is how compaction works. Zero values take Kafka's defaults. It is a value:
// Manager.SetCleaner replaces it while the broker runs.
type CleanerConfig struct {
	Threads       int     // log.cleaner.threads, 1; negative: no compaction
	DedupeBytes   int64   // log.cleaner.dedupe.buffer.size, 128 MiB for all threads
	LoadFactor    float64 // log.cleaner.io.buffer.load.factor, 0.9
	IOBufferBytes int64   // log.cleaner.io.buffer.size, 512 KiB for all threads, half of it for reading
	IOBytesPerSec float64 // log.cleaner.io.max.bytes.per.second, unlimited
	BackoffMs     int64   // log.cleaner.backoff.ms, 15000
}

func (c *CleanerConfig) setDefaults() {
	if c.Threads == 0 {
		c.Threads = 1
	}
	if c.DedupeBytes <= 0 {
		c.DedupeBytes = 128 << 20
	}
	if c.LoadFactor <= 0 || c.LoadFactor > 0.95 {
		c.LoadFactor = 0.9
	}
	if c.IOBufferBytes <= 0 {
		c.IOBufferBytes = 2 * walkWindow
	}
	if c.BackoffMs <= 0 {
		c.BackoffMs = 15000
	}
}

// minCleanerWindow and maxCleanerWindow bound what a cleaner reads at once.
const (
	minCleanerWindow = 4 << 10
	maxCleanerWindow = 64 << 20
)

// forRound is a thread's share.
func (c *CleanerConfig) forRound(io *ioLimit) cleanerOptions {
	threads := int64(max(c.Threads, 1))
	return cleanerOptions{
		dedupeBytes: min(c.DedupeBytes/threads, math.MaxInt32), load: c.LoadFactor, io: io,
		window: int(min(max(c.IOBufferBytes/threads/2, minCleanerWindow), maxCleanerWindow)),
	}
}

// SetCleaner changes how compaction works from now on. The rate counts at once, also for
// rounds that run; threads are added at once and end after their round; the rest counts from
// the next round on.
func (m *Manager) SetCleaner(c CleanerConfig) {
	c.setDefaults()
	k := &m.clean
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.cfg == c {
		return
	}
	k.cfg = c
	k.io.setRate(c.IOBytesPerSec)
	close(k.changed)
	k.changed = make(chan struct{})
}

// Cleaner is how compaction works now.
func (m *Manager) Cleaner() CleanerConfig {
	c, _ := m.clean.config()
	return c
}

// config is the configuration, with a channel that is closed when it changes.
func (c *cleaner) config() (CleanerConfig, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cfg, c.changed
}
