package fetcher

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/zerocopy/frame"
)

// idleTimeout is how long a loop without partitions keeps its connection: an epoch bump removes a
// partition and adds it again within milliseconds.
const idleTimeout = 30 * time.Second

// loop fetches from one source broker over one connection. Its goroutine runs run; the other methods are
// called by the Manager.
type loop struct {
	m      *Manager
	mirror string
	key    loopKey
	gate   *gate
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}
	wake   chan struct{} // holds one token when there may be work

	connected atomic.Bool
	heldUntil atomic.Int64 // UnixNano until which the throttle has nothing; 0: it always had

	mu         sync.Mutex
	closed     bool // ended: takes no more partitions
	leader     Leader
	config     Config
	reconnect  context.CancelFunc // ends the present connection
	partitions map[ID]*partition
	byID       map[[16]byte]*topic
	byName     map[string]*topic
	dirty      []*partition
	waiting    []*partition
	fetchables int // partitions that a request would cover
	noIDs      int // partitions without a topic id
	forgotten  []forgotten
	covered    time.Time // when a session's response was last received
	session    session
	n          int   // the fetcher's number
	limit      int32 // of what the limits may grow to

	// of the goroutine alone
	req     kmsg.FetchRequest
	walker  frame.FetchWalker
	plans   []plan
	events  []Event
	rate    float64 // bytes per second, smoothed
	rotate  int
	scratch []*partition
	// watch fires when an append takes long; see late
	watch     *time.Timer
	appending atomic.Pointer[partition]
	since     atomic.Int64 // UnixNano of the begin of that append
	slowest   atomic.Int64 // nanoseconds; of a loop that was set aside
	probe     bool         // the other loops of the broker wait for what this one finds
	proven    bool         // the connection has brought a good answer
	fails     int          // connections in a row that have not
	// reserved are the bytes that the outstanding request may bring (throttled loops)
	reserved int64
	used     int64 // of what was reserved last
}

type forgotten struct {
	topic     *topic
	partition int32
}

func newLoop(m *Manager, mi *mirror, key loopKey, g *gate) *loop {
	l := &loop{
		m: m, mirror: mi.name, key: key, gate: g, done: make(chan struct{}), wake: make(chan struct{}, 1), leader: mi.leader, config: mi.config,
		partitions: map[ID]*partition{}, byID: map[[16]byte]*topic{}, byName: map[string]*topic{}, req: kmsg.NewFetchRequest(),
	}
	l.n, l.limit = key.slot%m.fetchers, m.limit(mi, key.broker)
	l.ctx, l.cancel = context.WithCancel(m.ctx)
	l.watch = time.AfterFunc(time.Hour, l.late)
	l.watch.Stop()
	return l
}

// setShare is called with the Manager's lock held.
func (l *loop) setShare(n int, limit int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n, l.limit = n, limit
}

// add reports false when the loop has ended.
func (l *loop) add(p *partition) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	t := l.byName[p.id.Topic]
	if t == nil || t.id != p.id.TopicID {
		t = &topic{id: p.id.TopicID, name: p.id.Topic, partitions: map[int32]*partition{}}
		l.byName[t.name] = t
		if t.id != ([16]byte{}) {
			l.byID[t.id] = t
		}
	}
	p.topic = t
	t.partitions[p.id.Partition] = p
	l.partitions[p.id] = p
	l.fetchables++
	if p.id.TopicID == ([16]byte{}) {
		l.noIDs++
		l.session.reset() // the version changes
	}
	l.touch(p)
	l.signal()
	return true
}

// touch puts p among those that the session has to be told about. The lock is held.
func (l *loop) touch(p *partition) {
	if !p.dirty {
		p.dirty = true
		l.dirty = append(l.dirty, p)
	}
}

// remove does not wait for an append that is under way: partition.finish does.
func (l *loop) remove(id ID) *partition {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.partitions[id]
	if p != nil {
		delete(l.partitions, id)
		delete(p.topic.partitions, id.Partition)
		if len(p.topic.partitions) == 0 {
			if l.byName[p.topic.name] == p.topic {
				delete(l.byName, p.topic.name)
			}
			if l.byID[p.topic.id] == p.topic {
				delete(l.byID, p.topic.id)
			}
		}
		if p.fetchable() {
			l.fetchables--
		}
		if id.TopicID == ([16]byte{}) {
			l.noIDs--
			l.session.reset()
		}
		l.leave(p)
	}
	return p
}

func (l *loop) ids() []ID {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.partitions))
}

func (l *loop) partition(id ID) *partition {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.partitions[id]
}

// leave takes p out of the session with the next request. The lock is held.
func (l *loop) leave(p *partition) {
	if p.inRequest {
		p.inRequest = false
		l.forgotten = append(l.forgotten, forgotten{p.topic, p.id.Partition})
	}
}

// halt ends the fetching of p until it is added again. The lock is held.
func (l *loop) halt(p *partition) {
	if p.fetchable() {
		l.fetchables--
	}
	p.halted = true
	l.leave(p)
}

// pause lets p out until the back-off has passed. The lock is held.
func (l *loop) pause(p *partition, until time.Time) {
	if p.fetchable() {
		l.fetchables--
		p.waiting = true
		l.waiting = append(l.waiting, p)
	}
	p.retryAt = until
	l.leave(p)
}

func (l *loop) configure(leader Leader, config Config, reconnect bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leader, l.config = leader, config
	if reconnect && l.reconnect != nil {
		l.reconnect()
	}
}

func (l *loop) status(id ID) (Status, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.partitions[id]
	if p == nil {
		return Status{}, false
	}
	s := Status{Broker: l.key.broker, Fetcher: l.n, Covered: p.covered, Halted: p.halted, Throttled: l.heldBack(time.Now()), Err: l.gate.state()}
	if p.inRequest && p.fetched && l.covered.After(s.Covered) {
		s.Covered = l.covered
	}
	return s, true
}

func (l *loop) ended() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

func (l *loop) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// run is the loop's goroutine.
func (l *loop) run() {
	defer close(l.done)
	defer l.m.forget(l)
	for l.ready(l.ctx) {
		if l.fails > 0 { // of this connection, while others of the broker may be well
			_ = sleep(l.ctx, backoff(l.fails-1), nil)
		}
		var err error
		if l.probe, err = l.gate.enter(l.ctx); err != nil {
			continue // ready finds the context ended
		}
		ctx, leader, n := l.begin()
		conn, err := leader.Connect(ctx, l.key.broker, n)
		if err != nil {
			l.m.o.Counters.ConnectErrors.Add(1)
			l.failed(ctx, err, "cannot connect to the source broker")
			continue
		}
		l.m.o.Counters.Connects.Add(1)
		l.connected.Store(true)
		l.m.connected(l, conn.RTT())
		l.proven = false
		err = l.serve(ctx, conn)
		l.settle(time.Now(), 0) // of a request that was not answered
		l.connected.Store(false)
		_ = conn.Close() // whatever it says, it is not used again
		if err != nil && ctx.Err() == nil {
			l.m.o.Counters.BrokenConnections.Add(1)
			if !l.proven {
				l.fails++
			}
			l.failed(ctx, err, "connection to the source broker ended")
		}
		l.leaveGate()
	}
}

func (l *loop) failed(ctx context.Context, err error, what string) {
	if ctx.Err() != nil {
		l.leaveGate() // we ended it
		return
	}
	l.probe = false
	if l.gate.failed(err) {
		l.m.o.Logger.Warn(what, "mirror", l.mirror, "broker", l.key.broker, "fetcher", l.number(), "err", err)
	}
}

// leaveGate lets another loop try if this one is the probe and will not find out how the broker is.
func (l *loop) leaveGate() {
	if l.probe {
		l.probe = false
		l.gate.leave()
	}
}

// answered notes a good answer.
func (l *loop) answered() {
	if l.proven && !l.gate.sick.Load() {
		return
	}
	l.proven, l.probe, l.fails = true, false, 0
	l.gate.proven()
}

// begin makes the context of the next connection.
func (l *loop) begin() (context.Context, Leader, int) {
	ctx, cancel := context.WithCancel(l.ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reconnect != nil {
		l.reconnect()
	}
	l.reconnect = cancel
	l.session.reset()
	for _, p := range l.partitions {
		p.next, p.epoch = p.sink.LogEndOffset(), p.sink.LatestEpoch()
	}
	return ctx, l.leader, l.n
}

func (l *loop) number() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n
}

// ready waits until there is something to fetch. It reports false when the loop has to end: removed, or
// without partitions for a while.
func (l *loop) ready(ctx context.Context) bool {
	idle := time.Now().Add(idleTimeout)
	for {
		l.mu.Lock()
		wait := time.Until(idle)
		now := time.Now()
		l.resume(now)
		switch {
		case l.ctx.Err() != nil, len(l.partitions) == 0 && wait <= 0:
			l.closed = true
			if l.reconnect != nil {
				l.reconnect()
			}
			l.mu.Unlock()
			return false
		case ctx.Err() != nil:
			l.mu.Unlock()
			return false
		case l.fetchables > 0:
			l.mu.Unlock()
			return true
		case len(l.partitions) > 0:
			wait = time.Hour
			for _, p := range l.waiting {
				wait = min(wait, p.retryAt.Sub(now))
			}
		}
		l.mu.Unlock()
		_ = sleep(ctx, max(wait, 0), l.wake) // an ended context is seen above
	}
}

// fetches says whether there is something to fetch now.
func (l *loop) fetches() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fetchables > 0
}

// resume takes the partitions back whose back-off has passed. The lock is held.
func (l *loop) resume(now time.Time) {
	keep := l.waiting[:0]
	for _, p := range l.waiting {
		switch {
		case p.halted || l.partitions[p.id] != p:
			p.waiting = false
		case p.retryAt.After(now):
			keep = append(keep, p)
		default:
			p.waiting = false
			l.fetchables++
			l.touch(p)
		}
	}
	clear(l.waiting[len(keep):])
	l.waiting = keep
}

// serve uses one connection until it breaks, the context ends or there is nothing left to fetch.
func (l *loop) serve(ctx context.Context, conn Conn) error {
	out := false // a request is outstanding
	empty := 0   // answers in a row that came at once, with nothing in them
	var sentAt time.Time
	c := l.m.o.Counters
	for {
		if !out {
			if !l.fetches() {
				l.leaveGate()
			}
			if !l.ready(ctx) {
				return ctx.Err()
			}
			var err error
			var wait time.Duration
			if out, wait, err = l.send(conn); err != nil {
				return err
			}
			sentAt = time.Now()
			if !out {
				l.leaveGate()
				if err := l.heldFor(ctx, wait); err != nil {
					return err
				}
				continue
			}
		}
		lease, body, err := conn.Receive(ctx)
		if err != nil {
			return err
		}
		now := time.Now()
		c.Responses.Add(1)
		c.ResponseBytes.Add(int64(len(body)))
		if l.m.o.OnResponse != nil {
			l.m.o.OnResponse(l.mirror, now.Sub(sentAt))
		}
		l.measure(len(body), now.Sub(sentAt))
		out = false
		planErr := l.plan(body, now)
		if planErr == nil {
			l.answered()
		}
		if empty++; !l.pointless(now.Sub(sentAt)) {
			empty = 0
		}
		throttle := time.Duration(l.walker.ThrottleMillis) * time.Millisecond
		if planErr == nil && throttle <= 0 && empty <= maxEmpty {
			if out, _, planErr = l.send(conn); out { // a loop that is held back waits above, after the append
				sentAt = time.Now()
			}
		}
		l.append()
		lease.Release()
		l.deliver()
		if planErr != nil {
			return planErr
		}
		if empty > maxEmpty && throttle <= 0 {
			if err := sleep(ctx, emptyPause, nil); err != nil {
				return err
			}
		}
		if throttle > 0 {
			c.ThrottleMillis.Add(throttle.Milliseconds())
			if l.m.o.OnThrottle != nil {
				l.m.o.OnThrottle(l.mirror, false, throttle)
			}
			if err := sleep(ctx, throttle, nil); err != nil {
				return err
			}
		}
	}
}

const (
	// maxEmpty is how many answers without anything may come at once, one after the other, before the requests are slowed
	// down: a source that does not wait as it was asked to must not keep a processor busy.
	maxEmpty = 50
	// emptyPause is the time between two requests then.
	emptyPause = 10 * time.Millisecond
)

// pointless says that the answer just planned came long before the time for which the source may wait, and brought nothing.
func (l *loop) pointless(took time.Duration) bool {
	l.mu.Lock()
	allowed := l.config.MaxWait
	l.mu.Unlock()
	if len(l.events) > 0 || took > allowed/4 {
		return false
	}
	for i := range l.plans {
		if len(l.plans[i].records) > 0 {
			return false
		}
	}
	return true
}

// heldFor waits for the throttle, a second at most, so that what is counted and shown of a long wait is never far behind.
func (l *loop) heldFor(ctx context.Context, wait time.Duration) error {
	if wait <= 0 {
		return nil
	}
	begin := time.Now()
	err := sleep(ctx, min(wait, time.Second), l.wake) // whoever changes the partitions or the rate may end it early
	if l.m.o.OnThrottle != nil {
		l.m.o.OnThrottle(l.mirror, true, time.Since(begin))
	}
	return err
}

// deliver hands out the events that were collected, with no lock held.
func (l *loop) deliver() {
	for i := range l.events {
		l.m.o.Events.Partition(l.events[i])
	}
	clear(l.events)
	l.events = l.events[:0]
}

// measure keeps a smoothed rate, from which the limits grow.
func (l *loop) measure(n int, d time.Duration) {
	if d <= 0 {
		return
	}
	r := float64(n) / d.Seconds()
	if r > l.rate {
		l.rate = r
	} else {
		l.rate += (r - l.rate) / 8
	}
}
