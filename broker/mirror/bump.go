package mirror

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	"stet/broker/mirrormsg"
)

// epochMargin is what a requested leader epoch lies above the source's (SPEC 4.2), nearEpochs how close the source's
// may come before a bump is asked for.
const (
	epochMargin = 10
	nearEpochs  = 3
)

// bumpRequest is what BumpLeaderEpochs is asked for one partition.
type bumpRequest struct {
	minEpoch   int32 // -1: no bump
	barrierEnd int64 // -1: none
	aligned    [16]byte
}

// bump sends BumpLeaderEpochs and waits until the metadata show the result. A controller that cannot be reached is
// asked again until the context ends.
func (d *driver) bump(ctx context.Context, b bumpRequest) error {
	via := &d.toBump
	if b.barrierEnd >= 0 {
		via = &d.toReport
	}
	p := mirrormsg.NewBumpLeaderEpochsRequestTopicPartition()
	p.PartitionIndex, p.MinLeaderEpoch, p.BarrierEnd, p.AlignedMirrorID = d.index, b.minEpoch, b.barrierEnd, b.aligned
	for n := 0; ; n++ {
		err := via.b.do(ctx, d.id, p, via)
		switch {
		case err == nil && d.part.LeaderEpoch() >= b.minEpoch:
			if b.minEpoch >= 0 {
				d.stats.epochBumps.Add(1)
			}
			return nil
		case errors.Is(err, mirrormsg.InvalidMirrorState), errors.Is(err, kerr.UnknownTopicID), errors.Is(err, kerr.UnknownTopicOrPartition):
			return fmt.Errorf("%w: %w", errSuperseded, err)
		}
		if err := sleepBackoff(ctx, n, err); err != nil {
			return err
		}
	}
}

// raiseAbove keeps the invariant DLE >= SLE, with a margin, for an epoch that the source has named.
func (d *driver) raiseAbove(ctx context.Context, sourceEpoch int32) error {
	d.fetching.seen = max(d.fetching.seen, sourceEpoch)
	if sourceEpoch <= d.part.LeaderEpoch()-nearEpochs {
		return nil
	}
	return d.bump(ctx, bumpRequest{minEpoch: sourceEpoch + epochMargin, barrierEnd: -1})
}

// fence is EPOCH_FENCING: fetching has stopped until the local leader epoch is above the source's.
func (d *driver) fence(ctx context.Context) error {
	d.unassign()
	above := d.fetching.minEpoch
	p, err := d.sourcePartition(ctx, 0)
	if err != nil && above < 0 {
		return err // after a restart only the source knows how high
	}
	if err == nil {
		above = max(above, p.LeaderEpoch)
	}
	d.fetching.seen = max(d.fetching.seen, above)
	if d.part.LeaderEpoch() < above+epochMargin {
		if err := d.bump(ctx, bumpRequest{minEpoch: above + epochMargin, barrierEnd: -1}); err != nil {
			return err
		}
	}
	d.fetching.minEpoch = -1
	return nil
}
