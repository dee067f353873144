package gate

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"stet/benchmarks/growth"
	"stet/broker/log"
	"stet/fetcher"
	"stet/fetcher/source"
	"stet/internal/vfs"
	"stet/zerocopy"
)

// Options say what is copied.
type Options struct {
	Bootstrap string // a source cluster whose topic does not grow
	Topic     string
	Dir       string // an empty folder
	// Before and After are called right around each counting, Least after the one that allocated least so far; each may be nil.
	Before, After func() error
	Least         func()
}

// counted is how often is counted. What the path itself costs is in each of them; the least is without what chance added, such as a thread that the
// runtime had to start, or a buffer of a size that was not there yet.
const counted = 3

// Measure copies the topic once for buffers and caches, and then a few times counting. It returns the least of each count.
func Measure(ctx context.Context, o Options) (*growth.Run, error) {
	g := &gate{o: o, counters: &fetcher.Counters{}}
	g.src = source.New(source.Options{Mirror: "gate", BrokerID: 1, Bootstrap: []string{o.Bootstrap}, Pool: zerocopy.NewPool(128 << 20), Dial: g.w.dial})
	defer g.src.Close()
	topics, err := g.src.Topics(ctx, []string{o.Topic})
	if err != nil {
		return nil, err
	}
	if len(topics) != 1 || topics[0].Err != nil || len(topics[0].Partitions) == 0 {
		return nil, fmt.Errorf("topic %s cannot be used: %+v", o.Topic, topics)
	}
	g.topic = topics[0]
	if g.logs, err = log.OpenManager(log.ManagerOptions{FS: fileSystem{vfs.OS, &g.w}, Dirs: []string{o.Dir}, NodeID: 1, Cleaner: log.CleanerConfig{Threads: -1}}, func(string) log.Config { return log.DefaultConfig() }); err != nil {
		return nil, err
	}
	defer func() { _ = g.logs.Close() }() // of no use any more
	g.fetchers = fetcher.NewManager(fetcher.Options{Events: g, Counters: g.counters})
	defer g.fetchers.Close()
	if _, err := g.copy(ctx, "warm", nil, nil); err != nil {
		return nil, err
	}
	var least *growth.Run
	for i := range counted {
		run, err := g.copy(ctx, fmt.Sprintf("counted-%d", i), o.Before, o.After)
		if err != nil {
			return nil, err
		}
		more := least
		if least == nil || run.Counts["allocs"] < least.Counts["allocs"] {
			least = run
			if o.Least != nil {
				o.Least()
			}
		} else {
			more = run
		}
		if more == nil {
			continue
		}
		for name, n := range more.Counts {
			least.Counts[name] = min(least.Counts[name], n)
		}
	}
	return least, nil
}

// near is a source at a distance that the machine's load does not change: how far it is decides the number of connections and the size of requests.
type near struct{ fetcher.Leader }

type nearConn struct{ fetcher.Conn }

// Connect implements fetcher.Leader.
func (n near) Connect(ctx context.Context, broker int32, number int) (fetcher.Conn, error) {
	c, err := n.Leader.Connect(ctx, broker, number)
	if err != nil {
		return nil, err
	}
	return nearConn{c}, nil
}

// RTT implements fetcher.Conn.
func (nearConn) RTT() time.Duration { return 100 * time.Microsecond }

type gate struct {
	o        Options
	w        watch
	src      *source.Source
	topic    source.Topic
	logs     *log.Manager
	fetchers *fetcher.Manager
	counters *fetcher.Counters
	failed   chan error
	copies   byte
}

// Partition implements fetcher.Events: whatever halts a partition ends the run.
func (g *gate) Partition(e fetcher.Event) {
	if e.Kind == fetcher.EventFetched || e.Kind == fetcher.EventEpochNear {
		return
	}
	select {
	case g.failed <- fmt.Errorf("partition %d: event %d at offset %d: %w", e.ID.Partition, e.Kind, e.Offset, e.Err):
	default:
	}
}

// Broker implements fetcher.Events.
func (g *gate) Broker(_ string, _ int32, err error) {
	if err == nil {
		return
	}
	select {
	case g.failed <- err:
	default:
	}
}

// sink stores as the mirror does and says when the source's end is reached.
type sink struct {
	l    *log.Log
	left *atomic.Int32
	done chan struct{}
	end  bool
}

func (s *sink) LogStartOffset() int64 { return s.l.LogStartOffset() }
func (s *sink) LogEndOffset() int64   { return s.l.LogEndOffset() }
func (s *sink) LeaderEpoch() int32    { return 1 << 30 }

func (s *sink) LatestEpoch() int32 {
	if e, ok := s.l.LatestEpoch(); ok {
		return e
	}
	return -1
}

func (s *sink) Append(a fetcher.Append) error {
	_, err := s.l.AppendAsFollower(a.Records)
	s.l.SetHighWatermark(s.l.LogEndOffset())
	return err
}

func (s *sink) Observe(o fetcher.Observation) {
	if !s.end && s.l.LogEndOffset() >= o.HighWatermark {
		s.end = true
		if s.left.Add(-1) == 0 {
			close(s.done)
		}
	}
}

// copy copies the topic once, into logs of the given name.
func (g *gate) copy(ctx context.Context, name string, before, after func() error) (*growth.Run, error) {
	g.failed = make(chan error, 1)
	g.fetchers.SetMirror(name, near{g.src}, fetcher.DefaultConfig())
	left, done := new(atomic.Int32), make(chan struct{})
	left.Store(int32(len(g.topic.Partitions)))
	g.copies++
	var as []fetcher.Assignment
	for i, p := range g.topic.Partitions {
		l, err := g.logs.Create(name, int32(i), [16]byte{1, g.copies}, 1, log.DefaultConfig())
		if err != nil {
			return nil, err
		}
		as = append(as, fetcher.Assignment{
			ID: fetcher.ID{TopicID: g.topic.ID, Topic: g.o.Topic, Partition: p.Index}, Broker: p.Leader, LeaderEpoch: p.LeaderEpoch, Sink: &sink{l: l, left: left, done: done},
		})
	}
	if before != nil {
		if err := before(); err != nil {
			return nil, err
		}
	}
	c := g.counters
	batches, bytes, checked := c.AppendedBatches.Load(), c.AppendedBytes.Load(), c.CheckedBytes.Load()
	socket, stored, stray := g.w.socketBytes.Load(), g.w.storedBytes.Load(), g.w.strayBytes.Load()
	calls, err := systemCalls()
	if err != nil {
		return nil, err
	}
	var m0, m1 runtime.MemStats
	runtime.ReadMemStats(&m0)
	if err := g.fetchers.Add(name, as...); err != nil {
		return nil, err
	}
	select {
	case <-done:
	case err := <-g.failed:
		return nil, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	runtime.ReadMemStats(&m1)
	callsAfter, err := systemCalls()
	if err != nil {
		return nil, err
	}
	if after != nil {
		if err := after(); err != nil {
			return nil, err
		}
	}
	g.fetchers.RemoveMirror(name)
	r := &growth.Run{Bytes: c.AppendedBytes.Load() - bytes, Batches: c.AppendedBatches.Load() - batches}
	stored, stray = g.w.storedBytes.Load()-stored, g.w.strayBytes.Load()-stray
	r.Counts = map[string]float64{
		"allocs": float64(m1.Mallocs - m0.Mallocs), "alloc_bytes": float64(m1.TotalAlloc - m0.TotalAlloc), "syscalls": callsAfter - calls,
		"checked_bytes": float64(c.CheckedBytes.Load() - checked), "socket_bytes": float64(g.w.socketBytes.Load() - socket),
		// Into the lease, into the file, and what moved in between.
		"copied_bytes": float64(r.Bytes + stored + stray),
	}
	return r, nil
}

// systemCalls are those of the read and write families that this process has made.
func systemCalls() (float64, error) {
	b, err := os.ReadFile(filepath.Join("/proc/self", "io"))
	if err != nil {
		return 0, err
	}
	var sum float64
	for _, line := range strings.Split(string(b), "\n") {
		if name, v, _ := strings.Cut(line, ": "); name == "syscr" || name == "syscw" {
			n, err := strconv.ParseFloat(v, 64)
			if err != nil {
				return 0, err
			}
			sum += n
		}
	}
	return sum, nil
}
