package fetcher

import (
	"slices"
	"time"
)

const (
	// slowAppend is how long one append may hold up the other partitions of a loop.
	slowAppend = time.Second
	// maxAside bounds the loops for slow partitions per mirror and source broker.
	maxAside = 8
)

// late runs when the appending of a response takes long. A partition whose log does not come back (a disk that hangs, a
// flush after every message) is left alone on its loop, and all the others move to another one: what of
// the response was not appended yet they fetch again.
func (l *loop) late() {
	p := l.appending.Load()
	if p == nil {
		return
	}
	if left := slowAppend - time.Since(time.Unix(0, l.since.Load())); left > 0 {
		l.watch.Reset(left) // it is on to another partition
		return
	}
	l.m.setAside(l, p)
	l.watch.Reset(slowAppend) // if it was not the only slow one
}

// setAside takes the loop l, which hangs in an append to p, out of its place, and moves all its other partitions to a new
// one there.
func (m *Manager) setAside(l *loop, p *partition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	mi := m.mirrors[l.mirror]
	if mi == nil || m.closed || mi.loops[l.key] != l {
		return
	}
	others := slices.DeleteFunc(l.ids(), func(id ID) bool { return id == p.id }) // p may be gone: moved, or removed
	if len(others) == 0 || mi.asideOf(l.key.broker) >= maxAside {
		return // nobody waits for it; or so many are slow that it is no matter of single partitions
	}
	m.o.Logger.Warn("a log takes long to append; the other partitions go on without it", "mirror", l.mirror, "topic", p.id.Topic, "partition", p.id.Partition)
	delete(mi.loops, l.key)
	mi.aside[l] = true
	l.slowest.Store(int64(slowAppend))
	m.o.Counters.SetAside.Add(1)
	for _, id := range others {
		m.move(mi, id, l.key)
	}
}

func (mi *mirror) asideOf(broker int32) int {
	n := 0
	for l := range mi.aside {
		if l.key.broker == broker {
			n++
		}
	}
	return n
}

// readmit moves the partitions back that were set aside and whose appends have been quick since the last call. The lock is held.
func (m *Manager) readmit(mi *mirror) {
	for l := range mi.aside {
		if l.appending.Load() != nil || time.Duration(l.slowest.Swap(0)) > slowAppend/4 {
			continue
		}
		for _, id := range l.ids() {
			if p := l.partition(id); p != nil {
				m.move(mi, id, loopKey{broker: p.broker, slot: m.slotOf(mi, p), throttled: m.throttled(mi, id)})
			}
		}
	}
}
