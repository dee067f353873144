package loadgen

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrNothing says that a run measured nothing, so there is no number to report.
var ErrNothing = errors.New("nothing was measured")

// Produce writes to a topic and measures acknowledgements.
func Produce(ctx context.Context, bootstrap, topic string, o Options) (*Report, error) {
	if err := o.Check(); err != nil {
		return nil, err
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
	r := newReport("produce", o)
	cpu, err := startCPU(o.CPU)
	if err != nil {
		return nil, err
	}
	run, err := newLoad(l, o)
	if err != nil {
		return nil, err
	}
	stop, sampled := run.progress("produce"), r.sample("acknowledged", "MB/s", rate(run.acked.Load))
	err = run.run(ctx)
	stop()
	sampled()
	run.result(r)
	e := run.evidence(ctx, err)
	e.samplesOf, e.samples = "response_ms", run.response.Count()
	r.judge(e)
	cpu.perGiB(r, run.wire.Load())
	return r, run.nothing(err, run.response)
}

// nothing is the error of a run: what ended it or, if it has no samples, that.
func (l *load) nothing(ended error, measured *Recorder) error {
	if ended != nil || measured.Count() > 0 {
		return ended
	}
	if e := l.lastErr.Load(); e != nil {
		return fmt.Errorf("%w: %d errors, the last: %v", ErrNothing, l.errors.Load(), e)
	}
	return fmt.Errorf("%w: no record was acknowledged after the warm-up", ErrNothing)
}

// result fills in what the load was.
func (l *load) result(r *Report) {
	r.Load.Records, r.Load.Bytes, r.Load.Errors = l.records.Load(), l.bytes.Load(), l.errors.Load()
	r.Load.TargetPerSec = l.o.Rate.Records(l.o.RecordSize)
	took := l.took().Seconds()
	r.Load.AchievedPerSec = float64(r.Load.Records) / took
	r.Throughput.MBPerSec = float64(r.Load.Bytes) / 1e6 / took
	if s := l.slip.Summary(); s.Max != nil {
		r.Load.SlipMs = *s.Max
	}
	r.add("response_ms", l.response)
	r.add("service_ms", l.service)
	r.add("slip_ms", l.slip)
}

// progress prints a line now and then until the returned function is called.
func (l *load) progress(what string) (stop func()) {
	if l.o.Progress == nil {
		return func() {}
	}
	total := l.o.Warmup + l.o.Duration
	return every(l.o, func(since time.Duration) string {
		p99 := "-"
		if v, ok := l.response.Quantile(.99); ok {
			p99 = fmt.Sprintf("%.1f ms", v)
		}
		return fmt.Sprintf("%s %3.0f%%  %.1f MB acknowledged, response p99 %s, %d errors, %s left", what, 100*min(1, since.Seconds()/total.Seconds()),
			float64(l.bytes.Load())/1e6, p99, l.errors.Load(), max(0, total-since).Round(time.Second))
	})
}

// every prints what line says each second, or redraws it on a terminal.
func every(o Options, line func(since time.Duration) string) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Add(1)
	start := time.Now()
	interval := time.Second
	if o.Redraw {
		interval = 200 * time.Millisecond
	}
	go func() {
		defer wg.Done()
		t := time.NewTicker(interval)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				if o.Redraw {
					fmt.Fprintf(o.Progress, "\r\x1b[K%s", line(time.Since(start)))
				} else {
					fmt.Fprintln(o.Progress, line(time.Since(start)))
				}
			case <-done:
				if o.Redraw {
					fmt.Fprint(o.Progress, "\r\x1b[K")
				}
				return
			}
		}
	}()
	return func() { close(done); wg.Wait() }
}
