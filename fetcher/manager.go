package fetcher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// ErrUnknownMirror says that a mirror was not set or has been removed.
var ErrUnknownMirror = errors.New("fetcher: unknown mirror")

// Options are what a Manager needs.
type Options struct {
	Events   Events
	Counters *Counters // may be nil
	Logger   *slog.Logger
	// Fetchers is the number of fetchers per mirror and source broker (mirror.num.replica.fetchers).
	Fetchers int
	// Memory is the budget in bytes for responses; it bounds the limits that grow with the round trip time. 0
	// means 128 MiB.
	Memory int64
	// OnResponse, if set, gets the time from sending a request to having its response, per mirror.
	OnResponse func(mirror string, d time.Duration)
	// OnThrottle, if set, gets the time for which a source asked us to wait, or, with own, for which Throttle did.
	OnThrottle func(mirror string, own bool, d time.Duration)
	// Throttle bounds the partitions for which Throttled says so; nil: none.
	Throttle  Throttle
	Throttled func(mirror string, id ID) bool
}

// Manager owns the loops. It is safe for concurrent use.
type Manager struct {
	o      Options
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	fetchers int
	mirrors  map[string]*mirror
}

type mirror struct {
	name   string
	leader Leader
	config Config
	loops  map[loopKey]*loop
	aside  map[*loop]bool // not in loops any more: each hangs in an append to the one partition that it has kept
	where  map[ID]*loop
	moving map[ID]*partition // taken from one loop, on the way to another
	placed map[ID]int        // slots that Balance has chosen
	lanes  map[int32]int     // connections per fetcher, by source broker; absent: one
	gates  map[int32]*gate
}

// loopKey tells the loops of a mirror apart. slot is fetcher number + lane x number of fetchers.
type loopKey struct {
	broker    int32
	slot      int
	throttled bool
}

// NewManager returns a manager without mirrors.
func NewManager(o Options) *Manager {
	if o.Counters == nil {
		o.Counters = &Counters{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Memory == 0 {
		o.Memory = 128 << 20
	}
	m := &Manager{o: o, fetchers: max(o.Fetchers, 1), mirrors: map[string]*mirror{}}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	return m
}

// SetMirror makes a mirror known or changes how its source is reached. With another leader the mirror's
// connections are opened anew; its partitions stay. A changed config counts from the next request on.
func (m *Manager) SetMirror(name string, leader Leader, config Config) {
	m.mu.Lock()
	defer m.mu.Unlock()
	mi := m.mirrors[name]
	if mi == nil {
		m.mirrors[name] = &mirror{
			name: name, leader: leader, config: config, loops: map[loopKey]*loop{}, aside: map[*loop]bool{}, where: map[ID]*loop{}, moving: map[ID]*partition{},
			placed: map[ID]int{}, lanes: map[int32]int{}, gates: map[int32]*gate{},
		}
		return
	}
	changed := mi.leader != leader
	mi.leader, mi.config = leader, config
	for _, l := range mi.all() {
		l.configure(leader, config, changed)
	}
}

// RemoveMirror removes a mirror with all its partitions and waits until its loops have ended.
func (m *Manager) RemoveMirror(name string) {
	m.mu.Lock()
	mi := m.mirrors[name]
	delete(m.mirrors, name)
	m.mu.Unlock()
	if mi != nil {
		mi.end()
	}
}

// end stops the loops and waits for them. The mirror is out of the table already.
func (mi *mirror) end() {
	for id, l := range mi.where {
		if p := l.remove(id); p != nil {
			p.finish()
		}
	}
	for _, l := range mi.all() {
		l.cancel()
	}
	for _, l := range mi.all() {
		<-l.done
	}
}

func (mi *mirror) all() []*loop {
	return slices.AppendSeq(slices.Collect(maps.Values(mi.loops)), maps.Keys(mi.aside))
}

// Add starts to fetch partitions. One that is fetched already, from whatever broker, is removed first.
func (m *Manager) Add(name string, as ...Assignment) error {
	for _, a := range as {
		m.Remove(name, a.ID)
		m.mu.Lock()
		mi := m.mirrors[name]
		if mi == nil || m.closed {
			m.mu.Unlock()
			return fmt.Errorf("%w: %q", ErrUnknownMirror, name)
		}
		m.take(mi, a.ID) // somebody else has added it meanwhile: the last one counts
		m.add(mi, newPartition(a))
		m.mu.Unlock()
	}
	return nil
}

// add gives p to its loop. The lock is held.
func (m *Manager) add(mi *mirror, p *partition) {
	key := loopKey{broker: p.broker, slot: m.slotOf(mi, p), throttled: m.throttled(mi, p.id)}
	m.addTo(mi, key, p)
}

func (m *Manager) addTo(mi *mirror, key loopKey, p *partition) {
	l := mi.loops[key]
	if l == nil || !l.add(p) {
		g := mi.gates[key.broker]
		if g == nil {
			g = newGate(func(err error) { m.o.Events.Broker(mi.name, key.broker, err) })
			mi.gates[key.broker] = g
		}
		l = newLoop(m, mi, key, g)
		l.add(p)
		mi.loops[key] = l
		m.wg.Go(l.run)
	}
	mi.where[p.id] = l
}

// Remove stops fetching partitions. When it returns nothing more is appended to them, and what
// arrives later is ignored. It never waits for the network, at most for one append to each of them.
func (m *Manager) Remove(name string, ids ...ID) {
	for _, id := range ids {
		m.mu.Lock()
		var p *partition
		if mi := m.mirrors[name]; mi != nil {
			p = m.take(mi, id)
		}
		m.mu.Unlock()
		if p != nil {
			p.finish() // without the lock: a slow log holds nobody else up
		}
	}
}

// take gets a partition out of the tables. Its last append may still run. The lock is held.
func (m *Manager) take(mi *mirror, id ID) *partition {
	if p := mi.moving[id]; p != nil {
		delete(mi.moving, id) // whoever moves it finds that out
		return p
	}
	l := mi.where[id]
	if l == nil {
		return nil
	}
	delete(mi.where, id)
	return l.remove(id)
}

// Status says how a partition is fetched.
type Status struct {
	Broker  int32
	Fetcher int
	// Covered is when a response last covered the partition, also one of an incremental session that had
	// nothing new about it; zero for never.
	Covered time.Time
	// Halted says that an event has ended the fetching of the partition.
	Halted bool
	// Throttled says that the throttle holds the partition back.
	Throttled bool
	// Err is why the source broker cannot be reached, or nil.
	Err error
}

// Status returns the status of a partition that is being fetched.
func (m *Manager) Status(name string, id ID) (Status, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	mi := m.mirrors[name]
	if mi == nil || mi.where[id] == nil {
		return Status{}, false
	}
	return mi.where[id].status(id)
}

// Alive returns how many fetchers a mirror has and how many of them have all their connections.
func (m *Manager) Alive(name string) (fetchers, connected int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	type fetcher struct {
		broker    int32
		n         int
		throttled bool
	}
	up := map[fetcher]bool{}
	if mi := m.mirrors[name]; mi != nil {
		for _, l := range mi.all() {
			if l.ended() {
				continue
			}
			f := fetcher{l.key.broker, l.number(), l.key.throttled}
			before, seen := up[f]
			up[f] = l.connected.Load() && (before || !seen)
		}
	}
	for _, all := range up {
		if all {
			connected++
		}
	}
	return len(up), connected
}

// Close removes all mirrors and waits for all loops.
func (m *Manager) Close() {
	m.mu.Lock()
	m.closed = true
	mirrors := m.mirrors
	m.mirrors = map[string]*mirror{}
	m.mu.Unlock()
	m.cancel()
	for _, mi := range mirrors {
		mi.end()
	}
	m.wg.Wait()
}

// forget takes an ended loop out of the table.
func (m *Manager) forget(l *loop) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if mi := m.mirrors[l.mirror]; mi != nil {
		delete(mi.aside, l)
		if mi.loops[l.key] == l {
			delete(mi.loops, l.key)
		}
	}
}
