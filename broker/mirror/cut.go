package mirror

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	"stet/broker/mirrormsg"
	"stet/fetcher/source"
)

// cutPlan is what PREPARING has to do to a log.
type cutPlan struct {
	// from and to are the range that is cut; equal: nothing.
	from, to int64
	// restart, if not -1, empties the log, which then begins at this offset.
	restart int64
	// allReplicas says that all assigned replicas must have cut, not only the ISR.
	allReplicas bool
}

func (c cutPlan) cuts() bool { return c.from < c.to }

// planner is what a plan is made from. It changes nothing, so that a dry run can use it.
type planner struct {
	up        *upstream
	part      Partition
	topic     string
	id        [16]byte
	index     int32
	aligned   bool
	overwrite bool
	own       pair // for this source's cluster
}

// plan finds the common prefix (SPEC 4.7). p is the partition at the source.
func (pl *planner) plan(ctx context.Context, p source.Partition) (cutPlan, error) {
	start, end := pl.part.LogStartOffset(), pl.part.LogEndOffset()
	first, err := pl.up.offset(ctx, p, pl.topic, source.Earliest)
	if err != nil {
		return cutPlan{}, err
	}
	if start == end {
		if first == end {
			return cutPlan{from: end, to: end, restart: -1}, nil
		}
		return cutPlan{from: min(first, end), to: end, restart: first}, nil
	}
	if pl.aligned {
		// Only this source's bytes are here. Divergence and gaps are found by the fetch and follow SPEC 4.8 and 5.
		return cutPlan{from: end, to: end, restart: -1}, nil
	}
	best := pl.own
	theirs, err := pl.up.pairForUs(ctx, pl.topic, pl.id, pl.index)
	if err != nil {
		return cutPlan{}, err
	}
	if theirs.greater(best) {
		best = theirs
	}
	if !best.exists() {
		if !pl.overwrite {
			return cutPlan{}, operator(mirrormsg.Errorf(kerr.TopicAlreadyExists, "the topic has records here that are not the source's (offsets %d to %d), and neither cluster knows where they part; start it with --overwrite to replace them", start, end))
		}
		return cutPlan{from: start, to: end, restart: first, allReplicas: true}, nil
	}
	entries := pl.part.EpochEntries()
	common, err := walk(entries, start, end, func(epoch int32) (epochAnswer, error) { return pl.up.epochEnd(ctx, p, pl.topic, epoch) })
	if err != nil {
		return cutPlan{}, err
	}
	cut := localWritesCut(best, common, entries, end, first)
	switch {
	case cut >= end:
		return cutPlan{from: end, to: end, restart: -1}, nil
	case cut <= start, pl.part.NeedsFullCopy(cut):
		return cutPlan{from: start, to: end, restart: first}, nil
	}
	return cutPlan{from: cut, to: end, restart: -1}, nil
}

// cutLog carries out a plan that was persisted: the leader epoch is raised before any watermark moves, so that
// consumers check their positions (SPEC 4.7).
func (d *driver) cutLog(ctx context.Context, c cutPlan, sourceEpoch int32) error {
	if c.cuts() {
		epoch := max(d.part.LeaderEpoch()+1, sourceEpoch+epochMargin)
		if err := d.bump(ctx, bumpRequest{minEpoch: epoch, barrierEnd: -1}); err != nil {
			return err
		}
	}
	switch {
	case c.restart >= 0:
		if err := d.part.TruncateFullyAndStartAt(c.restart); err != nil {
			return fmt.Errorf("emptying the log to start at offset %d: %w", c.restart, err)
		}
	case c.cuts():
		if err := d.part.Truncate(c.from); err != nil {
			return fmt.Errorf("cutting the log at offset %d: %w", c.from, err)
		}
	default:
		return nil
	}
	if !c.cuts() {
		return nil
	}
	return d.clampGroups(ctx)
}

// clampGroups lowers group offsets above the log end.
func (d *driver) clampGroups(ctx context.Context) error {
	if err := d.m.o.Groups.ClampOffsets(ctx, d.topic, d.index, d.part.LogEndOffset()); err != nil {
		return fmt.Errorf("lowering group offsets to offset %d: %w", d.part.LogEndOffset(), err)
	}
	return nil
}

// waitReplicas waits until the replicas have what is left.
func (d *driver) waitReplicas(ctx context.Context, all bool) error {
	wait := d.part.WaitReplicated
	if all {
		wait = d.part.WaitAllReplicas
	}
	if err := wait(ctx, d.part.LogEndOffset()); err != nil {
		return fmt.Errorf("waiting for the replicas: %w", err)
	}
	return nil
}

// loweredPair returns the stored pair for a cluster as it is after a cut, and whether it has to be written (SPEC 4.6).
func (d *driver) loweredPair(cluster string) (mirrormsg.LastMirrorEpochs, bool) {
	l, ok := d.pairs[cluster]
	if !ok {
		return l, false
	}
	was := pair{l.LastMirrorEpoch, l.LastMirrorOffset}
	now := was.lowered(d.part.LatestEpoch(), d.part.LogEndOffset())
	l.LastMirrorEpoch, l.LastMirrorOffset = now.epoch, now.offset
	return l, now != was
}
