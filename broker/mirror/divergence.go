package mirror

import (
	"context"
	"fmt"

	"stet/broker/mirror/mirrorstate"
	"stet/broker/mirrormsg"
	"stet/fetcher/source"
)

// diverged follows an unclean election at the source, or refuses to (SPEC 4.8).
func (d *driver) diverged(ctx context.Context, a epochAnswer) error {
	start, end := d.part.LogStartOffset(), d.part.LogEndOffset()
	if start == end {
		// An empty copy: only cached epochs without records contradict, and go.
		if err := d.part.TruncateFullyAndStartAt(end); err != nil {
			return fmt.Errorf("dropping the epochs of an empty log: %w", err)
		}
		return d.transition(mirrorstate.Preparing)
	}
	cut := max(divergenceCut(d.part.EpochEntries(), end, a), start)
	if cut >= end {
		return counted(fmt.Errorf("the source ends epoch %d at offset %d, which is no contradiction to the log here, which ends at %d", a.epoch, a.end, end))
	}
	published, err := d.publishedCut(ctx)
	if err != nil {
		return err
	}
	if followed := published >= 0 && published <= cut; !followed && !d.m.o.SupportsULE(d.topic) {
		return operator(fmt.Errorf("the source's log is not the one that was copied: it ends epoch %d at offset %d, the copy is at %d (an unclean leader election, or a restored backup?); mirror.support.unclean.leader.election is off, so offsets %d to %d are kept and nothing is copied", a.epoch, a.end, end, cut, end))
	}
	return d.follow(cut, end)
}

// follow persists a cut that ULE_RECOVERY then makes.
func (d *driver) follow(cut, end int64) error {
	return d.followWith(cut, end, func(*mirrormsg.PartitionState) {})
}

// followWith is follow that stores something else, too.
func (d *driver) followWith(cut, end int64, note func(*mirrormsg.PartitionState)) error {
	if cut <= d.part.LogStartOffset() || d.part.NeedsFullCopy(cut) {
		d.lag.forgetCaughtUp() // it begins anew
	}
	err := d.write(mirrorstate.ULERecovery, func(r *mirrormsg.PartitionState) {
		note(r)
		d.noteEvent(r, EventCut, cut, end)
	})
	if err != nil {
		return err
	}
	d.ran, d.events = false, mailbox{}
	return nil
}

// publishedCut is the lowest cut that a source which is a mirror itself has made since the newest record of the copy, -1
// for none.
func (d *driver) publishedCut(ctx context.Context) (int64, error) {
	up := d.m.upstream(d.in.mirror)
	if up == nil {
		return -1, errSuperseded
	}
	return up.publishedCut(ctx, d.topic, d.id, d.index, d.part.LatestEpoch())
}

// recover is ULE_RECOVERY: the cut that was persisted is made, and all replicas make it.
func (d *driver) recover(ctx context.Context) error {
	d.unassign()
	p, err := d.ledPartition(ctx, 0)
	if err != nil {
		return err
	}
	cut := int64(-1)
	for _, e := range d.rec.Events { // the newest
		if e.Kind == EventCut {
			cut = e.FromOffset
		}
	}
	if end := d.part.LogEndOffset(); cut >= 0 && cut < end {
		c := cutPlan{from: cut, to: end, restart: -1}
		up := d.m.upstream(d.in.mirror)
		if up == nil {
			return errSuperseded
		}
		if err := up.verify(ctx); err != nil {
			return err
		}
		if cut <= d.part.LogStartOffset() || d.part.NeedsFullCopy(cut) {
			c.from = min(cut, d.part.LogStartOffset())
			if c.restart, err = up.offset(ctx, p, d.topic, source.Earliest); err != nil {
				return err
			}
		}
		if err := d.cutLog(ctx, c, p.LeaderEpoch); err != nil {
			return err
		}
	}
	if err := d.waitReplicas(ctx, true); err != nil {
		return err
	}
	for cluster := range d.pairs {
		if l, changed := d.loweredPair(cluster); changed {
			if err := d.writeWith(mirrorstate.ULERecovery, nil, &l, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// outOfRange finds out why the source does not have our position: its retention has outrun us, or it is not the log
// that was copied (SPEC section 5).
func (d *driver) outOfRange(ctx context.Context) error {
	p, err := d.ledPartition(ctx, 0)
	if err != nil {
		return err
	}
	up := d.m.upstream(d.in.mirror)
	if up == nil {
		return errSuperseded
	}
	first, err := up.offset(ctx, p, d.topic, source.Earliest)
	if err != nil {
		return err
	}
	last, err := up.offset(ctx, p, d.topic, source.Latest)
	if err != nil {
		return err
	}
	start, end := d.part.LogStartOffset(), d.part.LogEndOffset()
	switch {
	case start == end:
		return d.transition(mirrorstate.Preparing)
	case end < first:
		return d.gap(ctx, first)
	}
	if first == last && end == first {
		return patient(fmt.Errorf("the source's log is empty from offset %d on and knows no epoch of the copy; it goes on with the source's first record", first))
	}
	// Inside the source's log, or above it: not the log that we copied.
	entries := d.part.EpochEntries()
	for i := len(entries) - 1; i >= 0; i-- {
		a, err := up.epochEnd(ctx, p, d.topic, entries[i].Epoch)
		if err != nil {
			return err
		}
		if a.epoch < 0 || a.end < 0 {
			continue
		}
		if i == len(entries)-1 && a.epoch == entries[i].Epoch && a.end >= end {
			// It knows the epoch and our position now: a leader that was just elected answered before it knew its high watermark.
			return d.assign(ctx)
		}
		return d.diverged(ctx, a)
	}
	if published, err := d.publishedCut(ctx); err != nil {
		return err
	} else if published >= 0 && published < end { // the source, a mirror itself, was cut to below all that it had
		return d.follow(max(published, start), end)
	}
	return operator(fmt.Errorf("the source knows no epoch of the copy, which holds offsets %d to %d; the source holds %d to %d: it is not the log that was copied (restored from a backup?)", start, end, first, last))
}

// gap goes on at the source's log start and leaves a record of what is missing, or fails, by mirror.on.gap.
func (d *driver) gap(ctx context.Context, first int64) error {
	end := d.part.LogEndOffset()
	up := d.m.upstream(d.in.mirror)
	if up == nil {
		return errSuperseded
	}
	if up.failOnGap() {
		return operator(fmt.Errorf("the source has deleted offsets %d to %d before they were copied, and mirror.on.gap is fail", end, first))
	}
	if err := up.verify(ctx); err != nil {
		return err
	}
	d.lag.forgetCaughtUp() // it begins anew
	if err := d.write(mirrorstate.Mirroring, func(r *mirrormsg.PartitionState) { d.noteEvent(r, EventGap, end, first) }); err != nil {
		return err
	}
	if err := d.part.TruncateFullyAndStartAt(first); err != nil {
		return fmt.Errorf("emptying the log to start at offset %d: %w", first, err)
	}
	if err := d.waitReplicas(ctx, false); err != nil {
		return err
	}
	return d.assign(ctx)
}
