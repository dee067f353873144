package coord

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"stet/zerocopy/batch"
)

// ErrTooLarge says that the records of one operation are larger than a batch may be.
var ErrTooLarge = errors.New("coord: the records of one operation are larger than a batch may be")

// Shard is what a machine may use of its shard, on the shard's goroutine.
type Shard struct {
	partition int32
	now       func() time.Time
	post      func(func() []batch.KV)
	after     []func(end int64, err error)
}

// Partition is the shard's partition.
func (s *Shard) Partition() int32 { return s.partition }

// Now is the time.
func (s *Shard) Now() time.Time { return s.now() }

// NowMs is the time in milliseconds.
func (s *Shard) NowMs() int64 { return s.now().UnixMilli() }

// Timer is a timer of a machine. It is used on the shard's goroutine only.
type Timer struct {
	timer *time.Timer
	// live is what the posted operation looks at: a timer that was stopped after it
	// fired, but before its operation ran, does nothing.
	live *bool
}

// After runs f on the shard's goroutine once d has passed; the records that it
// returns are written. Stop takes it back.
func (s *Shard) After(d time.Duration, f func() []batch.KV) *Timer {
	live := true
	t := &Timer{live: &live}
	t.timer = time.AfterFunc(d, func() {
		s.post(func() []batch.KV {
			if !live {
				return nil
			}
			live = false
			return f()
		})
	})
	return t
}

// Stop takes the timer back; also nil can be stopped.
func (t *Timer) Stop() {
	if t != nil {
		*t.live = false
		t.timer.Stop()
	}
}

func (s *Shard) afterAppend(f func(end int64, err error)) { s.after = append(s.after, f) }

// shard is the runtime's side of a Shard.
type shard[M Machine] struct {
	Shard
	r     *Runtime[M]
	epoch int32
	log   Log
	done  chan struct{}

	mu      sync.Mutex
	queue   []*task[M]
	wake    chan struct{} // capacity 1
	loading bool
	stopped error

	// owned by the goroutine
	machine M
	life    *bool // cleared when the machine is given up
	end     int64 // after the last append: what operations have seen
	pending []batch.KV
	size    int
	waiting []*task[M] // operations whose records are in pending, or that saw them
	writer  any        // who alone has put something into pending, nil: nobody, several, or not known
	// lastWriter is that of the last batch, which was appended at flushed.
	lastWriter any
	flushed    time.Time
	// appended says that an append has succeeded since the last load.
	appended bool
}

// task is an operation in the queue. answer is nil for timers.
type task[M Machine] struct {
	op     Operation[M]
	writer any // nil: not known
	answer chan taskResult
}

type taskResult struct {
	end int64
	err error
}

func newShard[M Machine](r *Runtime[M], partition, epoch int32, log Log) *shard[M] {
	s := &shard[M]{r: r, epoch: epoch, log: log, done: make(chan struct{}), wake: make(chan struct{}, 1), loading: true}
	s.partition = partition
	s.now = r.o.Clock.Now
	return s
}

// do queues an operation and waits until it ran and its records are in the log.
func (s *shard[M]) do(writer any, op Operation[M]) (end int64, err error) {
	t := &task[M]{op: op, writer: writer, answer: make(chan taskResult, 1)}
	s.mu.Lock()
	if s.stopped != nil || s.loading {
		defer s.mu.Unlock()
		if s.stopped != nil {
			return 0, s.stopped
		}
		return 0, kerr.CoordinatorLoadInProgress
	}
	s.queue = append(s.queue, t)
	s.mu.Unlock()
	s.signal()
	res := <-t.answer
	return res.end, res.err
}

func (s *shard[M]) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// stop makes the goroutine end; what is queued fails with err.
func (s *shard[M]) stop(err error) {
	s.mu.Lock()
	if s.stopped == nil {
		s.stopped = err
	}
	s.mu.Unlock()
	s.signal()
}

// How long a shard waits before it loads again after an append or a load failed: doubling while nothing succeeds, as on
// a disk that is full or gone. A shard that has appended, or lasted, begins anew.
const (
	reloadPause    = time.Second
	maxReloadPause = 30 * time.Second
)

func (s *shard[M]) run() {
	defer close(s.done)
	wait := reloadPause
	for {
		began := time.Now()
		err := s.load()
		if err == nil {
			err = s.serve()
		}
		if s.finish(err) {
			return
		}
		if s.appended || time.Since(began) >= maxReloadPause {
			wait = reloadPause
		}
		s.r.o.Logger.Error("coordinator partition failed, loading it again", "topic", s.r.o.Topic, "partition", s.partition, "after", wait, "err", err)
		pause := time.NewTimer(wait)
		wait = min(2*wait, maxReloadPause)
		for waiting := true; waiting; {
			select {
			case <-pause.C:
				waiting = false
			case <-s.wake:
				if _, stopped := s.take(); stopped != nil {
					pause.Stop()
					return
				}
			}
		}
	}
}

func (s *shard[M]) load() error {
	s.machine = s.r.o.NewMachine(s.partition)
	s.after, s.pending, s.waiting, s.size, s.writer, s.lastWriter, s.appended = nil, nil, nil, 0, nil, nil, false
	// Timers of this life only.
	life := new(bool)
	*life = true
	s.post = func(f func() []batch.KV) {
		s.mu.Lock()
		s.queue = append(s.queue, &task[M]{op: func(M, *Shard) ([]batch.KV, error) {
			if !*life {
				return nil, nil
			}
			return f(), nil
		}})
		s.mu.Unlock()
		s.signal()
	}
	s.life = life
	started := s.now()
	n := 0
	err := readAll(s.log, func(r Record) error {
		n++
		if n%1024 == 0 && s.isStopped() {
			return kerr.NotCoordinator
		}
		return s.machine.Replay(r)
	})
	if err != nil {
		return err
	}
	s.end = s.log.LogEndOffset()
	s.machine.Loaded(&s.Shard)
	s.runAfter(nil)
	s.mu.Lock()
	s.loading = false
	s.mu.Unlock()
	s.r.o.Logger.Debug("coordinator partition loaded", "topic", s.r.o.Topic, "partition", s.partition, "epoch", s.epoch, "records", n, "duration", s.now().Sub(started))
	return nil
}

func (s *shard[M]) isStopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped != nil
}

// finish fails everything after a failure or a stop; it says whether the shard ends.
func (s *shard[M]) finish(err error) (ends bool) {
	s.mu.Lock()
	s.loading = true
	queue := s.queue
	s.queue = nil
	stopped := s.stopped
	s.mu.Unlock()
	if stopped != nil {
		err = stopped
	}
	*s.life = false
	for _, t := range append(s.waiting, queue...) {
		if t.answer != nil {
			t.answer <- taskResult{err: err}
		}
	}
	s.waiting = nil
	s.runAfter(err)
	s.machine.Unloaded(err)
	s.runAfter(err)
	return stopped != nil
}

// take returns what is queued, or the reason to stop.
func (s *shard[M]) take() ([]*task[M], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped != nil {
		return nil, s.stopped
	}
	queue := s.queue
	s.queue = nil
	return queue, nil
}

// serve runs operations until the shard is stopped or an append fails.
func (s *shard[M]) serve() error {
	for {
		queue, err := s.take()
		if err != nil {
			return err
		}
		if len(queue) == 0 {
			<-s.wake
			continue
		}
		if err := s.runTasks(queue); err != nil {
			return err
		}
		if err := s.linger(); err != nil {
			return err
		}
		if err := s.flush(); err != nil {
			return err
		}
	}
}

// linger gathers more operations while there are unwritten records. An operation whose writer is known waits only if
// others write as well: one alone is written at once, also the next one of the same writer.
func (s *shard[M]) linger() error {
	if s.r.o.Linger == nil || len(s.pending) == 0 {
		return nil
	}
	d := s.r.o.Linger()
	if s.writer != nil {
		since := time.Since(s.flushed)
		if since >= d || s.writer == s.lastWriter {
			return nil
		}
		d -= since
	}
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	for len(s.pending) > 0 {
		select {
		case <-timer.C:
			return nil
		case <-s.wake:
			queue, err := s.take()
			if err != nil {
				return err
			}
			if err := s.runTasks(queue); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *shard[M]) runTasks(tasks []*task[M]) error {
	for i, t := range tasks {
		if err := s.runTask(t); err != nil {
			s.waiting = append(s.waiting, tasks[i+1:]...)
			return err
		}
	}
	return nil
}

func (s *shard[M]) runTask(t *task[M]) error {
	recs, err := t.op(s.machine, &s.Shard)
	size := 0
	for _, kv := range recs {
		size += len(kv.Key) + len(kv.Value) + 32
	}
	if err == nil && size > s.r.o.MaxBatchBytes {
		err, recs = fmt.Errorf("%w: %d bytes", ErrTooLarge, size), nil
	}
	if err != nil {
		if t.answer != nil {
			t.answer <- taskResult{err: err}
		}
		return nil
	}
	s.waiting = append(s.waiting, t)
	if len(recs) == 0 {
		return nil
	}
	if s.size+size > s.r.o.MaxBatchBytes && len(s.pending) > 0 {
		// What was gathered so far goes first; the new operation stays in waiting.
		s.waiting = s.waiting[:len(s.waiting)-1]
		after := s.after
		s.after = nil
		if err := s.flush(); err != nil {
			s.after, s.waiting = after, append(s.waiting, t) // all of them fail
			return err
		}
		s.after, s.waiting = after, append(s.waiting, t)
	}
	now := s.NowMs()
	for _, kv := range recs {
		if err := s.machine.Replay(Record{Offset: -1, Timestamp: now, Key: kv.Key, Value: kv.Value}); err != nil {
			panic(fmt.Sprintf("BUG: %s-%d cannot apply its own record: %v", s.r.o.Topic, s.partition, err))
		}
	}
	if len(s.pending) == 0 {
		s.writer = t.writer
	} else if s.writer != t.writer {
		s.writer = nil
	}
	s.pending = append(s.pending, recs...)
	s.size += size
	return nil
}

// flush appends the gathered records as one batch and answers the operations.
func (s *shard[M]) flush() error {
	if len(s.pending) > 0 {
		b := batch.Build(nil, batch.Header{Timestamp: s.NowMs(), ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}, s.pending...)
		end, err := s.log.AppendBatch(b)
		if err != nil {
			return appendError(err)
		}
		s.end, s.appended = end, true
		s.lastWriter, s.flushed = s.writer, time.Now()
		s.pending, s.size, s.writer = nil, 0, nil
	}
	for _, t := range s.waiting {
		if t.answer != nil {
			t.answer <- taskResult{end: s.end}
		}
	}
	s.waiting = nil
	s.runAfter(nil)
	return nil
}

func (s *shard[M]) runAfter(err error) {
	after := s.after
	s.after = nil
	for _, f := range after {
		f(s.end, err)
	}
}
