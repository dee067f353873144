package loadgen

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"stet/broker/mirrormsg"
)

// switchPatience bounds one fail-over.
const switchPatience = time.Minute

// switchover is one stop with the probes that ran beside it.
type switchover struct {
	sent, answered time.Time // t0, t1
	resp           *mirrormsg.StopMirrorTopicsResponse
	probes         []probeResult
}

// stopAndProbe stops the topics while warm probes try to write to every partition.
func stopAndProbe(ctx context.Context, dst *target, mirror string, topics []string, probes []*prober) (*switchover, error) {
	ctx, cancel := context.WithTimeout(ctx, switchPatience)
	defer cancel()
	sw := &switchover{sent: time.Now()}
	done := make(chan error, 1)
	go func() {
		var err error
		sw.resp, err = sendStop(ctx, dst, mirror, topics)
		sw.answered = time.Now()
		if err != nil {
			cancel() // what was not stopped never becomes writable
		}
		done <- err
	}()
	sw.probes = runProbes(ctx, probes)
	if err := <-done; err != nil {
		return nil, err
	}
	return sw, nil
}

func sendStop(ctx context.Context, dst *target, mirror string, topics []string) (*mirrormsg.StopMirrorTopicsResponse, error) {
	req := mirrormsg.NewPtrStopMirrorTopicsRequest()
	req.MirrorName = mirror
	for _, t := range topics {
		rt := mirrormsg.NewStopMirrorTopicsRequestTopic()
		rt.TopicName = t
		req.Topics = append(req.Topics, rt)
	}
	resp, err := req.RequestWith(ctx, dst.cl)
	if err != nil {
		return nil, fmt.Errorf("stop: %w", dst.failed(err))
	}
	errs := []error{refused(resp.ErrorCode, resp.ErrorMessage)}
	for i := range resp.Topics {
		errs = append(errs, refusedTopic(&resp.Topics[i]))
	}
	return resp, errors.Join(errs...)
}

// Switched is the outcome of SwitchOver: times from the stop request on.
type Switched struct {
	Stop                time.Duration // until it was answered
	FirstAck, FirstRead time.Duration // of the slowest partition
	Partitions          int
}

// SwitchOver stops the topics of a mirror and waits until every partition took a
// write and gave it back. Nothing is written to the source.
func SwitchOver(ctx context.Context, destination, mirror string, topics []string) (*Switched, error) {
	dst, err := openTarget(destination)
	if err != nil {
		return nil, err
	}
	defer dst.close()
	var layouts []*layout
	for _, t := range topics {
		l, err := dst.layout(ctx, t)
		if err != nil {
			return nil, err
		}
		layouts = append(layouts, l)
	}
	probes, err := openProbes(layouts)
	if err != nil {
		return nil, err
	}
	defer closeProbes(probes)
	sw, err := stopAndProbe(ctx, dst, mirror, topics, probes)
	if err != nil {
		return nil, err
	}
	out := &Switched{Stop: sw.answered.Sub(sw.sent), Partitions: len(sw.probes)}
	var why []string
	for _, p := range sw.probes {
		if p.err != nil {
			why = append(why, fmt.Sprintf("%s-%d: %v", p.topic, p.partition, p.err))
			continue
		}
		out.FirstAck = max(out.FirstAck, p.firstAck.Sub(sw.sent))
		out.FirstRead = max(out.FirstRead, p.firstRead.Sub(sw.sent))
	}
	if len(why) > 0 {
		return nil, errors.New(strings.Join(why, "; "))
	}
	return out, nil
}
