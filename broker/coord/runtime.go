package coord

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"stet/internal/clock"
	"stet/zerocopy/batch"
)

// Machine is the state of a shard. All its methods, and the operations on it,
// run on the shard's goroutine.
type Machine interface {
	// Replay applies a record, when loading and after an operation returned it. An
	// error when loading leaves the shard failed; it must not fail for a record that
	// an operation made.
	Replay(r Record) error
	// Loaded is called when loading is done; timers can be set from now on.
	Loaded(s *Shard)
	// Unloaded is called when the shard is given up or reloaded: parked answers must
	// be failed with err. The machine is not used any more.
	Unloaded(err error)
}

// Options of a Runtime.
type Options[M Machine] struct {
	Topic      string
	NewMachine func(partition int32) M
	Clock      clock.Clock
	Logger     *slog.Logger
	// WriteTimeout bounds the wait for the commit of a write; 0: 5 s.
	WriteTimeout func() time.Duration
	// Linger is how long records of several operations are gathered; nil: not at
	// all, only what is waiting anyway shares a batch.
	Linger func() time.Duration
	// MaxBatchBytes bounds a batch and so the records of one operation; 0: 1 MiB
	// less a little, which every internal topic's max.message.bytes allows.
	MaxBatchBytes int
}

// Runtime holds the shards of one topic. It is safe for concurrent use.
type Runtime[M Machine] struct {
	o  Options[M]
	mu sync.Mutex
	// shards of the partitions that are led here
	shards map[int32]*shard[M]
	closed bool
	wg     sync.WaitGroup
}

// New makes a runtime without shards.
func New[M Machine](o Options[M]) *Runtime[M] {
	if o.Clock == nil {
		o.Clock = clock.System
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.WriteTimeout == nil {
		o.WriteTimeout = func() time.Duration { return 5 * time.Second }
	}
	if o.MaxBatchBytes == 0 {
		o.MaxBatchBytes = 1<<20 - 4096
	}
	return &Runtime[M]{o: o, shards: map[int32]*shard[M]{}}
}

// BecomeLeader loads a partition that is led here from now on, in the
// background. The same or an older epoch than that of a shard there is changes nothing.
func (r *Runtime[M]) BecomeLeader(partition, epoch int32, log Log) {
	r.mu.Lock()
	old := r.shards[partition]
	if r.closed || old != nil && old.epoch >= epoch {
		r.mu.Unlock()
		return
	}
	s := newShard(r, partition, epoch, log)
	r.shards[partition] = s
	r.wg.Add(1)
	r.mu.Unlock()
	if old != nil {
		old.stop(kerr.NotCoordinator)
	}
	go func() {
		defer r.wg.Done()
		if old != nil {
			<-old.done
		}
		s.run()
	}()
}

// Resign gives up a partition that is not led here any more. Parked answers fail
// with NOT_COORDINATOR. It returns when the shard has ended.
func (r *Runtime[M]) Resign(partition int32) {
	r.mu.Lock()
	s := r.shards[partition]
	delete(r.shards, partition)
	r.mu.Unlock()
	if s != nil {
		s.stop(kerr.NotCoordinator)
		<-s.done
	}
}

// Close resigns everything.
func (r *Runtime[M]) Close() {
	r.mu.Lock()
	r.closed = true
	var all []*shard[M]
	for p, s := range r.shards {
		all = append(all, s)
		delete(r.shards, p)
	}
	r.mu.Unlock()
	for _, s := range all {
		s.stop(kerr.NotCoordinator)
	}
	r.wg.Wait()
}

// Partitions lists the partitions that are led here, loaded or not, in no order.
func (r *Runtime[M]) Partitions() []int32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	ps := make([]int32, 0, len(r.shards))
	for p := range r.shards {
		ps = append(ps, p)
	}
	return ps
}

// Operation looks at and changes a machine. Records that it returns are applied
// to the machine by Replay right after it and then appended. With an error it must
// return no records. It may be called on the shard's goroutine only.
type Operation[M Machine] func(m M, s *Shard) ([]batch.KV, error)

// Do runs an operation on the shard of a partition and waits until everything
// that it saw is committed. Errors: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS,
// REQUEST_TIMED_OUT, the operation's own, and COORDINATOR_NOT_AVAILABLE when the
// append failed. The operation has ended when Do returns, whatever it returns.
func (r *Runtime[M]) Do(ctx context.Context, partition int32, op Operation[M]) error {
	return r.DoFor(ctx, partition, nil, op)
}

// DoFor is Do for a writer, a comparable value: its records wait for those of others (Options.Linger) only while
// others write, too.
func (r *Runtime[M]) DoFor(ctx context.Context, partition int32, writer any, op Operation[M]) error {
	s, err := r.shard(partition)
	if err != nil {
		return err
	}
	end, err := s.do(writer, op)
	if err != nil {
		return err
	}
	return r.wait(ctx, s.log, end)
}

// Sync makes what was written to a partition durable, beyond what its commit means.
func (r *Runtime[M]) Sync(partition int32) error {
	s, err := r.shard(partition)
	if err == nil {
		err = s.log.Sync()
	}
	if err != nil {
		return appendError(err)
	}
	return nil
}

// Parked is an answer that an operation leaves to be given later on the shard's
// goroutine. It is complete once; end is what must be committed before.
type Parked[T any] struct{ ch chan parkedValue[T] }

type parkedValue[T any] struct {
	value T
	end   int64
	err   error
}

// NewParked makes a parked answer.
func NewParked[T any]() *Parked[T] { return &Parked[T]{make(chan parkedValue[T], 1)} }

// Complete gives the answer when the records of the running operation are in the
// log. A second call is a bug.
func (p *Parked[T]) Complete(s *Shard, value T) {
	s.afterAppend(func(end int64, err error) { p.ch <- parkedValue[T]{value, end, err} })
}

// Fail gives an error instead of the answer, at once.
func (p *Parked[T]) Fail(err error) { p.ch <- parkedValue[T]{err: err} }

// DoParked is Do for an operation whose answer may come later. The operation
// returns the parked answer, or nil and an error.
func DoParked[M Machine, T any](ctx context.Context, r *Runtime[M], partition int32, op func(m M, s *Shard) (*Parked[T], []batch.KV, error)) (T, error) {
	var zero T
	s, err := r.shard(partition)
	if err != nil {
		return zero, err
	}
	var parked *Parked[T]
	_, err = s.do(nil, func(m M, sh *Shard) (recs []batch.KV, err error) {
		parked, recs, err = op(m, sh)
		return recs, err
	})
	if err != nil {
		return zero, err
	}
	select {
	case v := <-parked.ch:
		if v.err != nil {
			return zero, v.err
		}
		return v.value, r.wait(ctx, s.log, v.end)
	case <-ctx.Done():
		return zero, timedOut(ctx.Err())
	}
}

func (r *Runtime[M]) shard(partition int32) (*shard[M], error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.shards[partition]
	if s == nil {
		return nil, kerr.NotCoordinator
	}
	return s, nil
}

func (r *Runtime[M]) wait(ctx context.Context, log Log, end int64) error {
	if end <= 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.o.WriteTimeout())
	defer cancel()
	if err := log.WaitCommitted(ctx, end); err != nil {
		return appendError(err)
	}
	return nil
}

func timedOut(err error) error { return fmt.Errorf("%w: %w", kerr.RequestTimedOut, err) }

// appendError maps the error of an append, or of the wait for its commit, to what
// a coordinator's client understands.
func appendError(err error) error {
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return timedOut(err)
	case errors.Is(err, kerr.NotLeaderForPartition), errors.Is(err, kerr.KafkaStorageError):
		return fmt.Errorf("%w: %w", kerr.NotCoordinator, err)
	}
	return fmt.Errorf("%w: %w", kerr.CoordinatorNotAvailable, err)
}
