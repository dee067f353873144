package loadgen

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
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
	if _, err := startCPU(o.CPU); err != nil { // before anything is changed
		return nil, err
	}
	r := newReport("catchup", o.Options)
	r.Parameters["mirror"], r.Parameters["topics"], r.Parameters["fill_bytes"] = o.Mirror, f.topics, o.Fill
	err = f.catchup(ctx, o, r)
	if back := f.takeBack(ctx, r); back != nil {
		err = once(errors.Join(err, back))
	}
	r.judge(evidence{cancelled: ctx.Err() != nil, ended: err})
	if r.Load.Bytes == 0 && err == nil {
		return r, fmt.Errorf("%w: the mirror had nothing to copy; give --fill", ErrNothing)
	}
	return r, err
}

// catchup makes the backlog and measures how it is copied. Its end may leave the topics paused: takeBack.
func (f *failover) catchup(ctx context.Context, o CatchupOptions, r *Report) error {
	if err := f.pause(ctx); err != nil {
		return err
	}
	if o.Fill > 0 {
		if err := f.fill(ctx, o.Fill); err != nil {
			return err
		}
	}
	before, err := f.stored(ctx)
	if err != nil {
		return err
	}
	cpu, err := startCPU(o.CPU)
	if err != nil {
		return err
	}
	start := time.Now()
	if err := f.resume(ctx); err != nil {
		return err
	}
	stop := func() {}
	if o.Progress != nil {
		stop = every(o.Options, func(since time.Duration) string {
			now, err := f.stored(ctx)
			if err != nil {
				return "catchup: " + err.Error()
			}
			line := fmt.Sprintf("catchup  %.1f MB copied, %.1f MB/s", float64(now-before)/1e6, float64(now-before)/1e6/since.Seconds())
			if left := o.Fill - (now - before); left > 0 && now > before {
				line += fmt.Sprintf(", about %s left", time.Duration(float64(left)/float64(now-before)*float64(since)).Round(time.Second))
			}
			return line
		})
	}
	copied := before
	sampled := r.sample("copied", "MB/s", rate(func() int64 {
		if now, err := f.stored(ctx); err == nil {
			copied = now
		}
		return copied - before
	}))
	err = f.drained(ctx)
	took := time.Since(start)
	if err == nil { // without a source nobody knows what it still had
		err = f.sourceAnswers(ctx)
	}
	stop()
	sampled()
	after, serr := f.stored(ctx)
	if serr != nil { // the last that was seen
		after, err = copied, errors.Join(err, serr)
	}
	r.Load.Bytes = after - before
	r.Throughput.MBPerSec = float64(r.Load.Bytes) / 1e6 / took.Seconds()
	cpu.perGiB(r, r.Load.Bytes)
	return err
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
		return 0, f.dst.failed(err)
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

// failedPatience is how long a partition may be FAILED before a measurement counts as lost. A mirror tries again
// for ever, a measurement does not wait for it.
const failedPatience = 20 * time.Second

// drained waits until every partition mirrors with lag 0.
func (f *failover) drained(ctx context.Context) error {
	var failed time.Time // since when one is FAILED
	for {
		lagging, why, err := f.progress(ctx)
		switch {
		case err != nil:
			return err
		case why == "":
			failed = time.Time{}
		case failed.IsZero():
			failed = time.Now()
		case time.Since(failed) > failedPatience:
			return fmt.Errorf("for %s now %s", failedPatience, why)
		}
		if lagging == "" {
			return nil
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// progress names a partition that is not up to date, and one that failed.
func (f *failover) progress(ctx context.Context) (lagging, failed string, err error) {
	want := map[string]bool{}
	for _, t := range f.topics {
		want[t] = true
	}
	m, err := describeMirror(ctx, f.dst, f.o.Mirror)
	if err != nil {
		return "", "", err
	}
	for _, t := range m.Topics {
		for _, p := range t.Partitions {
			if !want[t.TopicName] {
				continue
			}
			if p.State != "MIRRORING" || p.Lag != 0 {
				lagging = fmt.Sprintf("%s-%d is %s with lag %d", t.TopicName, p.PartitionIndex, p.State, p.Lag)
			}
			if p.State == "FAILED" {
				failed = fmt.Sprintf("%s-%d is FAILED", t.TopicName, p.PartitionIndex)
				if p.ErrorMessage != nil {
					failed += ": " + *p.ErrorMessage
				}
				if p.RetryAttempt < 0 {
					return lagging, failed, errors.New(failed)
				}
			}
		}
	}
	return lagging, failed, nil
}
