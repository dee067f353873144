package mirror

import (
	"context"
	"errors"
	"fmt"
	"time"

	"stet/broker/mirror/mirrorstate"
	"stet/broker/mirrormsg"
	"stet/fetcher"
	"stet/fetcher/source"
)

// Pauses between assignments that lead nowhere (a leader that is none, metadata that lag behind).
const (
	firstReassign = 50 * time.Millisecond
	maxReassign   = time.Second
)

// sourcePartition describes the partition at the source, with metadata not older than maxAge, and checks that the topic is
// the one that is mirrored.
func (d *driver) sourcePartition(ctx context.Context, maxAge time.Duration) (source.Partition, error) {
	up := d.m.upstream(d.in.mirror)
	if up == nil {
		return source.Partition{}, errSuperseded
	}
	if err := up.check(ctx); err != nil {
		return source.Partition{}, err
	}
	t, err := up.describe(ctx, d.topic, maxAge)
	if err != nil {
		return source.Partition{}, err
	}
	if err := up.checkTopic(t, d.topic, d.id); err != nil {
		return source.Partition{}, err
	}
	for _, p := range t.Partitions {
		if p.Index == d.index {
			d.fetching.seen = max(d.fetching.seen, p.LeaderEpoch)
			d.fetching.id = fetcher.ID{TopicID: t.ID, Topic: d.topic, Partition: d.index}
			return p, nil
		}
	}
	return source.Partition{}, operator(fmt.Errorf("the source's topic has %d partitions; partition %d is only here", len(t.Partitions), d.index))
}

// ledPartition is sourcePartition that waits until the partition has a leader there.
func (d *driver) ledPartition(ctx context.Context, maxAge time.Duration) (source.Partition, error) {
	for n := 0; ; n++ {
		p, err := d.sourcePartition(ctx, maxAge)
		if err != nil || p.Leader >= 0 {
			return p, err
		}
		if err := sleep(ctx, reassignPause(n)); err != nil {
			return p, err
		}
		maxAge = 0
	}
}

func reassignPause(n int) time.Duration {
	return backoff(Settings{RetryInitial: firstReassign, RetryMax: maxReassign}, n)
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return errSuperseded
	case <-t.C:
		return nil
	}
}

// assign is MIRRORING's side effect: the partition is fetched from its leader at the source.
func (d *driver) assign(ctx context.Context) error {
	d.unassign()
	d.events = mailbox{}
	age := time.Minute
	if n := d.fetching.tries; n > 0 {
		age = 0
		if n > 1 {
			if err := sleep(ctx, reassignPause(n-1)); err != nil {
				return err
			}
		}
	}
	p, err := d.ledPartition(ctx, age)
	if err != nil {
		return err
	}
	if err := d.raiseAbove(ctx, p.LeaderEpoch); err != nil {
		return err
	}
	return d.fetchFrom(p.Leader, p.LeaderEpoch)
}

// fetchFrom hands the partition to a fetcher.
func (d *driver) fetchFrom(broker, epoch int32) error {
	f := &d.fetching
	f.tries++
	f.on, f.mirror, f.broker, f.epoch = true, d.in.mirror, broker, epoch
	f.token = d.m.tokens.Add(1)
	d.m.route(f.token, d)
	err := d.m.fetchers.Add(f.mirror, fetcher.Assignment{ID: f.id, Broker: broker, LeaderEpoch: epoch, Token: f.token, Sink: d.sink()})
	if err != nil {
		d.unassign()
		return fmt.Errorf("%w: %w", errSuperseded, err)
	}
	return nil
}

func (d *driver) sink() *sink {
	s := &sink{d: d, part: d.part, token: d.fetching.token}
	if retention, compacted := d.m.o.Compaction(d.topic); compacted {
		s.unseen = &unseen{lag: d.lag, now: d.m.o.Clock.Now, keep: true, retention: func() time.Duration {
			retention, _ := d.m.o.Compaction(d.topic)
			return retention
		}}
		s.unseen.known.Store(int64(retention))
		if d.rec != nil && d.rec.CaughtUpMs >= 0 {
			s.unseen.keep, s.unseen.kept = false, time.UnixMilli(d.rec.CaughtUpMs)
		}
	}
	d.unseen.Store(s.unseen)
	return s
}

// unassign ends the fetching; nothing is appended once it has returned.
func (d *driver) unassign() {
	f := &d.fetching
	if !f.on {
		return
	}
	f.on = false
	d.m.fetchers.Remove(f.mirror, f.id)
	d.m.unroute(f.token)
}

// handleEvents looks at what came while the partition was MIRRORING. What leads to another state ends the list.
func (d *driver) handleEvents(ctx context.Context) error {
	events := d.events
	d.events = mailbox{}
	for i := range events.fetch {
		e := &events.fetch[i]
		if e.Token != d.fetching.token || !d.fetching.on {
			continue
		}
		done, err := d.handleFetch(ctx, e)
		if done || err != nil {
			return err
		}
	}
	if events.keep && d.fetching.on {
		if err := d.write(mirrorstate.Mirroring, nil); err != nil {
			return err
		}
	}
	if events.unendedBy == d.fetching.token && d.fetching.on {
		d.unassign()
		return d.suspected(ctx, events.unended)
	}
	if events.down != nil && d.fetching.on && d.fetching.broker == events.downAt {
		return unreachable(events.downAt, events.down)
	}
	if events.refreshed {
		return d.afterRefresh(ctx)
	}
	return nil
}

// handleFetch reports done when the state has changed or the partition was assigned anew.
func (d *driver) handleFetch(ctx context.Context, e *fetcher.Event) (done bool, err error) {
	switch e.Kind {
	case fetcher.EventFetched:
		d.fetching.tries, d.patience = 0, 0
		if d.rec.RetryAttempt != 0 {
			return false, d.write(mirrorstate.Mirroring, func(r *mirrormsg.PartitionState) { r.RetryAttempt = 0 })
		}
		return false, nil
	case fetcher.EventEpochNear:
		return false, d.raiseAbove(ctx, e.Epoch)
	case fetcher.EventEpochAhead:
		d.fetching.minEpoch = max(d.fetching.minEpoch, e.Epoch)
		return true, d.transition(mirrorstate.EpochFencing)
	case fetcher.EventDiverging:
		d.unassign()
		return true, d.diverged(ctx, epochAnswer{e.Epoch, e.Offset})
	case fetcher.EventOutOfRange:
		d.unassign()
		return true, d.outOfRange(ctx)
	case fetcher.EventLeader:
		return true, d.leaderMoved(ctx, e)
	case fetcher.EventTopic:
		// Deleted, made anew, or metadata that has not come to that broker yet: the description tells.
		return true, d.assign(ctx)
	case fetcher.EventUnauthorized:
		return true, patient(e.Err)
	case fetcher.EventAppend:
		var missed *missedError
		if errors.As(e.Err, &missed) {
			d.unassign()
			return true, d.fullCopy(missed.what)
		}
	case fetcher.EventRetry:
		d.log.Debug("fetch is tried again", "mirror", d.in.mirror, "err", e.Err)
		return false, nil
	}
	return true, counted(e.Err)
}

// leaderMoved follows the source's leader: at once where the response named it, else by its metadata.
func (d *driver) leaderMoved(ctx context.Context, e *fetcher.Event) error {
	f := &d.fetching
	if e.Leader < 0 || e.Epoch < f.epoch || e.Leader == f.broker && e.Epoch == f.epoch {
		return d.assign(ctx)
	}
	if up := d.m.upstream(d.in.mirror); up != nil {
		up.learn(e.Leader, e.Host, e.Port)
	}
	d.unassign()
	if err := d.raiseAbove(ctx, e.Epoch); err != nil {
		return err
	}
	return d.fetchFrom(e.Leader, e.Epoch)
}

// afterRefresh compares the assignment with the source's present metadata.
func (d *driver) afterRefresh(ctx context.Context) error {
	p, err := d.sourcePartition(ctx, time.Minute)
	if err != nil {
		var f *failure
		if errors.As(err, &f) && !f.final() {
			return nil // the fetcher sees for itself whether the source is there
		}
		return err
	}
	if err := d.raiseAbove(ctx, p.LeaderEpoch); err != nil {
		return err
	}
	if p.Leader >= 0 && p.LeaderEpoch >= d.fetching.epoch && (p.Leader != d.fetching.broker || p.LeaderEpoch != d.fetching.epoch) {
		return d.assign(ctx)
	}
	return nil
}
