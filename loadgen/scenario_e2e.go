package loadgen

import (
	"context"
	"fmt"
	"sync"
	"time"

	"stet/zerocopy/batch"
)

// E2E writes to a topic and measures when each record can be read there, from
// its intended time on.
func E2E(ctx context.Context, bootstrap, topic string, o Options) (*Report, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	if o.Acks == 0 {
		return nil, errAcks
	}
	t, err := openTarget(bootstrap)
	if err != nil {
		return nil, err
	}
	defer t.close()
	l, err := t.ensureTopic(ctx, topic, o.Create, o.Partitions)
	if err != nil {
		return nil, err
	}
	ends, err := t.ends(ctx, topic, false)
	if err != nil {
		return nil, err
	}
	r := newReport("e2e", o)
	cpu, err := startCPU(o.CPU)
	if err != nil {
		return nil, err
	}
	track := &e2eTracker{open: map[lagKey]*e2eEntry{}, times: NewRecorder(), from: time.Now().Add(o.Warmup)}
	run, err := newLoad(l, o)
	if err != nil {
		return nil, err
	}
	run.onAck = track.acked
	rctx, cancel := context.WithCancel(ctx)
	defer cancel()
	reading := make(chan error, 1)
	go func() {
		err := (&reader{t: t, layout: l, seen: track.seen}).run(rctx, ends, nil)
		if err != nil {
			run.fail(fmt.Errorf("reading back: %w", err))
		}
		reading <- err
	}()
	stop := func() {}
	if o.Progress != nil {
		total := o.Warmup + o.Duration
		stop = every(o, func(since time.Duration) string {
			p99, _ := track.times.Quantile(.99)
			return fmt.Sprintf("e2e %3.0f%%  %.1f MB acknowledged, p99 %.2f ms, %s left", 100*min(1, since.Seconds()/total.Seconds()),
				float64(run.bytes.Load())/1e6, p99, max(0, total-since).Round(time.Second))
		})
	}
	sampled := r.sample("acknowledged", "MB/s", rate(run.acked.Load))
	err = run.run(ctx)
	deadline := time.Now().Add(drainPatience)
	for err == nil && track.waiting() > 0 && time.Now().Before(deadline) && ctx.Err() == nil {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	cancel()
	rerr := <-reading
	stop()
	sampled()
	if err == nil {
		err = rerr
	}
	run.result(r)
	r.add("e2e_ms", track.times)
	e := run.evidence(ctx, err)
	e.samplesOf, e.samples = "e2e_ms", track.times.Count()
	e.waiting, e.waitingFor = track.waiting(), "were not read back"
	r.judge(e)
	cpu.perGiB(r, run.wire.Load())
	return r, run.nothing(err, track.times)
}

// e2eTracker joins the intended times of a batch with the moment it was read.
type e2eTracker struct {
	mu    sync.Mutex
	open  map[lagKey]*e2eEntry
	times *Recorder
	from  time.Time
}

type e2eEntry struct {
	first   time.Time
	step    time.Duration
	records int
	read    time.Time
}

func (t *e2eTracker) note(k lagKey, set func(*e2eEntry)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.open[k]
	if e == nil {
		e = &e2eEntry{}
		t.open[k] = e
	}
	set(e)
	if e.records == 0 || e.read.IsZero() {
		return
	}
	delete(t.open, k)
	if !e.first.Before(t.from) {
		t.times.RecordSpaced(e.read.Sub(e.first), -e.step, e.records)
	}
}

func (t *e2eTracker) acked(p int32, base int64, n int, first time.Time, step time.Duration) {
	t.note(lagKey{p, base}, func(e *e2eEntry) { e.first, e.step, e.records = first, step, n })
}

func (t *e2eTracker) seen(p int32, b batch.Batch, at time.Time) {
	t.note(lagKey{p, b.BaseOffset()}, func(e *e2eEntry) { e.read = at })
}

// waiting is how many acknowledged batches were not read yet.
func (t *e2eTracker) waiting() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, e := range t.open {
		if e.records > 0 {
			n++
		}
	}
	return n
}
