package mirror

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"stet/broker/meta"
	"stet/broker/mirror/mirrorstate"
	"stet/broker/mirrormsg"
)

// stopTimeout is how long a stop is waited for; it goes on behind that.
const stopTimeout = 30 * time.Second

// StopMirrorTopics answers StopMirrorTopics when all partitions are STOPPED or FAILED, or after 30 s.
func (m *Manager) StopMirrorTopics(ctx context.Context, req *mirrormsg.StopMirrorTopicsRequest) *mirrormsg.StopMirrorTopicsResponse {
	resp, err := m.stop(ctx, req)
	if err != nil {
		resp = mirrormsg.NewPtrStopMirrorTopicsResponse()
		resp.MirrorName = req.MirrorName
		resp.ErrorCode, resp.ErrorMessage = mirrormsg.CodeAndMessage(err)
	}
	return resp
}

func (m *Manager) stop(ctx context.Context, req *mirrormsg.StopMirrorTopicsRequest) (*mirrormsg.StopMirrorTopicsResponse, error) {
	ask := *req
	ask.DryRun = true // the controller says which topics would be stopped, and which not
	plan, err := m.o.Controller.StopMirrorTopics(ctx, &ask)
	if err != nil || plan.ErrorCode != 0 || req.DryRun {
		if err == nil {
			m.reportDryStop(plan)
		}
		return plan, err
	}
	if req.WaitLagZeroMs >= 0 {
		late := m.waitLagZero(ctx, plan, time.Duration(req.WaitLagZeroMs)*time.Millisecond)
		if late != nil {
			return late, nil
		}
	}
	began := m.o.Clock.Now()
	already := m.stoppedNow(plan)
	resp, err := m.o.Controller.StopMirrorTopics(ctx, req)
	if err != nil || resp.ErrorCode != 0 {
		return resp, err
	}
	m.retryStops(resp)
	wctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	for i := range resp.Topics {
		if r := &resp.Topics[i]; r.ErrorCode == 0 && !already[r.Name] {
			m.awaitStop(wctx, r, began)
		}
	}
	return resp, nil
}

// retryStops tries stops at once that have failed before and were asked for again.
func (m *Manager) retryStops(resp *mirrormsg.StopMirrorTopicsResponse) {
	img := m.o.Image()
	for _, r := range resp.Topics {
		t := img.Topic(r.Name)
		if r.ErrorCode != 0 || t == nil {
			continue
		}
		for i := range t.Partitions {
			if d := m.driver(t.ID, int32(i)); d != nil {
				d.retryStop()
			}
		}
	}
}

// retryStop ends the waiting of a stop that has failed. What others see is not that failure any more.
func (d *driver) retryStop() {
	d.mu.Lock()
	failed := d.view.previousStop
	d.view.previousStop = false
	d.mu.Unlock()
	if failed {
		d.post(func(b *mailbox) { b.retry = true })
	}
}

// stoppedNow lists the topics of a plan that are stopped already.
func (m *Manager) stoppedNow(plan *mirrormsg.StopMirrorTopicsResponse) map[string]bool {
	img := m.o.Image()
	out := map[string]bool{}
	for _, r := range plan.Topics {
		if _, state := img.TopicMirror(r.Name); state == meta.MirrorStopped {
			out[r.Name] = true
		}
	}
	return out
}

// awaitStop waits for the partitions of a topic that this broker leads, and reports.
func (m *Manager) awaitStop(ctx context.Context, r *mirrormsg.MirrorTopicResult, began time.Time) {
	t := m.o.Image().Topic(r.Name)
	if t == nil {
		return
	}
	for i := range t.Partitions {
		if t.Partitions[i].Leader != m.o.Node {
			continue
		}
		v, err := m.awaitPartition(ctx, t, int32(i))
		switch {
		case err != nil:
			if r.ErrorCode == 0 {
				r.ErrorCode, r.ErrorMessage = mirrormsg.CodeAndMessage(mirrormsg.Errorf(kerr.RequestTimedOut, "Partition %d of topic '%s' is %s after %s; the stop goes on.", i, r.Name, v.state, m.o.Clock.Now().Sub(began).Round(time.Second)))
			}
		case v.state == mirrorstate.Failed:
			r.ErrorCode, r.ErrorMessage = mirrormsg.CodeAndMessage(mirrormsg.Errorf(mirrormsg.InvalidMirrorState, "Partition %d of topic '%s' could not be stopped: %s", i, r.Name, v.errText))
		}
		if v.report != nil {
			r.Stops = append(r.Stops, stopResult(int32(i), *v.report))
		}
	}
	if r.ErrorCode == 0 {
		m.awaitStopped(ctx, r.Name)
	}
}

// awaitStopped waits until the metadata say stopped, so that a start right after a stop finds it so.
func (m *Manager) awaitStopped(ctx context.Context, topic string) {
	for n := 0; ctx.Err() == nil; n++ {
		if _, state := m.o.Image().TopicMirror(topic); state != meta.MirrorStopping {
			return
		}
		_ = sleep(ctx, backoff(Settings{RetryInitial: 2 * time.Millisecond, RetryMax: 50 * time.Millisecond}, n)) // the condition of the loop sees the end
	}
}

func (m *Manager) awaitPartition(ctx context.Context, t *meta.Topic, index int32) (view, error) {
	v := view{state: mirrorstate.Unknown}
	for n := 0; ; n++ {
		d := m.driver(t.ID, index)
		if d == nil { // it is being made
			if err := sleep(ctx, time.Millisecond); err != nil {
				return v, err
			}
			continue
		}
		var changed <-chan struct{}
		v, changed = d.look()
		if v.state == mirrorstate.Stopped && (v.report != nil || v.mirror == "") || v.state == mirrorstate.Failed && v.previousStop {
			return v, nil
		}
		if v.state == mirrorstate.Stopped && d.posted().mode != meta.MirrorStopping {
			return v, nil // by somebody before us
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return v, ctx.Err()
		}
	}
}

func stopResult(index int32, s StopReport) mirrormsg.MirrorTopicResultStop {
	r := mirrormsg.NewMirrorTopicResultStop()
	r.PartitionIndex, r.LastMirrorOffset, r.SourceOffset, r.Behind, r.SightAgeMs = index, s.LastMirrorOffset, s.SourceOffset, -1, -1
	if s.SourceOffset >= 0 && s.LastMirrorOffset >= 0 {
		r.Behind = max(s.SourceOffset-s.LastMirrorOffset, 0)
	}
	if s.SightAge >= 0 {
		r.SightAgeMs = s.SightAge.Milliseconds()
	}
	r.Markers, r.DurationMs = s.Markers, s.Duration.Milliseconds()
	return r
}

// reportDryStop adds what a stop would report now.
func (m *Manager) reportDryStop(plan *mirrormsg.StopMirrorTopicsResponse) {
	img, now := m.o.Image(), m.o.Clock.Now()
	for i := range plan.Topics {
		r := &plan.Topics[i]
		t := img.Topic(r.Name)
		if r.ErrorCode != 0 || t == nil {
			continue
		}
		for j := range t.Partitions {
			d := m.driver(t.ID, int32(j))
			if d == nil {
				continue
			}
			v, _ := d.look()
			s := StopReport{LastMirrorOffset: d.part.LogEndOffset(), SourceOffset: -1, SightAge: -1}
			if v.state == mirrorstate.Stopped {
				s.LastMirrorOffset = v.pair.offset
			} else {
				s.Markers = int32(len(d.part.OpenTransactions()))
				if seen := d.lag.now(s.LastMirrorOffset, now); seen.sourceEnd >= 0 {
					s.SourceOffset, s.SightAge = seen.sourceEnd, sinceOrNever(now, m.covered(d, seen))
				}
			}
			r.Stops = append(r.Stops, stopResult(int32(j), s))
		}
	}
}
