package mirror

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"

	"stet/broker/meta"
	"stet/broker/mirror/mirrorstate"
	"stet/broker/mirrormsg"
	"stet/zerocopy/batch"
)

// BarrierStep numbers the steps of the stop barrier as SPEC section 7 does.
type BarrierStep int8

// Steps of the stop barrier.
const (
	BarrierRemoveFetcher BarrierStep = iota + 1
	BarrierKeepPair
	BarrierRaiseEpoch
	BarrierAbort
	BarrierReset
	BarrierFinish
)

// The jump of the leader epoch at a stop: far beyond what elections of an abandoned side reach, and random, so that two
// copies that are stopped at the same point differ (SPEC section 7, step 3).
const epochJump = 65536

// StopReport is what a stop tells about a partition.
type StopReport struct {
	StopID           [16]byte
	LastMirrorOffset int64 // -1: nothing was ever copied
	SourceOffset     int64 // the source's end last seen, -1 if unknown
	SightAge         time.Duration
	Markers          int32
	Duration         time.Duration
}

// stopStep gives tests the moment between two steps.
func (d *driver) stopStep(s BarrierStep) error {
	if d.m.o.StopStep == nil {
		return nil
	}
	return d.m.o.StopStep(d.topic, d.index, s)
}

// barrier is STOPPING: steps 1 to 6 of SPEC section 7. Every step may be run again.
func (d *driver) barrier(ctx context.Context) error {
	began := d.m.o.Clock.Now()
	if err := d.stopStep(BarrierRemoveFetcher); err != nil {
		return err
	}
	report := StopReport{StopID: d.rec.StopID, LastMirrorOffset: -1, SourceOffset: -1, SightAge: -1}
	if seen := d.lag.now(d.part.LogEndOffset(), began); seen.sourceEnd >= 0 {
		report.SourceOffset, report.SightAge = seen.sourceEnd, sinceOrNever(began, d.m.covered(d, seen))
	}
	d.toBump.come()
	d.unassign()
	d.lag.pause()
	if err := d.stopStep(BarrierKeepPair); err != nil {
		return err
	}
	last, err := d.keepPair(ctx)
	if err != nil {
		return err
	}
	report.LastMirrorOffset = last.LastMirrorOffset
	if err := d.stopStep(BarrierRaiseEpoch); err != nil {
		return err
	}
	if d.part.LeaderEpoch() < last.BarrierEpoch {
		if err := d.bump(ctx, bumpRequest{minEpoch: last.BarrierEpoch, barrierEnd: -1}); err != nil {
			return err
		}
	}
	d.toBump.leave()
	d.toReport.come()
	if report.Markers, err = d.seal(ctx, last.SourceClusterID, last.BarrierEpoch); err != nil {
		return err
	}
	if err := d.stopStep(BarrierFinish); err != nil {
		return err
	}
	if err := d.finish(ctx); err != nil {
		return err
	}
	last.BarrierEnd = d.part.LogEndOffset()
	if err := d.writeWith(mirrorstate.Stopped, func(r *mirrormsg.PartitionState) { r.ErrorMessage, r.RetryAttempt = nil, 0 }, &last, nil); err != nil {
		return err
	}
	d.ran, d.events = false, mailbox{}
	d.setGate(Gate{Kind: GateOpen})
	report.Duration = d.m.o.Clock.Now().Sub(began)
	d.mu.Lock()
	d.view.report = &report
	d.mu.Unlock()
	if d.m.o.OnStop != nil {
		d.m.o.OnStop(d.in.mirror, report.Duration)
	}
	d.log.Info("mirroring is stopped", "mirror", d.in.mirror, "offset", last.BarrierEnd, "lastMirrorOffset", last.LastMirrorOffset, "epoch", last.BarrierEpoch, "markers", report.Markers)
	return nil
}

// keepPair is step 2: once everything is replicated, the pair and the barrier epoch are drawn and persisted, once per stop. A run
// with the same stop id uses what was persisted.
func (d *driver) keepPair(ctx context.Context) (mirrormsg.LastMirrorEpochs, error) {
	if err := d.waitReplicas(ctx, false); err != nil {
		return mirrormsg.LastMirrorEpochs{}, err
	}
	cluster := ""
	if up := d.m.upstream(d.in.mirror); up != nil {
		cluster = up.clusterID()
	}
	for _, l := range d.pairs {
		if l.StopID == d.rec.StopID {
			return d.keptPair(l)
		}
	}
	last, had := d.pairs[cluster]
	if !had {
		last = mirrormsg.NewLastMirrorEpochs()
	}
	last.MirrorName, last.TopicName, last.SourceClusterID, last.Incarnation, last.StopID = d.in.mirror, d.topic, cluster, d.incarnation, d.rec.StopID
	latest := d.part.LatestEpoch()
	if d.in.aligned {
		// The log holds this source's records alone.
		last.LastMirrorEpoch, last.LastMirrorOffset = latest, d.part.LogEndOffset()
	} // else PREPARING has not ended: an older pair still says where local writes begin
	base := max(last.LastMirrorEpoch, latest, d.fetching.seen, d.part.LeaderEpoch())
	last.BarrierEpoch = base + epochJump + rand.Int32N(epochJump)
	last.BarrierEnd = -1
	err := d.writeWith(mirrorstate.Stopping, nil, &last, nil)
	return last, err
}

// keptPair is the pair of this stop that an earlier run persisted. It is on disk before the bytes it vouches for are (those are synced
// once, by finish): a log that has lost some of them since lowers it, before the barrier's own batches take their offsets.
func (d *driver) keptPair(l mirrormsg.LastMirrorEpochs) (mirrormsg.LastMirrorEpochs, error) {
	latest, end := int32(-1), d.part.LogEndOffset()
	for _, e := range d.part.EpochEntries() {
		if e.Epoch >= l.BarrierEpoch {
			end = e.Start // from here on it is the barrier's
			break
		}
		latest = e.Epoch
	}
	was := pair{l.LastMirrorEpoch, l.LastMirrorOffset}
	now := was.lowered(latest, end)
	if now == was {
		return l, nil
	}
	d.log.Warn("the log has lost its end since the stop began; the pair of the last mirror epoch is lowered", "mirror", d.in.mirror, "lastMirrorOffset", was.offset, "offset", end)
	l.LastMirrorEpoch, l.LastMirrorOffset = now.epoch, now.offset
	return l, d.writeWith(mirrorstate.Stopping, nil, &l, nil)
}

// seal is steps 4 and 5: markers for the transactions that are open, and the record that frees all producer ids.
func (d *driver) seal(ctx context.Context, cluster string, epoch int32) (markers int32, err error) {
	if err := d.stopStep(BarrierAbort); err != nil {
		return 0, err
	}
	now := d.m.o.Clock.Now().UnixMilli()
	var out []byte
	for _, tx := range d.part.OpenTransactions() {
		h := batch.Header{PartitionLeaderEpoch: d.part.LeaderEpoch(), Timestamp: now, ProducerID: tx.ProducerID, ProducerEpoch: tx.ProducerEpoch}
		out = batch.BuildEndTxn(out[:0], h, false, max(tx.CoordinatorEpoch, 0))
		if err := d.part.AppendControl(out); err != nil {
			return markers, fmt.Errorf("writing the ABORT marker of producer %d: %w", tx.ProducerID, err)
		}
		markers++
	}
	if markers > 0 {
		if err := d.waitReplicas(ctx, false); err != nil {
			return markers, err
		}
	}
	if err := d.stopStep(BarrierReset); err != nil {
		return markers, err
	}
	done, err := d.hasReset(epoch)
	if err != nil || done {
		return markers, err
	}
	if err := d.part.AppendControl(resetBatch(cluster, d.part.LeaderEpoch(), now)); err != nil {
		return markers, fmt.Errorf("writing the reset record: %w", err)
	}
	return markers, d.waitReplicas(ctx, false)
}

// finish is the first half of step 6: everything is on disk, and no group is beyond the end.
func (d *driver) finish(ctx context.Context) error {
	if err := d.part.Flush(); err != nil {
		return fmt.Errorf("syncing the log: %w", err)
	}
	return d.clampGroups(ctx)
}

// resetBatch is a MIRROR_PID_RESET control batch: key {version 0, type 7}, value {Version int16, SourceClusterId}, flexible.
func resetBatch(cluster string, epoch int32, nowMs int64) []byte {
	key := binary.BigEndian.AppendUint16([]byte{0, 0}, batch.ControlMirrorPIDReset)
	value := kbin.AppendCompactString(kbin.AppendInt16(nil, 0), cluster)
	value = append(value, 0) // no tagged fields
	return batch.Build(nil, batch.Header{PartitionLeaderEpoch: epoch, Attributes: batch.AttrControl, Timestamp: nowMs, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}, batch.KV{Key: key, Value: value})
}

// hasReset looks for the reset record of this barrier among the batches that have its epoch.
func (d *driver) hasReset(epoch int32) (bool, error) {
	from := int64(-1)
	for _, e := range d.part.EpochEntries() {
		if e.Epoch >= epoch {
			from = e.Start
			break
		}
	}
	if from < 0 {
		return false, nil
	}
	for {
		b, err := d.part.ReadBatches(max(from, d.part.LogStartOffset()), 1<<20)
		if err != nil || len(b) == 0 {
			return false, err
		}
		for len(b) > 0 {
			first, rest, err := batch.Next(b)
			if errors.Is(err, batch.ErrIncomplete) {
				break
			}
			if err != nil {
				return false, err
			}
			if first.IsControl() {
				if typ, err := first.ControlType(); err == nil && typ == batch.ControlMirrorPIDReset {
					return true, nil
				}
			}
			from, b = first.NextOffset(), rest
		}
	}
}

// reportBarrier tells the controller where the barrier ends; with the last partition the topic becomes stopped in the metadata.
func (d *driver) reportBarrier(ctx context.Context) error {
	end := d.storedBarrierEnd()
	if end < 0 {
		end = d.part.LogEndOffset()
	}
	return d.bump(ctx, bumpRequest{minEpoch: -1, barrierEnd: end})
}

// repair runs the barrier again from step 3 for a log that has lost its end (power loss, unclean election), before
// anything local is appended. Epochs of the lost end are not used again.
func (d *driver) repair(ctx context.Context) error {
	lost := d.situation().barrierEnd
	d.log.Warn("the log has lost the end of its stop barrier; the barrier is run again", "mirror", d.in.mirror, "offset", d.part.LogEndOffset(), "barrierEnd", lost)
	lastOffset, lastEpoch := d.part.LogEndOffset(), d.part.LatestEpoch()
	if err := d.bump(ctx, bumpRequest{minEpoch: d.part.LeaderEpoch() + 1 + rand.Int32N(epochMargin), barrierEnd: -1}); err != nil {
		return err
	}
	cluster := ""
	if up := d.m.upstream(d.in.mirror); up != nil {
		cluster = up.clusterID()
	}
	if _, err := d.seal(ctx, cluster, d.part.LeaderEpoch()); err != nil {
		return err
	}
	if err := d.finish(ctx); err != nil {
		return err
	}
	d.repaired = true
	if d.in.mode == meta.NotMirrored { // the mirror was deleted, and its pairs with it
		return d.reportRepaired(ctx)
	}
	// The pair is only of use for a failback; a coordinator that is away must not keep the topic from being written.
	rctx, cancel := context.WithTimeout(ctx, repairRead)
	defer cancel()
	if d.known || d.read(rctx) == nil {
		if err := d.lowerPairs(lastEpoch, lastOffset); err != nil {
			return err
		}
	} else {
		d.log.Warn("the pair of the last mirror epoch could not be lowered", "mirror", d.in.mirror, "offset", lastOffset)
	}
	return d.reportRepaired(ctx)
}

// repairRead is how long a repair waits for the mirror coordinator.
const repairRead = 5 * time.Second

// reportRepaired keeps the new end, so that it is checked at the next restart.
func (d *driver) reportRepaired(ctx context.Context) error {
	end := d.part.LogEndOffset()
	if d.in.barrierEnd >= 0 && end >= d.in.barrierEnd {
		return nil // what the metadata say holds again
	}
	return d.bump(ctx, bumpRequest{minEpoch: -1, barrierEnd: end})
}

// lowerPairs lowers LMO and LME to what was left of the log before the barrier was run again.
func (d *driver) lowerPairs(latest int32, end int64) error {
	if d.rec == nil || d.state() != mirrorstate.Stopped {
		return nil
	}
	for cluster, l := range d.pairs {
		now := pair{l.LastMirrorEpoch, l.LastMirrorOffset}.lowered(latest, end)
		next := l
		next.LastMirrorEpoch, next.LastMirrorOffset = now.epoch, now.offset
		if l.StopID == d.rec.StopID {
			next.BarrierEnd = d.part.LogEndOffset()
		}
		if next.BarrierEnd == l.BarrierEnd && now == (pair{l.LastMirrorEpoch, l.LastMirrorOffset}) {
			continue
		}
		if err := d.writeWith(mirrorstate.Stopped, nil, &next, nil); err != nil {
			return fmt.Errorf("pair for cluster %q: %w", cluster, err)
		}
	}
	return nil
}
