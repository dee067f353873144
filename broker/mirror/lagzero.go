package mirror

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"stet/broker/mirror/mirrorstate"
	"stet/broker/mirrormsg"
	"stet/fetcher/source"
)

// lagZero is a stop that waits until nothing is missing (--wait-lag-zero). A lag of 0 alone does not say so: the last
// sight of the source's end may be older than its last record. So the source is asked for its ends once the stop is
// wanted, and each copy has to reach them: what was acknowledged before the stop was asked for is not lost.
type lagZero struct {
	m    *Manager
	plan *mirrormsg.StopMirrorTopicsResponse

	mu   sync.Mutex
	ends map[partitionKey]int64
	errs map[partitionKey]error
}

// waitLagZero waits until every partition of the plan is caught up. Nil: go on; else nothing was stopped.
func (m *Manager) waitLagZero(ctx context.Context, plan *mirrormsg.StopMirrorTopicsResponse, limit time.Duration) *mirrormsg.StopMirrorTopicsResponse {
	wctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	z := &lagZero{m: m, plan: plan, ends: map[partitionKey]int64{}, errs: map[partitionKey]error{}}
	for n := 0; ; n++ {
		z.askEnds(wctx)
		waits := z.behind()
		if len(waits) == 0 {
			return nil
		}
		if sleep(wctx, backoff(Settings{RetryInitial: 5 * time.Millisecond, RetryMax: 50 * time.Millisecond}, n)) == nil {
			continue
		}
		for i := range plan.Topics {
			r := &plan.Topics[i]
			if why, ok := waits[r.Name]; ok && r.ErrorCode == 0 {
				r.ErrorCode, r.ErrorMessage = mirrormsg.CodeAndMessage(mirrormsg.Errorf(kerr.RequestTimedOut, "Topic '%s' was not caught up within %s (%s); nothing was stopped.", r.Name, limit, why))
			} else if r.ErrorCode == 0 {
				r.ErrorCode, r.ErrorMessage = mirrormsg.CodeAndMessage(mirrormsg.Errorf(kerr.RequestTimedOut, "Other topics were not caught up within %s; nothing was stopped.", limit))
			}
		}
		return plan
	}
}

// partitions calls f for every partition of the plan; d is nil where the manager has not taken it up.
func (z *lagZero) partitions(f func(topic string, k partitionKey, d *driver)) {
	img := z.m.o.Image()
	for _, r := range z.plan.Topics {
		t := img.Topic(r.Name)
		if r.ErrorCode != 0 || t == nil {
			continue
		}
		for i := range t.Partitions {
			k := partitionKey{t.ID, int32(i)}
			f(r.Name, k, z.m.driver(k.topic, k.partition))
		}
	}
}

// askEnds asks the source for the ends that it has not told yet. The questions travel together.
func (z *lagZero) askEnds(ctx context.Context) {
	var wg sync.WaitGroup
	z.partitions(func(topic string, k partitionKey, d *driver) {
		if d == nil {
			return
		}
		if v, _ := d.look(); v.state != mirrorstate.Mirroring {
			return
		}
		z.mu.Lock()
		_, known := z.ends[k]
		tried := z.errs[k] != nil
		z.mu.Unlock()
		if known {
			return
		}
		wg.Go(func() {
			end, err := z.m.sourceEnd(ctx, d.posted().mirror, topic, k.partition, tried)
			z.mu.Lock()
			defer z.mu.Unlock()
			if z.errs[k] = err; err == nil {
				z.ends[k] = end
			}
		})
	})
	wg.Wait()
}

// sourceEnd asks for the source's high watermark of a partition; fresh: by metadata of this moment.
func (m *Manager) sourceEnd(ctx context.Context, mirror, topic string, partition int32, fresh bool) (int64, error) {
	up := m.upstream(mirror)
	if up == nil {
		return -1, errSuperseded
	}
	age := time.Minute
	if fresh {
		age = 0
	}
	t, err := up.describe(ctx, topic, age)
	if err != nil {
		return -1, err
	}
	for _, p := range t.Partitions {
		if p.Index == partition && p.Leader >= 0 {
			return up.offset(ctx, p, topic, source.Latest)
		}
	}
	return -1, fmt.Errorf("partition %d has no leader at the source", partition)
}

// behind lists the topics of the plan that are not caught up, each with a reason.
func (z *lagZero) behind() map[string]string {
	now := z.m.o.Clock.Now()
	out := map[string]string{}
	z.partitions(func(topic string, k partitionKey, d *driver) {
		if d == nil {
			out[topic] = mirrorPartitionText(int(k.partition), "not taken up yet")
			return
		}
		v, _ := d.look()
		logEnd := d.part.LogEndOffset()
		z.mu.Lock()
		end, known := z.ends[k]
		err := z.errs[k]
		z.mu.Unlock()
		switch {
		case v.state == mirrorstate.Stopped:
		case v.state != mirrorstate.Mirroring:
			out[topic] = mirrorPartitionText(int(k.partition), v.state.String())
		case err != nil:
			out[topic] = mirrorPartitionText(int(k.partition), "not compared with the source's end: "+err.Error())
		case !known || logEnd < end || d.lag.now(logEnd, now).records != 0:
			out[topic] = mirrorPartitionText(int(k.partition), "behind")
		}
	})
	return out
}
