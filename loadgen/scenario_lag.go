package loadgen

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// drainPatience bounds the wait for the destination to show what was acknowledged.
const drainPatience = 30 * time.Second

// errAcks refuses what cannot be measured without acknowledged offsets.
var errAcks = errors.New("--acks 0: without acknowledgements nobody knows which offset a record got; allowed are all and 1")

// Lag loads the source of a mirror and measures how much later each record can be
// fetched at the destination, beside a control consumer at the source.
func Lag(ctx context.Context, source, destination, topic string, o Options) (*Report, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	if o.Acks == 0 {
		return nil, errAcks
	}
	src, err := openTarget(source)
	if err != nil {
		return nil, err
	}
	defer src.close()
	dst, err := openTarget(destination)
	if err != nil {
		return nil, err
	}
	defer dst.close()
	ls, err := src.ensureTopic(ctx, topic, false, 0)
	if err != nil {
		return nil, err
	}
	ld, err := dst.ensureTopic(ctx, topic, false, 0)
	if err != nil {
		return nil, err
	}
	if len(ls.leaders) != len(ld.leaders) {
		return nil, fmt.Errorf("topic %s has %d partitions at the source and %d at the destination; is it mirrored?", topic, len(ls.leaders), len(ld.leaders))
	}
	ends, err := src.ends(ctx, topic, false)
	if err != nil {
		return nil, err
	}
	if err := waitEnds(ctx, dst, topic, ends, drainPatience); err != nil {
		return nil, err
	}
	r := newReport("lag", o)
	cpu, err := startCPU(o.CPU)
	if err != nil {
		return nil, err
	}
	track := newLagTracker()
	user := o.Acked
	o.Acked = func(p int32, base int64, n, bytes int, at time.Time) {
		track.acked(p, base, n, at)
		if user != nil {
			user(p, base, n, bytes, at)
		}
	}
	run, err := newLoad(ls, o)
	if err != nil {
		return nil, err
	}
	track.from = time.Now().Add(o.Warmup)

	rctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	readers := []*reader{{t: src, layout: ls, seen: track.atSource}, {t: dst, layout: ld, seen: track.atDestination, patient: true}}
	errs := make([]error, len(readers))
	for i, rd := range readers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if errs[i] = rd.run(rctx, ends, nil); errs[i] != nil {
				run.fail(fmt.Errorf("reading back: %w", errs[i]))
			}
		}()
	}
	stop := func() {}
	if o.Progress != nil {
		total := o.Warmup + o.Duration
		stop = every(o, func(since time.Duration) string {
			ms := func(q float64) string {
				v, ok := track.added.Quantile(q)
				if !ok {
					return "-"
				}
				return fmt.Sprintf("%.2f ms", v)
			}
			return fmt.Sprintf("lag %3.0f%%  %.1f MB acknowledged, added lag p50 %s p99 %s, %d batches on their way, %s left",
				100*min(1, since.Seconds()/total.Seconds()), float64(run.bytes.Load())/1e6, ms(.5), ms(.99), track.waiting(), max(0, total-since).Round(time.Second))
		})
	}
	stopRate := r.sample("acknowledged", "MB/s", rate(run.acked.Load))
	stopLag := r.sample("replication lag", "ms", track.latestMs)
	err = run.run(ctx)
	// Everything acknowledged must come out at the other end before the figures are closed.
	deadline := time.Now().Add(drainPatience)
	for err == nil && track.waiting() > 0 && time.Now().Before(deadline) && ctx.Err() == nil {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	cancel()
	wg.Wait()
	stop()
	stopRate()
	stopLag()
	for _, e := range errs {
		if err == nil {
			err = e // after the last acknowledgement
		}
	}
	run.result(r)
	r.add("replication_lag_ms", track.replication)
	r.add("control_ms", track.control)
	r.add("added_lag_ms", track.added)
	e := run.evidence(ctx, err)
	e.samplesOf, e.samples = "added_lag_ms", track.added.Count()
	e.waiting, e.waitingFor = track.waiting(), "did not come out of both sides"
	r.judge(e)
	cpu.perGiB(r, run.wire.Load())
	return r, run.nothing(err, track.added)
}

// waitEnds waits until the destination's partitions have reached ends.
func waitEnds(ctx context.Context, t *target, topic string, ends []int64, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		got, err := t.ends(ctx, topic, false)
		behind := int64(0)
		if err == nil {
			for p := range ends {
				if p < len(got) {
					behind += max(0, ends[p]-got[p])
				} else {
					behind += ends[p]
				}
			}
			if behind == 0 {
				return nil
			}
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			if err != nil {
				return err
			}
			return fmt.Errorf("topic %s: the destination is %d records behind the source and does not catch up in %s; is it mirrored?", topic, behind, patience)
		}
	}
}
