package mirror

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"stet/broker/mirror/mirrorstate"
	"stet/broker/mirrormsg"
)

// Kinds of events in a stored state (SPEC section 10).
const (
	EventGap int8 = 1 // records that the source had deleted before they were copied
	EventCut int8 = 2 // records that were cut because the source does not have them
	// EventFullCopy: records that were copied again, because compaction at the source may have removed what ends some of them
	EventFullCopy int8 = 3
)

// keptEvents is how many events and cuts a stored state keeps.
const keptEvents = 16

// read asks the coordinator for the stored state and the pairs. It tries until the context ends.
func (d *driver) read(ctx context.Context) error {
	img := d.m.o.Image()
	req := mirrormsg.NewPtrReadMirrorStatesRequest()
	req.MirrorName, req.MirrorID = d.in.mirror, d.in.mirrorID
	t := mirrormsg.NewReadMirrorStatesRequestTopic()
	t.Name, t.TopicID = d.topic, d.id
	p := mirrormsg.NewReadMirrorStatesRequestTopicPartition()
	p.PartitionIndex = d.index
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	if img.Mirror(d.in.mirror) == nil {
		return fmt.Errorf("mirror %q: %w", d.in.mirror, mirrormsg.UnknownMirror)
	}
	for n := 0; ; n++ {
		state, pairs, err := d.readOnce(ctx, req)
		if err == nil {
			if d.readFor != d.in.mirrorID { // what another mirror has seen is of no matter to this one
				d.lag.forgetCaughtUp()
			}
			d.readFor, d.known, d.ran = d.in.mirrorID, true, false
			d.rec, d.pairs = state, pairs
			if state != nil && state.Incarnation != d.incarnation { // of a topic that was deleted: absent (rule e)
				d.rec = nil
			}
			for c, pr := range pairs {
				if pr.Incarnation != d.incarnation {
					delete(pairs, c)
				}
			}
			d.loaded()
			d.setStuck(stuck{})
			return nil
		}
		if n == stuckAfter {
			d.setStuck(stuck{fmt.Errorf("its state cannot be read from %s: %w", mirrormsg.MirrorStateTopic, err), false})
		}
		if err := sleepBackoff(ctx, n, err); err != nil {
			return err
		}
	}
}

// loaded sets what follows from a state that was just read.
func (d *driver) loaded() {
	s := d.state()
	if s != mirrorstate.Stopped && s != mirrorstate.Unknown {
		d.setGate(Gate{Kind: GateReadOnly, Mirror: d.in.mirror})
	}
	// After a restart nobody knows why it failed; one that is not for an operator is simply tried again.
	if d.rec != nil && d.rec.CaughtUpMs >= 0 {
		d.lag.wasCaughtUp(time.UnixMilli(d.rec.CaughtUpMs))
	}
	d.retryDue = s == mirrorstate.Failed && d.rec.RetryAttempt >= 0
	d.failed = nil
}

func (d *driver) readOnce(ctx context.Context, req *mirrormsg.ReadMirrorStatesRequest) (*mirrormsg.PartitionState, map[string]mirrormsg.LastMirrorEpochs, error) {
	resp, err := d.m.o.Coordinator.ReadMirrorStates(ctx, req)
	if err != nil {
		return nil, nil, err
	}
	if err := mirrormsg.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, nil, err
	}
	for _, t := range resp.Topics {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			if t.Name != d.topic || p.PartitionIndex != d.index {
				continue
			}
			if err := mirrormsg.ErrorForCode(p.ErrorCode); err != nil {
				return nil, nil, err
			}
			pairs := map[string]mirrormsg.LastMirrorEpochs{}
			for _, l := range p.LastMirrors {
				pairs[l.SourceClusterID] = l
			}
			return p.State, pairs, nil
		}
	}
	return nil, nil, errors.New("the mirror coordinator's answer does not mention the partition")
}

// transition writes the next state with what goes with it.
func (d *driver) transition(to mirrorstate.State) error {
	from := d.state()
	err := d.write(to, func(r *mirrormsg.PartitionState) {
		switch {
		case to == mirrorstate.Preparing && (from == mirrorstate.Unknown || from == mirrorstate.Stopped || from == mirrorstate.Failed && d.in.start > r.StartOffset):
			r.StartOffset, r.RetryAttempt, r.StopID = d.in.start, 0, [16]byte{}
			d.patience = 0
		case from == mirrorstate.Failed && to == mirrorstate.State(r.PreviousState):
			if d.failed != nil && d.failed.kind == failCounted {
				r.RetryAttempt++
			}
			r.RetryAttempt = max(r.RetryAttempt, 0) // the operator has corrected what was wrong
			d.stats.retries.Add(1)
		case from == mirrorstate.Paused:
			r.RetryAttempt = max(r.RetryAttempt, 0) // the operator has looked at it
		}
		if again := from == mirrorstate.Failed && mirrorstate.State(r.PreviousState) == mirrorstate.Stopping; to == mirrorstate.Stopping && !again {
			r.StopID = mirrormsg.RandomUUID() // a stop that failed is the same stop when it is tried again
			r.RetryAttempt = 0                // what failed before is of no matter to it
		}
		if from == mirrorstate.Preparing && to == mirrorstate.Mirroring {
			r.UpstreamClusterIDs = d.upstreams
		}
		if to.Running() {
			r.StartOffset = max(r.StartOffset, d.in.start)
		}
		if to != mirrorstate.Failed {
			r.ErrorMessage = nil
		}
	})
	if err != nil {
		return err
	}
	d.ran, d.retryDue, d.failed, d.events = false, false, nil, mailbox{}
	if to != mirrorstate.Stopped {
		d.setGate(Gate{Kind: GateReadOnly, Mirror: d.in.mirror})
	}
	level := slog.LevelDebug // of the states on the way
	if to == mirrorstate.Mirroring || to == mirrorstate.Paused {
		level = slog.LevelInfo
	}
	d.log.Log(d.ctx, level, "mirror partition", "mirror", d.in.mirror, "from", from.String(), "state", to.String(), "offset", d.part.LogEndOffset())
	return nil
}

// write persists the state that change makes of the stored one.
func (d *driver) write(to mirrorstate.State, change func(*mirrormsg.PartitionState)) error {
	return d.writeWith(to, change, nil, nil)
}

// writeWith is write together with a pair, or the removal of one. It tries until the driver ends: whether an
// interrupted write has happened would be unknown.
func (d *driver) writeWith(to mirrorstate.State, change func(*mirrormsg.PartitionState), last *mirrormsg.LastMirrorEpochs, remove *string) error {
	from := d.state()
	next := mirrormsg.NewPartitionState()
	stored := int32(-1)
	if d.rec != nil {
		next = *d.rec
		next.Cuts, next.Events = slices.Clone(next.Cuts), slices.Clone(next.Events)
		stored = d.rec.StateEpoch
	}
	previous := mirrorstate.State(next.PreviousState)
	if !mirrorstate.AllowedIn(from, to, mirrorstate.Context{Previous: previous, LogEmpty: d.part.LogStartOffset() == d.part.LogEndOffset(), NewStart: d.in.start > next.StartOffset}) {
		panic(fmt.Sprintf("BUG: mirror partition %s-%d goes from %v (previous %v) to %v", d.topic, d.index, from, previous, to))
	}
	if change != nil {
		change(&next)
	}
	next.MirrorName, next.TopicName, next.Incarnation = d.in.mirror, d.topic, d.incarnation
	next.State, next.PreviousState = int8(to), int8(mirrorstate.PreviousFor(from, to, previous))
	next.LeaderEpoch, next.StateEpoch = d.part.LeaderEpoch(), stored
	next.CaughtUpMs = -1
	if caught := d.lag.caughtUp(); !caught.IsZero() {
		next.CaughtUpMs = caught.UnixMilli()
	}
	req := mirrormsg.NewPtrWriteMirrorStatesRequest()
	req.MirrorName, req.MirrorID = d.in.mirror, d.in.mirrorID
	t := mirrormsg.NewWriteMirrorStatesRequestTopic()
	t.Name, t.TopicID = d.topic, d.id
	p := mirrormsg.NewWriteMirrorStatesRequestTopicPartition()
	p.PartitionIndex, p.State, p.LastMirror, p.RemoveLastMirror = d.index, &next, last, remove
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	for n := 0; ; n++ {
		epoch, err := d.writeOnce(req)
		switch {
		case err == nil:
			d.setStuck(stuck{})
			next.StateEpoch = epoch
			d.rec = &next
			if last != nil {
				d.pairs[last.SourceClusterID] = *last
			}
			if remove != nil {
				delete(d.pairs, *remove)
			}
			return nil
		case errors.Is(err, kerr.FencedLeaderEpoch), errors.Is(err, kerr.FencedStateEpoch), errors.Is(err, kerr.UnknownTopicID), errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, mirrormsg.UnknownMirror):
			// Somebody else wrote, or an earlier try of ours did; or topic or mirror are gone.
			if err := sleepBackoff(d.ctx, n, err); err != nil {
				return err
			}
			return errReread
		}
		if n == 0 {
			d.log.Warn("mirror state cannot be written yet", "mirror", d.in.mirror, "state", to.String(), "err", err)
		}
		if n == stuckAfter {
			d.setStuck(cannotStore(to, &next, err))
		}
		if err := sleepBackoff(d.ctx, n, err); err != nil {
			return err
		}
	}
}

func (d *driver) writeOnce(req *mirrormsg.WriteMirrorStatesRequest) (int32, error) {
	resp, err := d.m.o.Coordinator.WriteMirrorStates(d.ctx, req)
	if err != nil {
		return 0, err
	}
	if err := mirrormsg.ErrorForCode(resp.ErrorCode); err != nil {
		return 0, err
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if t.Name == d.topic && p.PartitionIndex == d.index {
				return p.StateEpoch, mirrormsg.ErrorForCode(p.ErrorCode)
			}
		}
	}
	return 0, errors.New("the mirror coordinator's answer does not mention the partition")
}

// sleepBackoff waits before try n+1; the error is errSuperseded when the context ends.
func sleepBackoff(ctx context.Context, n int, _ error) error {
	t := time.NewTimer(backoff(Settings{RetryInitial: 20 * time.Millisecond, RetryMax: time.Second}, n))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return errSuperseded
	case <-t.C:
		return nil
	}
}

// noteEvent adds an event, and for a cut also where it was, to a state that is about to be written. The same one is not
// added again when a step is run again after a crash.
func (d *driver) noteEvent(r *mirrormsg.PartitionState, kind int8, from, to int64) {
	if n := len(r.Events); n > 0 && r.Events[n-1].Kind == kind && r.Events[n-1].FromOffset == from && r.Events[n-1].ToOffset == to {
		return
	}
	e := mirrormsg.NewPartitionStateEvent()
	e.Kind, e.FromOffset, e.ToOffset, e.TimeMs = kind, from, to, d.m.o.Clock.Now().UnixMilli()
	r.Events = append(r.Events, e)
	r.Events = r.Events[max(0, len(r.Events)-keptEvents):]
	if kind == EventCut {
		c := mirrormsg.NewPartitionStateCut()
		c.Offset, c.LeaderEpoch = from, d.part.LeaderEpoch()+1
		r.Cuts = append(r.Cuts, c)
		r.Cuts = r.Cuts[max(0, len(r.Cuts)-keptEvents):]
		d.stats.cutRecords.Add(to - from)
	}
	if kind == EventGap {
		d.stats.gapRecords.Add(to - from)
	}
	d.log.Warn("mirror partition: "+map[int8]string{EventGap: "records are missing that the source had deleted before they were copied", EventCut: "records are cut that the source does not have", EventFullCopy: "records are copied again"}[kind],
		"mirror", d.in.mirror, "from", from, "to", to)
}

// ownPair is the stored pair for this mirror's source.
func (d *driver) ownPair() pair {
	up := d.m.upstream(d.in.mirror)
	if up == nil {
		return noPair
	}
	l, ok := d.pairs[up.clusterID()]
	if !ok {
		return noPair
	}
	return pair{l.LastMirrorEpoch, l.LastMirrorOffset}
}

// storedBarrierEnd is where the barrier of the stored stop ends, -1 if that is not stored.
func (d *driver) storedBarrierEnd() int64 {
	for _, l := range d.pairs {
		if l.StopID == d.rec.StopID {
			return l.BarrierEnd
		}
	}
	return -1
}
