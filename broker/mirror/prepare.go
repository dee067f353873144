package mirror

import (
	"context"

	"stet/broker/mirror/mirrorstate"
	"stet/broker/mirrormsg"
)

// prepare is PREPARING: the log becomes a prefix of the source's, and the partition is marked as aligned with this mirror.
func (d *driver) prepare(ctx context.Context) error {
	d.unassign()
	p, err := d.ledPartition(ctx, 0)
	if err != nil {
		return err
	}
	up := d.m.upstream(d.in.mirror)
	if up == nil {
		return errSuperseded
	}
	upstreams, err := up.upstreams(ctx, d.topic, d.id)
	if err != nil {
		return err
	}
	pl := planner{up: up, part: d.part, topic: d.topic, id: d.id, index: d.index, aligned: d.in.aligned, overwrite: d.in.overwrite, own: d.ownPair()}
	c, err := pl.plan(ctx, p)
	if err != nil {
		return err
	}
	if c.cuts() {
		if err := up.verify(ctx); err != nil {
			return err
		}
	}
	if c.restart >= 0 {
		d.lag.forgetCaughtUp() // it begins anew
	}
	if c.cuts() {
		// Before the cut: after it nobody would know what it was.
		if err := d.write(mirrorstate.Preparing, func(r *mirrormsg.PartitionState) { d.noteEvent(r, EventCut, c.from, c.to) }); err != nil {
			return err
		}
	}
	if err := d.cutLog(ctx, c, p.LeaderEpoch); err != nil {
		return err
	}
	if err := d.waitReplicas(ctx, c.allReplicas || d.m.o.SupportsULE(d.topic)); err != nil {
		return err
	}
	if err := d.align(ctx, p.LeaderEpoch); err != nil {
		return err
	}
	return d.settlePairs(up.clusterID(), upstreams)
}

// align marks the partition as aligned with this mirror and raises the leader epoch above the source's, in one change.
func (d *driver) align(ctx context.Context, sourceEpoch int32) error {
	d.fetching.seen = max(d.fetching.seen, sourceEpoch)
	b := bumpRequest{minEpoch: -1, barrierEnd: -1, aligned: d.in.mirrorID}
	if sourceEpoch > d.part.LeaderEpoch()-nearEpochs {
		b.minEpoch = sourceEpoch + epochMargin
	}
	if b.minEpoch < 0 && d.in.aligned {
		return nil
	}
	return d.bump(ctx, b)
}

// settlePairs removes the pairs of other sources, which are void now that this one's bytes follow, lowers our own to what
// is left of the log, and has the clusters upstream noted with the next state.
func (d *driver) settlePairs(cluster string, upstreams []string) error {
	d.upstreams = upstreams
	for other := range d.pairs {
		if other == cluster {
			continue
		}
		if err := d.writeWith(mirrorstate.Preparing, nil, nil, &other); err != nil {
			return err
		}
	}
	if l, changed := d.loweredPair(cluster); changed {
		return d.writeWith(mirrorstate.Preparing, nil, &l, nil)
	}
	return nil
}
