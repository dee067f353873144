package fetcher

import (
	"cmp"
	"slices"
	"sort"
)

// unevenness is how far the busiest fetcher may be above the mean before partitions are moved (C35 allows 1.3).
const unevenness = 1.15

// maxMoves bounds what one Balance moves per source broker: a move costs the part of a response that is under way.
const maxMoves = 16

// Balance spreads the partitions of each source broker over its fetchers and their lanes by the bytes that came since it
// was last called, and takes those back that were set aside and whose log is fast again. Which slot a partition
// is on is remembered when it is removed and added again. Call it now and then.
func (m *Manager) Balance() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, mi := range m.mirrors {
		groups := map[loopKey][]*load{}
		for key, l := range mi.loops {
			g := loopKey{broker: key.broker, throttled: key.throttled}
			groups[g] = append(groups[g], l.takeLoad())
		}
		for g, loads := range groups {
			for n := range m.slots(mi, g.broker) { // those that have nothing yet
				if !hasSlot(loads, n) {
					loads = append(loads, &load{n: n})
				}
			}
			for _, mv := range spreadLanes(loads, m.fetchers) {
				if mi.where[mv.id] == nil {
					continue // removed while a move waited for an append
				}
				mi.placed[mv.id] = mv.to
				m.move(mi, mv.id, loopKey{broker: g.broker, slot: mv.to, throttled: g.throttled})
			}
		}
		m.readmit(mi)
		for id := range mi.placed {
			if mi.where[id] == nil && mi.moving[id] == nil {
				delete(mi.placed, id)
			}
		}
	}
}

// load is what one loop of a source broker carried, at a slot.
type load struct {
	n     int
	bytes int64
	parts []partitionLoad
}

type partitionLoad struct {
	id    ID
	bytes int64
}

type move struct {
	id ID
	to int
}

func hasSlot(loads []*load, n int) bool {
	for _, l := range loads {
		if l.n == n {
			return true
		}
	}
	return false
}

// takeLoad reads and resets the bytes of a loop's partitions.
func (l *loop) takeLoad() *load {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := &load{n: l.key.slot}
	for id, p := range l.partitions {
		if p.bytes > 0 {
			out.parts = append(out.parts, partitionLoad{id, p.bytes})
			out.bytes += p.bytes
			p.bytes = 0
		}
	}
	return out
}

// spreadLanes evens out the fetchers, and then the lanes of each: a fetcher is what a source's quotas know (C35), a lane what a
// connection can carry. Slot is fetcher + lane x number of fetchers.
func spreadLanes(slots []*load, fetchers int) []move {
	if len(slots) <= fetchers {
		return spread(slots)
	}
	of := make([]*load, fetchers)
	lanes := make([][]*load, fetchers)
	at := map[ID]*load{}
	for f := range of {
		of[f] = &load{n: f}
	}
	for _, s := range slots {
		f := of[s.n%fetchers]
		lanes[f.n] = append(lanes[f.n], s)
		f.bytes += s.bytes
		f.parts = append(f.parts, s.parts...)
		for _, p := range s.parts {
			at[p.id] = s
		}
	}
	to := map[ID]int{}
	var order []ID // the fetchers' moves first
	note := func(id ID, slot int) {
		if _, again := to[id]; !again {
			order = append(order, id)
		}
		to[id] = slot
	}
	for _, mv := range spread(of) {
		s := at[mv.id]
		i := slices.IndexFunc(s.parts, func(p partitionLoad) bool { return p.id == mv.id })
		p := s.parts[i]
		s.parts = slices.Delete(s.parts, i, i+1)
		s.bytes -= p.bytes
		idlest := slices.MinFunc(lanes[mv.to], func(a, b *load) int { return cmp.Compare(a.bytes, b.bytes) })
		idlest.parts = append(idlest.parts, p)
		idlest.bytes += p.bytes
		at[mv.id] = idlest
		note(mv.id, idlest.n)
	}
	for _, l := range lanes {
		for _, mv := range spread(l) {
			note(mv.id, mv.to)
		}
	}
	var moves []move
	for _, id := range order[:min(len(order), maxMoves)] {
		moves = append(moves, move{id, to[id]})
	}
	return moves
}

// spread decides what to move: the largest partition that makes busiest and idlest more even, until they are.
func spread(loads []*load) []move {
	if len(loads) < 2 {
		return nil
	}
	var total int64
	for _, l := range loads {
		total += l.bytes
		sort.Slice(l.parts, func(i, j int) bool {
			if l.parts[i].bytes != l.parts[j].bytes {
				return l.parts[i].bytes > l.parts[j].bytes
			}
			return l.parts[i].id.Partition < l.parts[j].id.Partition
		})
	}
	mean := float64(total) / float64(len(loads))
	var moves []move
	for len(moves) < maxMoves {
		busiest, idlest := loads[0], loads[0]
		for _, l := range loads {
			if l.bytes > busiest.bytes {
				busiest = l
			}
			if l.bytes < idlest.bytes {
				idlest = l
			}
		}
		if float64(busiest.bytes) <= unevenness*mean {
			break
		}
		best := -1
		for i, p := range busiest.parts { // descending: the first one that fits is the largest
			if p.bytes < busiest.bytes-idlest.bytes {
				best = i
				break
			}
		}
		if best < 0 {
			break // one partition is all of it
		}
		p := busiest.parts[best]
		busiest.parts = append(busiest.parts[:best:best], busiest.parts[best+1:]...)
		busiest.bytes -= p.bytes
		idlest.parts = append(idlest.parts, p)
		idlest.bytes += p.bytes
		moves = append(moves, move{p.id, idlest.n})
	}
	return moves
}
