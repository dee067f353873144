package loadgen

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// ThrottleOptions say which rates are set one after the other, and for how long.
type ThrottleOptions struct {
	CatchupOptions
	Rates []int64 // bytes per second
	Each  time.Duration
}

const (
	keyThrottledReplicas = "mirror.replication.throttled.replicas"
	keyThrottledRate     = "mirror.replication.throttled.rate"
	throttleSample       = 100 * time.Millisecond
	throttleTolerance    = 0.02 // SPEC section 12, over ten seconds
	throttleWorst        = 1.2  // and in any second
)

// RunThrottle makes a backlog, throttles the mirror's topics at one rate after the
// other while it drains, and compares what was copied with what was set. The
// settings are taken back at the end.
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
	var need int64
	for _, r := range o.Rates {
		need += int64(float64(r) * o.Each.Seconds() * throttleWorst)
	}
	if err := f.pause(ctx, true); err != nil {
		return nil, err
	}
	resumed := false
	defer func() {
		// Whatever happens, nothing stays throttled or paused.
		bg, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		_ = f.throttle(bg, 0, false)
		if !resumed {
			_ = f.pause(bg, false)
		}
	}()
	if err := f.fill(ctx, max(need, o.Fill)); err != nil {
		return nil, err
	}
	r := newReport("throttle", o.Options)
	r.Parameters["mirror"], r.Parameters["topics"], r.Parameters["each_s"] = o.Mirror, f.topics, o.Each.Seconds()
	if err := f.throttle(ctx, o.Rates[0], true); err != nil {
		return nil, err
	}
	before, err := f.stored(ctx)
	if err != nil {
		return nil, err
	}
	resumed = true
	if err := f.pause(ctx, false); err != nil {
		return nil, err
	}
	stop := r.sample("copied", "MB/s", rate(func() int64 {
		n, err := f.stored(ctx)
		if err != nil {
			return 0
		}
		return n
	}))
	defer stop()
	for i, rate := range o.Rates {
		if i > 0 {
			if err = f.throttle(ctx, rate, true); err != nil {
				break
			}
		}
		var res ThrottleResult
		if res, err = f.measureRate(ctx, rate, o.Each); err != nil {
			break
		}
		r.Throttle = append(r.Throttle, res)
		name := fmt.Sprintf("rate %d", rate)
		r.check(name, res.Error <= 100*throttleTolerance && res.Error >= -100*throttleTolerance, "%.2f %% off over the time after the first second", res.Error)
		r.check(name+" worst second", res.Worst1s <= throttleWorst, "%.2f times the rate", res.Worst1s)
		if o.Progress != nil {
			left := time.Duration(len(o.Rates)-1-i) * o.Each
			fmt.Fprintf(o.Progress, "throttle: set %.1f MB/s, achieved %.1f MB/s, %s left\n", float64(rate)/1e6, res.Achieved/1e6, left)
		}
		// What is no longer behind is not held back by the throttle.
		lagging, failed, perr := f.progress(ctx)
		if err = perr; err == nil && failed != "" {
			err = errors.New(failed)
		} else if err == nil && lagging == "" {
			err = fmt.Errorf("the backlog was copied before the step of %.1f MB/s was over; give a larger --fill", float64(rate)/1e6)
		}
		if err != nil {
			break
		}
	}
	if now, serr := f.stored(ctx); serr == nil {
		r.Load.Bytes = now - before
	}
	r.judge(evidence{cancelled: ctx.Err() != nil, ended: err})
	return r, err
}

// throttle sets the rate and the replicas it applies to, or with on false removes both.
func (f *failover) throttle(ctx context.Context, rate int64, on bool) error {
	adm := kadm.NewClient(f.dst.cl)
	star, text := "*", fmt.Sprint(rate)
	replicas, limit := kadm.AlterConfig{Op: kadm.SetConfig, Name: keyThrottledReplicas, Value: &star}, kadm.AlterConfig{Op: kadm.SetConfig, Name: keyThrottledRate, Value: &text}
	if !on {
		replicas.Op, replicas.Value = kadm.DeleteConfig, nil
		limit.Op, limit.Value = kadm.DeleteConfig, nil
	}
	brokers, err := adm.ListBrokers(ctx)
	if err != nil {
		return err
	}
	var ids []int32
	for _, b := range brokers {
		ids = append(ids, b.NodeID)
	}
	br, err := adm.AlterBrokerConfigs(ctx, []kadm.AlterConfig{limit}, ids...)
	if err != nil {
		return err
	}
	tr, err := adm.AlterTopicConfigs(ctx, []kadm.AlterConfig{replicas}, f.topics...)
	if err != nil {
		return err
	}
	for _, r := range append(br, tr...) {
		if r.Err != nil {
			return fmt.Errorf("%s: %w %s", r.Name, r.Err, r.ErrMessage)
		}
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
