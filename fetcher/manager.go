package fetcher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	// MaxResponse bounds the limits that grow with the round trip time, in bytes; 0 means 32 MiB.
	MaxResponse int32
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
	where  map[ID]*loop
	placed map[ID]int // fetchers that Balance has chosen
	gates  map[int32]*gate
}

type loopKey struct {
	broker    int32
	n         int
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
	if o.MaxResponse == 0 {
		o.MaxResponse = 32 << 20
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
		m.mirrors[name] = &mirror{name: name, leader: leader, config: config, loops: map[loopKey]*loop{}, where: map[ID]*loop{}, placed: map[ID]int{}, gates: map[int32]*gate{}}
		return
	}
	changed := mi.leader != leader
	mi.leader, mi.config = leader, config
	for _, l := range mi.loops {
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
		l.remove(id)
	}
	for _, l := range mi.loops {
		l.cancel()
	}
	for _, l := range mi.loops {
		<-l.done
	}
}

// Add starts to fetch partitions. One that is fetched already, from whatever broker, is removed first.
func (m *Manager) Add(name string, as ...Assignment) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	mi := m.mirrors[name]
	if mi == nil || m.closed {
		return fmt.Errorf("%w: %q", ErrUnknownMirror, name)
	}
	for _, a := range as {
		m.remove(mi, a.ID)
		m.add(mi, newPartition(a))
	}
	return nil
}

func (m *Manager) add(mi *mirror, p *partition) {
	key := loopKey{p.broker, m.fetcherOf(mi, p.id), m.throttled(mi, p.id)}
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
// arrives later is ignored. It never waits for the network, at most for one append.
func (m *Manager) Remove(name string, ids ...ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if mi := m.mirrors[name]; mi != nil {
		for _, id := range ids {
			m.remove(mi, id)
		}
	}
}

func (m *Manager) remove(mi *mirror, id ID) *partition {
	l := mi.where[id]
	if l == nil {
		return nil
	}
	delete(mi.where, id)
	return l.remove(id)
}

// Resize changes the number of fetchers per source broker. Partitions that belong to another fetcher
// then are moved; an append that is under way ends first.
func (m *Manager) Resize(fetchers int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fetchers = max(fetchers, 1)
	for _, mi := range m.mirrors {
		clear(mi.placed)
		for id, l := range mi.where {
			if fetcherOf(id, m.fetchers) == l.key.n {
				continue
			}
			if p := m.remove(mi, id); p != nil {
				m.add(mi, p.again())
			}
		}
	}
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

// Alive returns how many fetchers a mirror has and how many of them are connected.
func (m *Manager) Alive(name string) (fetchers, connected int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if mi := m.mirrors[name]; mi != nil {
		for _, l := range mi.loops {
			if l.ended() {
				continue
			}
			fetchers++
			if l.connected.Load() {
				connected++
			}
		}
	}
	return fetchers, connected
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
	if mi := m.mirrors[l.mirror]; mi != nil && mi.loops[l.key] == l {
		delete(mi.loops, l.key)
	}
}

// fetcherOf is where Balance has put a partition, or where it belongs before anything is known of its load.
func (m *Manager) fetcherOf(mi *mirror, id ID) int {
	if n, ok := mi.placed[id]; ok && n < m.fetchers {
		return n
	}
	return fetcherOf(id, m.fetchers)
}

// fetcherOf spreads the partitions of each topic over the fetchers, one after the other.
func fetcherOf(id ID, fetchers int) int {
	h := uint32(2166136261)
	for i := range len(id.Topic) {
		h = (h ^ uint32(id.Topic[i])) * 16777619
	}
	return int((uint64(h) + uint64(uint32(id.Partition))) % uint64(fetchers))
}
