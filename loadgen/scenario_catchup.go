package loadgen

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"stet/broker/mirrormsg"
)

// CatchupOptions say what is drained.
type CatchupOptions struct {
	Options
	Source, Destination, Mirror string
	Topics                      string // RE2, full match
	Fill                        int64  // bytes to write to the source first; 0: what is there
}

// Catchup pauses the topics of a mirror, fills the source, resumes, and measures
// how fast the mirror drains it.
func Catchup(ctx context.Context, o CatchupOptions) (*Report, error) {
	if err := o.Check(); err != nil {
		return nil, err
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
	r := newReport("catchup", o.Options)
	r.Parameters["mirror"], r.Parameters["topics"], r.Parameters["fill_bytes"] = o.Mirror, f.topics, o.Fill
	if err := f.pause(ctx, true); err != nil {
		return nil, err
	}
	if o.Fill > 0 {
		if err := f.fill(ctx, o.Fill); err != nil {
			return nil, errors.Join(err, f.pause(ctx, false))
		}
	}
	before, err := f.stored(ctx)
	if err != nil {
		return nil, errors.Join(err, f.pause(ctx, false))
	}
	cpu, err := startCPU(o.CPU)
	if err != nil {
		return nil, errors.Join(err, f.pause(ctx, false))
	}
	start := time.Now()
	if err := f.pause(ctx, false); err != nil {
		return nil, err
	}
	stop := func() {}
	if o.Progress != nil {
		stop = every(o.Options, func(since time.Duration) string {
			now, err := f.stored(ctx)
			if err != nil {
				return "catchup: " + err.Error()
			}
			return fmt.Sprintf("catchup  %.1f MB copied, %.1f MB/s", float64(now-before)/1e6, float64(now-before)/1e6/since.Seconds())
		})
	}
	sampled := r.sample("copied", "MB/s", rate(func() int64 {
		now, err := f.stored(ctx)
		if err != nil {
			return 0
		}
		return now - before
	}))
	err = f.drained(ctx)
	took := time.Since(start)
	stop()
	sampled()
	if err != nil {
		return nil, err
	}
	after, err := f.stored(ctx)
	if err != nil {
		return nil, err
	}
	r.Load.Bytes = after - before
	r.Throughput.MBPerSec = float64(r.Load.Bytes) / 1e6 / took.Seconds()
	cpu.perGiB(r, r.Load.Bytes)
	if r.Load.Bytes == 0 {
		return r, fmt.Errorf("%w: the mirror had nothing to copy; give --fill", ErrNothing)
	}
	return r, nil
}

// pause pauses or resumes the topics.
func (f *failover) pause(ctx context.Context, on bool) error {
	var results []mirrormsg.MirrorTopicResult
	var code int16
	if on {
		req := mirrormsg.NewPtrPauseMirrorTopicsRequest()
		req.MirrorName = f.o.Mirror
		for _, n := range f.topics {
			t := mirrormsg.NewPauseMirrorTopicsRequestTopic()
			t.TopicName = n
			req.Topics = append(req.Topics, t)
		}
		resp, err := req.RequestWith(ctx, f.dst.cl)
		if err != nil {
			return fmt.Errorf("pause: %w", err)
		}
		code, results = resp.ErrorCode, resp.Topics
	} else {
		req := mirrormsg.NewPtrResumeMirrorTopicsRequest()
		req.MirrorName = f.o.Mirror
		for _, n := range f.topics {
			t := mirrormsg.NewResumeMirrorTopicsRequestTopic()
			t.TopicName = n
			req.Topics = append(req.Topics, t)
		}
		resp, err := req.RequestWith(ctx, f.dst.cl)
		if err != nil {
			return fmt.Errorf("resume: %w", err)
		}
		code, results = resp.ErrorCode, resp.Topics
	}
	errs := []error{mirrormsg.ErrorForCode(code)}
	for i := range results {
		errs = append(errs, refusedTopic(&results[i]))
	}
	return errors.Join(errs...)
}

// fill writes bytes of record values, spread over the topics, as fast as they are acknowledged.
func (f *failover) fill(ctx context.Context, bytes int64) error {
	for _, topic := range f.topics {
		l, err := f.src.layout(ctx, topic)
		if err != nil {
			return err
		}
		share := bytes / int64(len(f.topics))
		fctx, cancel := context.WithCancel(ctx)
		o := f.o.Options
		o.Rate, o.Warmup, o.Duration = Rate{}, 0, 24*time.Hour
		run, err := newLoad(l, o)
		if err != nil {
			cancel()
			return err
		}
		run.onAck = func(int32, int64, int, time.Time, time.Duration) {
			if run.wire.Load() >= share {
				cancel()
			}
		}
		stop := func() {}
		if o.Progress != nil {
			stop = every(o, func(time.Duration) string {
				return fmt.Sprintf("fill %s  %.1f of %.1f MB", topic, float64(run.acked.Load())/1e6, float64(share)/1e6)
			})
		}
		err = run.run(fctx)
		stop()
		cancel()
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if run.wire.Load() < share {
			return fmt.Errorf("topic %s could not be filled: %d errors, the last: %v", topic, run.errors.Load(), run.lastErr.Load())
		}
	}
	return nil
}

// stored are the bytes of the topics at the destination.
func (f *failover) stored(ctx context.Context) (int64, error) {
	dirs, err := kadm.NewClient(f.dst.cl).DescribeAllLogDirs(ctx, nil)
	if err != nil {
		return 0, err
	}
	want := map[string]bool{}
	for _, t := range f.topics {
		want[t] = true
	}
	var sum int64
	dirs.Each(func(d kadm.DescribedLogDir) {
		for topic, parts := range d.Topics {
			for _, p := range parts {
				if want[topic] {
					sum += p.Size
				}
			}
		}
	})
	return sum, nil
}

// drained waits until every partition mirrors with lag 0.
func (f *failover) drained(ctx context.Context) error {
	want := map[string]bool{}
	for _, t := range f.topics {
		want[t] = true
	}
	for {
		m, err := describeMirror(ctx, f.dst.cl, f.o.Mirror)
		if err != nil {
			return err
		}
		done := true
		for _, t := range m.Topics {
			for _, p := range t.Partitions {
				if !want[t.TopicName] {
					continue
				}
				if p.State == "FAILED" && p.ErrorMessage != nil && p.RetryAttempt < 0 {
					return fmt.Errorf("%s-%d is FAILED: %s", t.TopicName, p.PartitionIndex, *p.ErrorMessage)
				}
				done = done && p.State == "MIRRORING" && p.Lag == 0
			}
		}
		if done {
			return nil
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
