package fetcher_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"stet/fetcher"
)

// farLeader makes a source look as far away as rtt says, and counts its open connections by fetcher.
type farLeader struct {
	fetcher.Leader
	mu   sync.Mutex
	rtt  time.Duration
	open map[int]int
}

type farConn struct {
	fetcher.Conn
	l    *farLeader
	n    int
	rtt  time.Duration
	once sync.Once
}

func (l *farLeader) Connect(ctx context.Context, broker int32, n int) (fetcher.Conn, error) {
	c, err := l.Leader.Connect(ctx, broker, n)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[n]++
	return &farConn{Conn: c, l: l, n: n, rtt: l.rtt}, nil
}

func (l *farLeader) conns(n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open[n]
}

func (c *farConn) RTT() time.Duration { return c.rtt }

func (c *farConn) Close() error {
	c.once.Do(func() {
		c.l.mu.Lock()
		defer c.l.mu.Unlock()
		c.l.open[c.n]--
	})
	return c.Conn.Close()
}

// TestLanesOnALongWay: on a long way a fetcher has several connections over disjoint partitions, one on a short way (G5), and nothing
// is lost when the partitions move among them, also under a resize and a reconnect to a nearer source.
func TestLanesOnALongWay(t *testing.T) {
	r := newRig(t, 1)
	far := &farLeader{Leader: r.src, rtt: 80 * time.Millisecond, open: map[int]int{}}
	r.m.SetMirror("m", far, r.config)
	tp := r.cluster.CreateTopic("t", 24)
	sinks := make([]*memSink, 24)
	for p := range sinks {
		sinks[p] = newSink()
		r.add(tp, int32(p), sinks[p])
	}
	more := func() {
		t.Helper()
		for p, s := range sinks {
			r.cluster.Produce(tp, int32(p), 3, 100)
			s.untilEnd(t, tp.Logs[p].End())
		}
	}
	more()
	if n := far.conns(0); n != 10 {
		t.Errorf("%d connections at 80 ms, want 10", n)
	}
	if f, c := r.m.Alive("m"); f != 1 || c != 1 {
		t.Errorf("%d fetchers, %d connected: lanes are no fetchers", f, c)
	}
	r.m.Resize(2)
	more()
	if a, b := far.conns(0), far.conns(1); a == 0 || b == 0 {
		t.Errorf("two fetchers have %d and %d connections", a, b)
	}
	near := &farLeader{Leader: r.src, rtt: time.Millisecond, open: map[int]int{}}
	r.m.SetMirror("m", near, r.config)
	more()
	used := map[int]bool{}
	for p := range sinks {
		st, ok := r.m.Status("m", id(tp, int32(p)))
		if !ok {
			t.Fatalf("partition %d is lost", p)
		}
		used[st.Fetcher] = true
	}
	if len(used) != 2 {
		t.Errorf("near the source the partitions are on fetchers %v", used)
	}
	for p, s := range sinks {
		r.equal(tp, int32(p), s)
	}
}

// TestRemoveDuringAMove: a partition that a move has taken from a loop in the middle of an append is removed by Remove all the same.
func TestRemoveDuringAMove(t *testing.T) {
	r := newRig(t, 1)
	tp := r.cluster.CreateTopic("t", 2)
	s, other := newSink(), newSink()
	s.block, s.entered = make(chan struct{}), make(chan struct{}, 10)
	release := sync.OnceFunc(func() { close(s.block) })
	defer release()
	r.cluster.Produce(tp, 0, 1, 10)
	r.add(tp, 0, s)
	<-s.entered
	moved, removed := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(moved)
		for n := 2; n < 8; n++ { // the partition's fetcher is another one with some of these
			r.m.Resize(n)
		}
	}()
	r.cluster.Produce(tp, 1, 1, 10)
	r.add(tp, 1, other)
	other.untilEnd(t, 1) // others go on meanwhile, also while the first one is moved
	go func() {
		defer close(removed)
		r.m.Remove("m", id(tp, 0))
	}()
	select {
	case <-removed:
		t.Fatal("Remove returned in the middle of an append")
	case <-time.After(50 * time.Millisecond):
	}
	release()
	<-removed
	<-moved
	end := s.LogEndOffset()
	r.cluster.Produce(tp, 0, 1, 10)
	r.cluster.Produce(tp, 1, 1, 10)
	other.untilEnd(t, 2)
	if _, ok := r.m.Status("m", id(tp, 0)); ok || s.LogEndOffset() != end {
		t.Fatal("a move has brought the removed partition back")
	}
}

// TestSlowLogIsLeftOut: the other partitions of the fetcher go on while one log hangs, and it comes back when it is well.
func TestSlowLogIsLeftOut(t *testing.T) {
	r := newRig(t, 1)
	tp := r.cluster.CreateTopic("t", 6)
	blocked := make(chan struct{})
	release := sync.OnceFunc(func() { close(blocked) })
	defer release()
	sinks := make([]*memSink, 6)
	for p := range sinks {
		sinks[p] = newSink()
		if p == 2 {
			sinks[p].block, sinks[p].entered = blocked, make(chan struct{}, 100)
		}
		r.add(tp, int32(p), sinks[p])
	}
	r.cluster.Produce(tp, 2, 1, 10)
	<-sinks[2].entered
	for p, s := range sinks {
		if p != 2 {
			r.cluster.Produce(tp, int32(p), 2, 10)
			s.untilEnd(t, 2) // at the latest a second after the log began to hang
		}
	}
	// On a machine that stood still for a second, another one may have been late, too.
	if n := r.counters.SetAside.Load(); n < 1 {
		t.Errorf("%d partitions were set aside", n)
	}
	release()
	r.cluster.Produce(tp, 2, 5, 10)
	sinks[2].untilEnd(t, 6)
	for range 2 { // the first one forgets the slow append
		r.m.Balance()
	}
	for p, s := range sinks {
		r.cluster.Produce(tp, int32(p), 1, 10)
		s.untilEnd(t, tp.Logs[p].End())
		r.equal(tp, int32(p), s)
	}
	if got := fmt.Sprint(r.m.Alive("m")); got != "1 1" {
		t.Errorf("fetchers and connected ones: %s", got)
	}
}
