package replica

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"

	"stet/broker/log"
)

// ReadRequest is what a consumer's Fetch asks of one partition.
type ReadRequest struct {
	Offset             int64
	MaxBytes           int
	CurrentLeaderEpoch int32 // -1: unknown
	LastFetchedEpoch   int32 // -1: not sent
	ReadCommitted      bool
	MinOneBatch        bool // the first batch is returned even if larger than MaxBytes
}

// ReadResult is the answer. Err nil and Slice empty: nothing to read yet.
type ReadResult struct {
	Err              error
	HighWatermark    int64
	LastStableOffset int64
	LogStartOffset   int64
	Slice            log.Slice
	Aborted          []log.AbortedTxn
	// Diverging: the log has no record of LastFetchedEpoch at that offset (KIP-595).
	DivergingEpoch     int32
	DivergingEndOffset int64
	Diverging          bool
}

// Read answers a fetch of a consumer: records below the high watermark, or below the last stable offset.
func (p *Partition) Read(r ReadRequest) ReadResult {
	res := ReadResult{HighWatermark: -1, LastStableOffset: -1, LogStartOffset: -1}
	if err := p.checkLeader(r.CurrentLeaderEpoch); err != nil {
		res.Err = err
		return res
	}
	res.HighWatermark, res.LastStableOffset = p.log.Bounds()
	res.LogStartOffset = p.log.LogStartOffset()

	if r.LastFetchedEpoch >= 0 {
		epoch, end := p.log.EndOffsetForEpoch(r.LastFetchedEpoch, p.LeaderEpoch())
		if epoch < 0 || end < 0 {
			// Observed of Kafka 4.3: an epoch that it does not know is out of range.
			res.Err = Refuse(kerr.OffsetOutOfRange, "%s-%d: epoch %d is not in the log", p.Topic, p.Index, r.LastFetchedEpoch)
			return res
		}
		if epoch < r.LastFetchedEpoch || end < r.Offset {
			res.Diverging, res.DivergingEpoch, res.DivergingEndOffset = true, epoch, end
			return res
		}
	}
	bound := res.HighWatermark
	if r.ReadCommitted {
		bound = res.LastStableOffset
	}
	// Kafka: an offset between the bound and the log end is legal and reads nothing.
	if r.Offset > p.log.LogEndOffset() || r.Offset < res.LogStartOffset {
		res.Err = Refuse(kerr.OffsetOutOfRange, "%s-%d: offset %d is not within %d to %d", p.Topic, p.Index, r.Offset, res.LogStartOffset, p.log.LogEndOffset())
		return res
	}
	if r.Offset >= bound {
		return res
	}
	s, err := p.log.Read(r.Offset, r.MaxBytes, bound, r.MinOneBatch)
	if err != nil {
		var out *log.OffsetOutOfRangeError
		if errors.As(err, &out) {
			err = Refuse(kerr.OffsetOutOfRange, "%s-%d: offset %d is not within %d to %d", p.Topic, p.Index, r.Offset, out.Start, out.End)
		}
		res.Err = err
		return res
	}
	res.Slice = s
	if r.ReadCommitted && s.Len() > 0 {
		res.Aborted = p.log.AbortedTxns(r.Offset, bound)
	}
	return res
}

// EpochEnd answers OffsetForLeaderEpoch.
func (p *Partition) EpochEnd(epoch, currentEpoch int32) (int32, int64, error) {
	if err := p.checkLeader(currentEpoch); err != nil {
		return -1, -1, err
	}
	e, end := p.log.EndOffsetForEpoch(epoch, p.LeaderEpoch())
	return e, end, nil
}

// CheckLeader verifies that this broker leads the partition at that epoch (-1: any).
func (p *Partition) CheckLeader(currentEpoch int32) error { return p.checkLeader(currentEpoch) }
