package loadgen

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"stet/broker/mirrormsg"
)

// stoppedNow asks the destination which topics a fail-over left stopped, and tells how to mirror them again.
func (f *failover) stoppedNow(ctx context.Context) string {
	ctx, cancel := lasting(ctx, restorePatience)
	defer cancel()
	m, err := f.settled(ctx)
	switch {
	case err != nil && f.sent == "":
		return "the topics were not stopped"
	case err != nil:
		return fmt.Sprintf("the topics may be stopped, the destination does not say it (%v); to see it: stet mirrors --bootstrap-server %s --describe --mirror %s; to mirror again: %s",
			err, f.o.Destination, f.o.Mirror, f.mirrorsCommand("--start", f.topics))
	}
	states := map[string]int{} // partitions that are neither stopped nor being stopped
	var stopped, others []string
	being := false
	for _, t := range m.Topics {
		if !slices.Contains(f.topics, t.TopicName) {
			continue
		}
		stops := len(t.Partitions) > 0
		for _, p := range t.Partitions {
			being = being || p.State == "STOPPING"
			if p.State != "STOPPED" && p.State != "STOPPING" {
				stops = false
				states[p.State]++
			}
		}
		if stops {
			stopped = append(stopped, t.TopicName)
		} else {
			others = append(others, t.TopicName)
		}
	}
	word := "stopped now"
	if being {
		word = "being stopped"
	}
	var counts []string
	for state, n := range states {
		counts = append(counts, fmt.Sprintf("%d %s", n, state))
	}
	slices.Sort(counts)
	going := strings.Join(counts, ", ")
	switch {
	case len(stopped)+len(others) == 0:
		return fmt.Sprintf("mirror %s has none of the topics any more", f.o.Mirror)
	case len(stopped) == 0:
		return fmt.Sprintf("the topics are not stopped; their partitions: %s", going)
	case len(others) == 0:
		return fmt.Sprintf("the topics are %s; to mirror again: %s", word, f.mirrorsCommand("--start", f.topics))
	}
	slices.Sort(stopped)
	slices.Sort(others)
	return fmt.Sprintf("%s: %s; not stopped: %s (partitions: %s); to mirror again: %s", word, some(stopped), some(others), going, f.mirrorsCommand("--start", stopped))
}

// The last request that moves the topics.
const (
	sentStop  = "stop"
	sentStart = "start"
)

// moveSeen is how long a stop or start that was sent may take to show in the states of the partitions.
const moveSeen = 3 * time.Second

// settled describes the mirror, after what was sent last is seen.
func (f *failover) settled(ctx context.Context) (*mirrormsg.DescribeMirrorsResponseMirror, error) {
	for start := time.Now(); ; {
		m, err := describeMirror(ctx, f.dst, f.o.Mirror)
		if err != nil || f.sent == "" || time.Since(start) > moveSeen {
			return m, err
		}
		seen := true
		for _, t := range m.Topics {
			for _, p := range t.Partitions {
				if slices.Contains(f.topics, t.TopicName) && (p.State == "STOPPED") != (f.sent == sentStop) {
					seen = false
				}
			}
		}
		if seen {
			return m, nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return m, nil
		}
	}
}
