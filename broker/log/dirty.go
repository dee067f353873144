package log

import "sync"

// watcher is periodic work that looks only at the logs to which something happened since it looked last: what an idle
// partition costs must not depend on how many there are.
type watcher uint

const (
	forTick       watcher = iota // flush.ms, epochs
	forSettler                   // the identity of new partitions
	forWatermarks                // the high watermark checkpoint
	forSettled                   // the list of settled partitions
	watchers
)

// dirtyLogs are the logs that each watcher has to look at.
type dirtyLogs struct {
	mu   sync.Mutex
	logs [watchers][]*Log
}

// touch tells all watchers that the log changed. It comes after the change: a watcher clears its bit before it looks, so
// one that finds the bit set here has not looked yet.
func (l *Log) touch() {
	const all = 1<<watchers - 1
	if l.dirty.Load() != all {
		l.touchFor(all)
	}
}

func (l *Log) touchFor(bits uint32) {
	fresh := bits &^ l.dirty.Or(bits)
	if fresh == 0 {
		return
	}
	d := &l.m.dirty
	d.mu.Lock()
	defer d.mu.Unlock()
	for w := range watchers {
		if fresh>>w&1 != 0 {
			d.logs[w] = append(d.logs[w], l)
		}
	}
}

// takeDirty are the logs that were touched since the last call, in the order in which they were.
func (m *Manager) takeDirty(w watcher) []*Log {
	m.dirty.mu.Lock()
	logs := m.dirty.logs[w]
	m.dirty.logs[w] = nil
	m.dirty.mu.Unlock()
	for _, l := range logs {
		l.dirty.And(^uint32(1 << w))
	}
	return logs
}
