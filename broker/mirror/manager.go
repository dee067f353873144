package mirror

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"stet/broker/meta"
	"stet/fetcher"
	"stet/fetcher/source"
)

// Manager runs the mirrors of a broker. Apply feeds it with metadata changes; the request methods
// implement the mirror requests.
type Manager struct {
	o        Options
	fetchers *fetcher.Manager
	bumps    *bumper // of leader epochs, and what else PREPARING tells the controller
	reports  *bumper // of the ends of stop barriers
	tokens   atomic.Uint64
	ctx      context.Context
	cancel   context.CancelFunc
	done     chan struct{}
	wake     chan struct{}

	mu        sync.Mutex
	closed    bool
	touched   touched
	drivers   map[partitionKey]*driver
	routes    map[uint64]*driver
	upstreams map[string]*upstream
	added     chan struct{} // closed and replaced when an upstream is added
	sizedTo   int
	memory    int64 // the pool's budget as the fetchers know it
}

type partitionKey struct {
	topic     [16]byte
	partition int32
}

// touched is what Apply left for the manager's goroutine.
type touched struct {
	topics  map[string]bool
	mirrors map[string]bool
	gone    []partitionKey
	all     bool
	configs bool // of topics or brokers
}

// New returns a manager. Its goroutine starts at once; nothing happens before the first Apply.
func New(o Options) *Manager {
	o.complete()
	m := &Manager{
		o: o, done: make(chan struct{}), wake: make(chan struct{}, 1), drivers: map[partitionKey]*driver{}, routes: map[uint64]*driver{},
		upstreams: map[string]*upstream{}, added: make(chan struct{}),
	}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.bumps, m.reports = newBumper(m, bumpPatience), newBumper(m, reportPatience)
	m.sizedTo, m.memory = max(o.Settings().Fetchers, 1), o.Pool.Budget()
	m.fetchers = fetcher.NewManager(fetcher.Options{
		Events: (*fetchEvents)(m), Counters: o.Counters, Logger: o.Logger, Fetchers: m.sizedTo, OnResponse: o.OnFetch, OnThrottle: o.OnThrottle,
		Throttle: o.Throttle, Throttled: o.throttled,
		Memory: m.memory,
	})
	go m.run()
	return m
}

// Apply follows a metadata change. It closes the gates of topics that have just become read-only, and
// leaves the rest to the manager's goroutine; it does not block on anything but appends in flight.
func (m *Manager) Apply(d *meta.Delta) {
	m.mu.Lock()
	if m.touched.topics == nil {
		m.touched.topics, m.touched.mirrors = map[string]bool{}, map[string]bool{}
	}
	t := &m.touched
	for _, x := range d.DeletedTopics {
		for i := range x.Partitions {
			t.gone = append(t.gone, partitionKey{x.ID, int32(i)})
		}
	}
	for _, x := range d.CreatedTopics {
		t.topics[x.Name] = true
	}
	for _, x := range d.ChangedTopics {
		t.topics[x.New.Name] = true
	}
	for _, x := range d.CreatedMirrors {
		t.mirrors[x.Name] = true
	}
	for _, x := range d.DeletedMirrors {
		t.mirrors[x.Name] = true
	}
	var shut []string
	for _, r := range d.Configs {
		switch r.Type {
		case meta.ResourceTopic:
			t.topics[r.Name], t.configs = true, true
			shut = append(shut, r.Name)
		case meta.ResourceMirror:
			t.mirrors[r.Name] = true
		case meta.ResourceBroker:
			t.all, t.configs = true, true // settings
		}
	}
	m.mu.Unlock()
	for _, name := range shut {
		m.shut(d.New, name)
	}
	m.signal()
}

// shut closes the gates of a topic that is not open by its metadata.
func (m *Manager) shut(img *meta.Image, name string) {
	t := img.Topic(name)
	if t == nil {
		return
	}
	for i := range t.Partitions {
		in := intentOf(img, t, int32(i))
		if in.mayOpen() {
			continue
		}
		p := m.o.Partitions.Get(name, int32(i))
		m.mu.Lock()
		d := m.drivers[partitionKey{t.ID, int32(i)}]
		if d != nil && d.incarnation != t.Incarnation {
			d = nil
		}
		if d == nil && p != nil {
			// With the lock held, lest a driver that is made meanwhile has set another gate already.
			p.SetGate(Gate{Kind: GateUnknown, Mirror: in.mirror})
		}
		m.mu.Unlock()
		if d != nil {
			d.shut(in.mirror)
		}
	}
}

func (m *Manager) signal() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// Close ends all mirroring of this broker. States stay as they are; another leader, or the next start, goes on.
func (m *Manager) Close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.cancel()
	<-m.done
	m.mu.Lock()
	ds, us := m.drivers, m.upstreams
	m.drivers, m.upstreams = map[partitionKey]*driver{}, map[string]*upstream{}
	m.mu.Unlock()
	for _, d := range ds {
		d.close()
	}
	for _, u := range us {
		u.close()
	}
	m.fetchers.Close()
}

// balanceEvery is how often the fetch load is spread anew.
const balanceEvery = 5 * time.Second

func (m *Manager) run() {
	defer close(m.done)
	balance, keep := time.NewTicker(balanceEvery), time.NewTicker(keepEvery)
	defer balance.Stop()
	defer keep.Stop()
	for {
		select {
		case <-m.ctx.Done():
			return
		case <-balance.C:
			m.fetchers.Balance()
			continue
		case <-keep.C:
			m.keepCaughtUp()
			continue
		case <-m.wake:
		}
		m.mu.Lock()
		t := m.touched
		m.touched = touched{}
		m.mu.Unlock()
		m.follow(t)
	}
}

// follow brings drivers and upstreams in line with the present image.
func (m *Manager) follow(t touched) {
	if t.all {
		m.resize()
	}
	if t.configs {
		m.fetchers.Rethrottle()
	}
	for _, k := range t.gone {
		img := m.o.Image()
		if x := img.TopicByID(k.topic); x != nil {
			t.topics[x.Name] = true // made again; its driver is of another incarnation
		} else {
			m.drop(k)
		}
	}
	for name := range t.mirrors {
		m.followMirror(name)
	}
	for name := range t.topics {
		m.followTopic(name)
	}
}

// resize takes over a changed number of fetchers or budget of the pool.
func (m *Manager) resize() {
	if budget := m.o.Pool.Budget(); budget != m.memory {
		m.memory = budget
		m.fetchers.SetMemory(budget)
	}
	if n := max(m.o.Settings().Fetchers, 1); n != m.sizedTo {
		m.sizedTo = n
		m.fetchers.Resize(n)
	}
}

func (m *Manager) followMirror(name string) {
	img := m.o.Image()
	mi := img.Mirror(name)
	m.mu.Lock()
	u := m.upstreams[name]
	m.mu.Unlock()
	if u != nil && (mi == nil || mi.ID != u.id) {
		m.mu.Lock()
		delete(m.upstreams, name)
		m.mu.Unlock()
		u.close()
		u = nil
	}
	if mi == nil {
		return
	}
	config := img.Config(meta.ResourceMirror, name)
	if u == nil {
		u = newUpstream(m, mi, config)
		m.mu.Lock()
		m.upstreams[name] = u
		close(m.added)
		m.added = make(chan struct{})
		m.mu.Unlock()
	} else {
		u.configure(config)
	}
	for _, t := range img.MirrorTopics(name) {
		m.followTopic(t.Name)
	}
}

// followTopic makes, pokes and drops the drivers of a topic.
func (m *Manager) followTopic(name string) {
	img := m.o.Image()
	t := img.Topic(name)
	if t == nil {
		return // deleted: its partitions are in gone
	}
	for i, p := range t.Partitions {
		k := partitionKey{t.ID, int32(i)}
		in := intentOf(img, t, int32(i))
		m.mu.Lock()
		d := m.drivers[k]
		m.mu.Unlock()
		wanted := p.Leader == m.o.Node && in.concerns()
		if d != nil && (!wanted || d.incarnation != t.Incarnation || d.isLost()) {
			m.drop(k)
			d = nil
		}
		if !wanted {
			continue
		}
		if d == nil {
			part := m.o.Partitions.Get(name, int32(i))
			if part == nil || part.Incarnation() != t.Incarnation {
				continue // its log is offline
			}
			d = newDriver(m, t, int32(i), part)
			m.mu.Lock()
			m.drivers[k] = d
			m.mu.Unlock()
			if in.mode == meta.MirrorActive {
				if u := m.upstream(in.mirror); u != nil {
					u.kick()
				}
			}
		}
		d.postIntent(in)
	}
}

func (m *Manager) drop(k partitionKey) {
	m.mu.Lock()
	d := m.drivers[k]
	delete(m.drivers, k)
	m.mu.Unlock()
	if d != nil {
		d.close()
	}
}

func (m *Manager) upstream(name string) *upstream {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.upstreams[name]
}

// upstreamOf waits until the manager's goroutine has followed the creation of a mirror that the image has: a start may
// come right after the answer to the creation.
func (m *Manager) upstreamOf(ctx context.Context, mi *meta.Mirror) (*upstream, error) {
	for {
		m.mu.Lock()
		u, added := m.upstreams[mi.Name], m.added
		m.mu.Unlock()
		if u != nil && u.id == mi.ID {
			return u, nil
		}
		select {
		case <-added:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-m.ctx.Done():
			return nil, m.ctx.Err()
		}
	}
}

func (m *Manager) driver(topic [16]byte, partition int32) *driver {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.drivers[partitionKey{topic, partition}]
}

// driversOf returns the drivers of a mirror's partitions.
func (m *Manager) driversOf(mirror string) []*driver {
	return m.selectDrivers(func(d *driver) bool { return d.posted().mirror == mirror })
}

// refreshed tells the partitions of topics that the source describes them differently now.
func (m *Manager) refreshed(mirror string, topics []source.Topic) {
	img := m.o.Image()
	for _, t := range topics {
		local := img.Topic(t.Name)
		if local == nil {
			continue
		}
		if name, _ := img.TopicMirror(t.Name); name != mirror {
			continue
		}
		for i := range local.Partitions {
			if d := m.driver(local.ID, int32(i)); d != nil {
				d.post(func(b *mailbox) { b.refreshed = true })
			}
		}
	}
}

func (m *Manager) selectDrivers(want func(*driver) bool) []*driver {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []*driver
	for _, d := range m.drivers {
		if want(d) {
			out = append(out, d)
		}
	}
	return out
}

func (d *driver) isLost() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lost
}

func (d *driver) posted() intent {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.last
}

// route makes the events of an assignment reach its driver.
func (m *Manager) route(token uint64, d *driver) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.routes[token] = d
}

func (m *Manager) unroute(token uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.routes, token)
}

func (m *Manager) forgetWaiter(d *driver) {
	m.mu.Lock()
	us := make([]*upstream, 0, len(m.upstreams))
	for _, u := range m.upstreams {
		us = append(us, u)
	}
	m.mu.Unlock()
	for _, u := range us {
		u.forget(d)
	}
}

func (m *Manager) syncError(mirror, step string) {
	if m.o.OnSyncError != nil {
		m.o.OnSyncError(mirror, step)
	}
}

// brokerDown makes the partitions FAILED that are fetched from a source broker which has been away for too long.
func (m *Manager) brokerDown(mirror string, broker int32, err error) {
	for _, d := range m.driversOf(mirror) {
		d.post(func(b *mailbox) { b.down, b.downAt = err, broker })
	}
}

// fetchEvents is the Manager as the fetchers see it.
type fetchEvents Manager

// Partition implements fetcher.Events.
func (f *fetchEvents) Partition(e fetcher.Event) {
	m := (*Manager)(f)
	m.mu.Lock()
	d := m.routes[e.Token]
	m.mu.Unlock()
	if d != nil {
		d.post(func(b *mailbox) { b.fetch = append(b.fetch, e) })
	}
}

// Broker implements fetcher.Events.
func (f *fetchEvents) Broker(mirror string, broker int32, err error) {
	if u := (*Manager)(f).upstream(mirror); u != nil {
		u.brokerChanged(broker, err)
	}
}

// sinceOrNever is how long ago something was, -1 for never.
func sinceOrNever(now, t time.Time) time.Duration {
	if t.IsZero() {
		return -1
	}
	return max(now.Sub(t), 0)
}
