package fetcher_test

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"stet/fetcher"
	"stet/fetcher/source"
	"stet/internal/testkit/scripted"
	"stet/zerocopy"
	"stet/zerocopy/batch"
)

// memSink is a log in memory.
type memSink struct {
	mu      sync.Mutex
	start   int64
	end     int64
	epoch   int32 // latest
	dle     int32
	bytes   []byte
	appends []fetcher.Append // without records
	obs     []fetcher.Observation
	refuse  error
	block   chan struct{} // if set, Append waits for it
	entered chan struct{}
	changed chan struct{}
	discard bool
}

func newSink() *memSink { return &memSink{epoch: -1, dle: 1000, changed: make(chan struct{})} }

func (s *memSink) LogStartOffset() int64 { s.mu.Lock(); defer s.mu.Unlock(); return s.start }
func (s *memSink) LogEndOffset() int64   { s.mu.Lock(); defer s.mu.Unlock(); return s.end }
func (s *memSink) LatestEpoch() int32    { s.mu.Lock(); defer s.mu.Unlock(); return s.epoch }
func (s *memSink) LeaderEpoch() int32    { s.mu.Lock(); defer s.mu.Unlock(); return s.dle }

func (s *memSink) Append(a fetcher.Append) error {
	if s.block != nil {
		s.entered <- struct{}{}
		<-s.block
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse != nil {
		return s.refuse
	}
	n := 0
	for rest := a.Records; len(rest) > 0; n++ {
		b, after, err := batch.Next(rest)
		if err != nil {
			return fmt.Errorf("the fetcher appended half a batch: %w", err)
		}
		if n == 0 && b.BaseOffset() != a.BaseOffset || len(after) == 0 && b.NextOffset() != a.NextOffset {
			return fmt.Errorf("offsets %d to %d do not describe the batches", a.BaseOffset, a.NextOffset)
		}
		rest = after
	}
	if n != a.Batches {
		return fmt.Errorf("%d batches, not %d", n, a.Batches)
	}
	if !s.discard {
		s.bytes = append(s.bytes, a.Records...)
	}
	a.Records = nil
	s.appends = append(s.appends, a)
	s.end, s.epoch = a.NextOffset, max(s.epoch, a.MaxEpoch)
	s.notify()
	return nil
}

func (s *memSink) Observe(o fetcher.Observation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.obs = append(s.obs, o)
	s.notify()
}

func (s *memSink) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// until waits for cond, which is called with the sink locked.
func (s *memSink) until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		s.mu.Lock()
		ok, changed := cond(), s.changed
		s.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("timeout: %s; log end %d", what, s.LogEndOffset())
		}
	}
}

func (s *memSink) untilEnd(t *testing.T, end int64) {
	t.Helper()
	s.until(t, fmt.Sprintf("log end %d", end), func() bool { return s.end >= end })
}

// eventLog collects events.
type eventLog struct {
	mu      sync.Mutex
	events  []fetcher.Event
	brokers []error
	changed chan struct{}
}

func (l *eventLog) Partition(e fetcher.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *eventLog) Broker(_ string, _ int32, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.brokers = append(l.brokers, err)
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *eventLog) wait(t *testing.T, kind fetcher.EventKind) fetcher.Event {
	t.Helper()
	var found fetcher.Event
	l.until(t, kind.String(), func() bool {
		for _, e := range l.events {
			if e.Kind == kind {
				found = e
				return true
			}
		}
		return false
	})
	return found
}

func (l *eventLog) until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		l.mu.Lock()
		ok, changed := cond(), l.changed
		got := fmt.Sprint(l.events, l.brokers)
		l.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("timeout: %s; got %s", what, got)
		}
	}
}

func (l *eventLog) count(kind fetcher.EventKind) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// rig is a manager that fetches from a cluster of the test kit.
type rig struct {
	t        *testing.T
	cluster  *scripted.Cluster
	src      *source.Source
	leader   fetcher.Leader // src, at a distance that the machine's load does not change
	pool     *zerocopy.Pool
	m        *fetcher.Manager
	events   *eventLog
	counters *fetcher.Counters
	config   fetcher.Config
}

func newRig(t *testing.T, brokers int) *rig {
	return rigOf(t, scripted.NewCluster(t, brokers), source.Options{RequestTimeout: time.Minute}, fetcher.Options{})
}

// newPipedRig is a rig without a network, for bubbles of testing/synctest: its waits take no time, and
// its timeouts are the defaults.
func newPipedRig(t *testing.T, brokers int, o fetcher.Options) *rig {
	c := scripted.NewPiped(t, brokers)
	return rigOf(t, c, source.Options{Dial: c.Dial}, o)
}

func rigOf(t *testing.T, c *scripted.Cluster, so source.Options, o fetcher.Options) *rig {
	r := &rig{t: t, cluster: c, pool: zerocopy.NewPool(64 << 20), events: &eventLog{changed: make(chan struct{})}, counters: &fetcher.Counters{}}
	so.Mirror, so.BrokerID, so.Bootstrap, so.Pool = "m", 7, []string{c.Bootstrap()}, r.pool
	r.src = source.New(so)
	r.leader = &farLeader{Leader: r.src, rtt: 100 * time.Microsecond, open: map[int]int{}}
	o.Events, o.Counters = r.events, r.counters
	r.m = fetcher.NewManager(o)
	r.config = fetcher.DefaultConfig()
	r.config.MaxWait, r.config.Backoff = 50*time.Millisecond, 20*time.Millisecond
	r.m.SetMirror("m", r.leader, r.config)
	t.Cleanup(func() {
		r.m.Close()
		r.src.Close()
		if n := r.pool.Leased(); n != 0 {
			t.Errorf("%d bytes are still leased", n)
		}
	})
	return r
}

func id(t *scripted.Topic, p int32) fetcher.ID {
	return fetcher.ID{TopicID: t.ID, Topic: t.Name, Partition: p}
}

func (r *rig) add(t *scripted.Topic, p int32, s fetcher.Sink) {
	r.t.Helper()
	var a fetcher.Assignment
	r.cluster.Change(func() {
		a = fetcher.Assignment{ID: id(t, p), Broker: t.Logs[p].Leader, LeaderEpoch: t.Logs[p].Epoch, Sink: s, Token: 42}
	})
	if err := r.m.Add("m", a); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) equal(t *scripted.Topic, p int32, s *memSink) {
	r.t.Helper()
	want := r.cluster.Bytes(t, p)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !bytes.Equal(s.bytes, want) {
		r.t.Fatalf("%s-%d: %d bytes, the source has %d, and they differ", t.Name, p, len(s.bytes), len(want))
	}
}

var errRefused = errors.New("disk full")
