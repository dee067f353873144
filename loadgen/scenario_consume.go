package loadgen

import (
	"context"
	"fmt"
	"sync"
	"time"

	"stet/zerocopy/batch"
)

// Consume reads a topic from its start, once, as fast as it comes, or for the
// duration, whichever ends first.
func Consume(ctx context.Context, bootstrap, topic string, o Options) (*Report, error) {
	if o.Duration <= 0 {
		return nil, fmt.Errorf("--duration %s is not above 0", o.Duration)
	}
	t, err := openTarget(bootstrap)
	if err != nil {
		return nil, err
	}
	defer t.close()
	l, err := t.ensureTopic(ctx, topic, false, 0)
	if err != nil {
		return nil, err
	}
	from, err := t.ends(ctx, topic, true)
	if err != nil {
		return nil, err
	}
	to, err := t.ends(ctx, topic, false)
	if err != nil {
		return nil, err
	}
	r := newReport("consume", o)
	cpu, err := startCPU(o.CPU)
	if err != nil {
		return nil, err
	}
	run := &reader{t: t, layout: l}
	start := time.Now()
	rctx, cancel := context.WithTimeout(ctx, o.Duration)
	defer cancel()
	stop := func() {}
	if o.Progress != nil {
		stop = every(o, func(since time.Duration) string {
			return fmt.Sprintf("consume  %.1f MB, %.1f MB/s, at most %s left", float64(run.bytes.Load())/1e6, float64(run.bytes.Load())/1e6/since.Seconds(),
				max(0, o.Duration-since).Round(time.Second))
		})
	}
	sampled := r.sample("read", "MB/s", rate(run.bytes.Load))
	err = run.run(rctx, from, to)
	stop()
	sampled()
	took := time.Since(start)
	r.Load.Records, r.Load.Bytes = run.records.Load(), run.bytes.Load()
	r.Load.Errors = run.errs.Load()
	r.Load.AchievedPerSec = float64(r.Load.Records) / took.Seconds()
	r.Throughput.MBPerSec = float64(r.Load.Bytes) / 1e6 / took.Seconds()
	e := evidence{errors: r.Load.Errors, cancelled: ctx.Err() != nil, ended: err}
	e.lastErr, _ = run.lastErr.Load().(string)
	r.judge(e)
	cpu.perGiB(r, r.Load.Bytes)
	if r.Load.Records == 0 && err == nil {
		return r, fmt.Errorf("%w: topic %s holds no records", ErrNothing, topic)
	}
	return r, err
}

// lagTracker joins, batch by batch, the acknowledgement at the source with the
// first sight at the source (control) and at the destination.
type lagTracker struct {
	mu   sync.Mutex
	open map[lagKey]*lagEntry

	replication, control, added, e2e *Recorder
	from                             time.Time
	done                             int64         // records seen on both sides
	latest                           time.Duration // replication lag of the batch that was joined last
}

func (t *lagTracker) latestMs(time.Duration) float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return float64(t.latest) / float64(time.Millisecond)
}

type lagKey struct {
	partition int32
	base      int64
}

type lagEntry struct {
	ack, source, destination time.Time
	records                  int64
}

func newLagTracker() *lagTracker {
	return &lagTracker{open: map[lagKey]*lagEntry{}, replication: NewRecorder(), control: NewRecorder(), added: NewRecorder(), e2e: NewRecorder()}
}

func (t *lagTracker) note(k lagKey, n int64, set func(*lagEntry)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.open[k]
	if e == nil {
		e = &lagEntry{}
		t.open[k] = e
	}
	if n > 0 {
		e.records = n
	}
	set(e)
	if e.ack.IsZero() || e.source.IsZero() || e.destination.IsZero() {
		return
	}
	delete(t.open, k)
	t.done += e.records
	t.latest = e.destination.Sub(e.ack)
	if e.ack.Before(t.from) {
		return
	}
	t.replication.Record(e.destination.Sub(e.ack), e.records)
	t.control.Record(e.source.Sub(e.ack), e.records)
	t.added.Record(e.destination.Sub(e.source), e.records)
}

func (t *lagTracker) acked(p int32, base int64, n int, at time.Time) {
	t.note(lagKey{p, base}, int64(n), func(e *lagEntry) { e.ack = at })
}

func (t *lagTracker) atSource(p int32, b batch.Batch, at time.Time) {
	t.note(lagKey{p, b.BaseOffset()}, 0, func(e *lagEntry) { e.source = at })
}

func (t *lagTracker) atDestination(p int32, b batch.Batch, at time.Time) {
	t.note(lagKey{p, b.BaseOffset()}, 0, func(e *lagEntry) { e.destination = at })
}

// waiting is how many acknowledged batches one of the readers has not seen.
func (t *lagTracker) waiting() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, e := range t.open {
		if !e.ack.IsZero() {
			n++
		}
	}
	return n
}
