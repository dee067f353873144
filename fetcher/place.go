package fetcher

import (
	"maps"
	"slices"
	"time"

	"stet/zerocopy"
)

// A fetcher has one connection to its source broker on a short way and several, called lanes, on a long one: a
// connection answers in order and carries no more than its TCP window per round trip, whatever is
// pipelined on it. Lanes have disjoint partitions and fetch sessions of their own.
const (
	// laneRTT is the round trip time that one connection is enough for.
	laneRTT = 8 * time.Millisecond
	// maxLanes bounds the connections of one fetcher to one source broker.
	maxLanes = 12
)

// lanesFor is the number of lanes for a round trip time: 10 at 80 ms, which with windows of 6 MiB, half used because each
// has one request at a time, come to 400 MB/s.
func lanesFor(rtt time.Duration) int {
	return int(min(max((rtt+laneRTT-1)/laneRTT, 1), maxLanes))
}

// limit is how far the limits of one lane may grow: together the lanes of a fetcher fit the memory. The lock is held.
func (m *Manager) limit(mi *mirror, broker int32) int32 {
	share := min(m.o.Memory/int64(max(mi.lanes[broker], 4)), 64<<20)
	return int32(max(zerocopy.FloorSize(share)-responseOverhead, responseOverhead))
}

// responseOverhead is left for everything in a response that is not records.
const responseOverhead = 64 << 10

// slots is the number of loops among which the partitions of a source broker are spread. The lock is held.
func (m *Manager) slots(mi *mirror, broker int32) int {
	return m.fetchers * max(mi.lanes[broker], 1)
}

// slotOf is where Balance has put a partition, or where it belongs before anything is known of its load. The lock is held.
func (m *Manager) slotOf(mi *mirror, p *partition) int {
	slots := m.slots(mi, p.broker)
	if slot, ok := mi.placed[p.id]; ok && slot < slots {
		return slot
	}
	return hashSlot(p.id, slots)
}

// hashSlot spreads the partitions of each topic over the slots, one after the other.
func hashSlot(id ID, slots int) int {
	h := uint32(2166136261)
	for i := range len(id.Topic) {
		h = (h ^ uint32(id.Topic[i])) * 16777619
	}
	return int((uint64(h) + uint64(uint32(id.Partition))) % uint64(slots))
}

// Resize changes the number of fetchers per source broker. Partitions that belong to another fetcher
// then are moved; an append that is under way ends first.
func (m *Manager) Resize(fetchers int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fetchers = max(fetchers, 1)
	for _, mi := range m.mirrors {
		clear(mi.placed)
		m.settle(mi)
		for _, l := range mi.loops {
			l.setShare(l.key.slot%m.fetchers, m.limit(mi, l.key.broker)) // from its next connection on
		}
	}
}

// SetMemory changes Options.Memory.
func (m *Manager) SetMemory(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.o.Memory = bytes
	for _, mi := range m.mirrors {
		for _, l := range mi.all() {
			l.setShare(l.number(), m.limit(mi, l.key.broker))
		}
	}
}

// connected is told the round trip time of a new connection. On a long way the partitions of the fetcher are spread over
// lanes. The loop that calls it has no request out and appends nothing.
func (m *Manager) connected(l *loop, rtt time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	mi := m.mirrors[l.mirror]
	if mi == nil || mi.loops[l.key] != l || m.closed {
		return
	}
	before, lanes := max(mi.lanes[l.key.broker], 1), lanesFor(rtt)
	if lanes <= before && 2*lanes > before {
		return // as it is, or nearly: a measurement is never exact
	}
	mi.lanes[l.key.broker] = lanes
	for id := range mi.placed {
		if at := mi.where[id]; at != nil && at.key.broker == l.key.broker {
			delete(mi.placed, id)
		}
	}
	for key, other := range mi.loops {
		if key.broker == l.key.broker {
			other.setShare(key.slot%m.fetchers, m.limit(mi, key.broker))
		}
	}
	m.settle(mi)
}

// settle moves the partitions that are not where they belong. The lock is held, and let go while an append
// is waited for.
func (m *Manager) settle(mi *mirror) {
	for _, id := range slices.Collect(maps.Keys(mi.where)) {
		l := mi.where[id]
		if l == nil || mi.aside[l] {
			continue
		}
		p := l.partition(id)
		if p == nil {
			continue
		}
		if to := (loopKey{broker: p.broker, slot: m.slotOf(mi, p), throttled: m.throttled(mi, id)}); to != l.key {
			m.move(mi, id, to)
		}
	}
}

// move takes a partition from its loop to another one. The lock is held, and let go while the last append is waited for:
// meanwhile a Remove or Add finds the partition among the moving ones, takes it out, and that ends the move.
func (m *Manager) move(mi *mirror, id ID, to loopKey) {
	p := m.take(mi, id)
	if p == nil {
		return
	}
	if !p.tryFinish() {
		mi.moving[id] = p
		m.mu.Unlock()
		p.finish()
		m.mu.Lock()
		if mi.moving[id] != p {
			return
		}
		delete(mi.moving, id)
		if m.mirrors[mi.name] != mi || m.closed {
			return
		}
	}
	m.addTo(mi, to, p.again())
}
