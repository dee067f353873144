package loadgen

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ThrottleOptions say which rates are set one after the other, and for how long.
type ThrottleOptions struct {
	CatchupOptions
	Rates []int64 // bytes per second
	Each  time.Duration
}

const (
	throttleSample    = 100 * time.Millisecond
	throttleTolerance = 0.02 // SPEC section 12, over ten seconds
	throttleWorst     = 1.2  // and in any second
)

// RunThrottle makes a backlog, throttles the mirror's topics at one rate after the
// other while it drains, and compares what was copied with what was set. At the
// end the throttle is what it was before, however the run ends.
func RunThrottle(ctx context.Context, o ThrottleOptions) (*Report, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	if len(o.Rates) == 0 || o.Each < 3*time.Second {
		return nil, errors.New("throttle needs --rates, and --each of at least 3s")
	}
	f := &failover{o: FailoverOptions{Options: o.Options, Source: o.Source, Destination: o.Destination, Mirror: o.Mirror, Topics: o.Topics}}
	var err error
	if f.src, err = openTarget(o.Source); err != nil {
		return nil, err
	}
	defer f.src.close()
	if f.dst, err = openTarget(o.Destination); err != nil {
		return nil, err
	}
	defer f.dst.close()
	if err := f.findTopics(ctx); err != nil {
		return nil, err
	}
	r := newReport("throttle", o.Options)
	r.Parameters["mirror"], r.Parameters["topics"], r.Parameters["each_s"] = o.Mirror, f.topics, o.Each.Seconds()
	err = f.throttle(ctx, o, r)
	if back := f.takeBack(ctx, r); back != nil {
		err = once(errors.Join(err, back))
	}
	r.judge(evidence{cancelled: ctx.Err() != nil, ended: err})
	return r, err
}

// throttle makes the backlog and measures one rate after the other. What it changed stays so: takeBack.
func (f *failover) throttle(ctx context.Context, o ThrottleOptions, r *Report) error {
	previous, err := f.readThrottle(ctx)
	if err != nil {
		return err
	}
	var least int64
	for _, r := range o.Rates {
		least += int64(float64(r) * o.Each.Seconds() * throttleWorst)
	}
	if err := f.pause(ctx); err != nil {
		return err
	}
	if err := f.fill(ctx, max(least, o.Fill)); err != nil {
		return err
	}
	set := func(rate int64) func(context.Context) error {
		return func(ctx context.Context) error { return f.writeThrottle(ctx, previous.throttled(rate)) }
	}
	err = f.change(ctx, set(o.Rates[0]), undo{
		do: func(ctx context.Context) error { return f.writeThrottle(ctx, previous) },
		left: func(failed error) string {
			return fmt.Sprintf("the throttle may be the one of this run (%v); to put back what was set:\n  %s", failed, previous.commands(f.o.Destination))
		},
	})
	if err != nil {
		return err
	}
	before, err := f.stored(ctx)
	if err != nil {
		return err
	}
	watched, unwatch, err := f.watchSource(ctx)
	if err != nil {
		return err
	}
	defer unwatch()
	if err := f.resume(ctx); err != nil {
		return err
	}
	copied := before
	stop := r.sample("copied", "MB/s", rate(func() int64 {
		if n, err := f.stored(watched); err == nil {
			copied = n
		}
		return copied - before
	}))
	defer stop()
	for i, rate := range o.Rates {
		if i > 0 {
			sctx, cancel := lasting(watched, changePatience)
			err = set(rate)(sctx)
			if cancel(); err != nil {
				break
			}
		}
		if err = f.step(watched, r, rate, o.Each); err != nil {
			break
		}
		if o.Progress != nil {
			left := time.Duration(len(o.Rates)-1-i) * o.Each
			fmt.Fprintf(o.Progress, "throttle: set %.1f MB/s, achieved %.1f MB/s, %s left\n", float64(rate)/1e6, r.Throttle[i].Achieved/1e6, left)
		}
	}
	if now, serr := f.stored(ctx); serr == nil {
		r.Load.Bytes = now - before
	}
	return err
}

// step measures one rate.
func (f *failover) step(ctx context.Context, r *Report, rate int64, each time.Duration) error {
	res, err := f.measureRate(ctx, rate, each)
	if err == nil { // a source that went at the end is not seen by the watch yet
		err = f.sourceAnswers(ctx)
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if err != nil {
		return err
	}
	r.Throttle = append(r.Throttle, res)
	name := fmt.Sprintf("rate %d", rate)
	r.check(name, res.Error <= 100*throttleTolerance && res.Error >= -100*throttleTolerance, "%.2f %% off over the time after the first second", res.Error)
	r.check(name+" worst second", res.Worst1s <= throttleWorst, "%.2f times the rate", res.Worst1s)
	// What is no longer behind is not held back by the throttle.
	lagging, failed, err := f.progress(ctx)
	switch {
	case err != nil:
		return err
	case failed != "":
		return errors.New(failed)
	case lagging == "":
		return fmt.Errorf("the backlog was copied before the step of %.1f MB/s was over; give a larger --fill", float64(rate)/1e6)
	}
	return nil
}

// measureRate watches the copied bytes for a while after a rate was set.
func (f *failover) measureRate(ctx context.Context, rate int64, each time.Duration) (ThrottleResult, error) {
	type point struct {
		at    time.Duration
		bytes int64
	}
	start := time.Now()
	var points []point
	tick := time.NewTicker(throttleSample)
	defer tick.Stop()
	for time.Since(start) < each {
		n, err := f.stored(ctx)
		if err != nil {
			return ThrottleResult{}, err
		}
		points = append(points, point{time.Since(start), n})
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ThrottleResult{}, ctx.Err()
		}
	}
	res := ThrottleResult{Set: float64(rate), SettleMs: -1}
	from := 0
	for from < len(points)-1 && points[from].at < time.Second {
		from++
	}
	last := points[len(points)-1]
	res.Achieved = float64(last.bytes-points[from].bytes) / (last.at - points[from].at).Seconds()
	res.Error = 100 * (res.Achieved/res.Set - 1)
	// Windows of a second, the first one beginning a second after the change.
	for i := range points {
		for j := i + 1; j < len(points); j++ {
			d := points[j].at - points[i].at
			if d < time.Second {
				continue
			}
			ratio := float64(points[j].bytes-points[i].bytes) / d.Seconds() / res.Set
			if points[i].at >= time.Second {
				res.Worst1s = max(res.Worst1s, ratio)
			}
			if res.SettleMs < 0 && ratio > 0.9 && ratio < 1.1 {
				res.SettleMs = msOf(points[i].at)
			}
			break
		}
	}
	return res, nil
}
