package source

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Timestamps of OffsetQuestion with a meaning of their own.
const (
	Earliest = -2 // the log start
	Latest   = -1 // the high watermark
)

// EpochQuestion asks where an epoch ends in the source's log (OffsetForLeaderEpoch).
type EpochQuestion struct {
	Topic       string
	Partition   int32
	LeaderEpoch int32 // the source's, as its metadata has it; -1: not checked
	Epoch       int32
}

// EpochAnswer is the largest epoch of the source that is not above the one in question, and where it
// ends; both -1 when there is none. Err is the partition's.
type EpochAnswer struct {
	Epoch     int32
	EndOffset int64
	Err       error
}

// EpochEnd asks the broker that leads the partition. The error is of the connection, that of the partition is in the answer.
func (s *Source) EpochEnd(ctx context.Context, broker int32, q EpochQuestion) (EpochAnswer, error) {
	return s.epochs.do(ctx, broker, q)
}

// OffsetQuestion asks for a log's start or end (ListOffsets).
type OffsetQuestion struct {
	Topic       string
	Partition   int32
	LeaderEpoch int32 // as in EpochQuestion
	Timestamp   int64
}

// OffsetAnswer is an offset and the epoch of the record there, -1 where the version or the log has none.
type OffsetAnswer struct {
	Offset int64
	Epoch  int32
	Err    error
}

// Offset asks the broker that leads the partition.
func (s *Source) Offset(ctx context.Context, broker int32, q OffsetQuestion) (OffsetAnswer, error) {
	return s.offsets.do(ctx, broker, q)
}

type place struct {
	topic     string
	partition int32
}

func (s *Source) askEpochs(ctx context.Context, broker int32, qs []EpochQuestion) ([]EpochAnswer, error) {
	addr, err := s.address(ctx, broker)
	if err != nil {
		return nil, err
	}
	out := make([]EpochAnswer, len(qs))
	for _, round := range rounds(qs, func(q EpochQuestion) place { return place{q.Topic, q.Partition} }) {
		req := kmsg.NewPtrOffsetForLeaderEpochRequest()
		req.ReplicaID = -1
		index := map[string]int{}
		at := map[place]int{}
		for _, i := range round {
			q := qs[i]
			ti, ok := index[q.Topic]
			if !ok {
				ti = len(req.Topics)
				index[q.Topic] = ti
				t := kmsg.NewOffsetForLeaderEpochRequestTopic()
				t.Topic = q.Topic
				req.Topics = append(req.Topics, t)
			}
			p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			p.Partition, p.CurrentLeaderEpoch, p.LeaderEpoch = q.Partition, q.LeaderEpoch, q.Epoch
			req.Topics[ti].Partitions = append(req.Topics[ti].Partitions, p)
			at[place{q.Topic, q.Partition}] = i
			out[i] = EpochAnswer{-1, -1, errMissing}
		}
		kresp, err := s.request(ctx, addr, req, 4)
		if err != nil {
			s.doubt(broker)
			return nil, err
		}
		for _, t := range kresp.(*kmsg.OffsetForLeaderEpochResponse).Topics {
			for _, p := range t.Partitions {
				if i, ok := at[place{t.Topic, p.Partition}]; ok {
					out[i] = EpochAnswer{p.LeaderEpoch, p.EndOffset, kerr.ErrorForCode(p.ErrorCode)}
				}
			}
		}
	}
	return out, nil
}

func (s *Source) askOffsets(ctx context.Context, broker int32, qs []OffsetQuestion) ([]OffsetAnswer, error) {
	addr, err := s.address(ctx, broker)
	if err != nil {
		return nil, err
	}
	out := make([]OffsetAnswer, len(qs))
	for _, round := range rounds(qs, func(q OffsetQuestion) place { return place{q.Topic, q.Partition} }) {
		req := kmsg.NewPtrListOffsetsRequest()
		req.ReplicaID = -1
		index := map[string]int{}
		at := map[place]int{}
		for _, i := range round {
			q := qs[i]
			ti, ok := index[q.Topic]
			if !ok {
				ti = len(req.Topics)
				index[q.Topic] = ti
				t := kmsg.NewListOffsetsRequestTopic()
				t.Topic = q.Topic
				req.Topics = append(req.Topics, t)
			}
			p := kmsg.NewListOffsetsRequestTopicPartition()
			p.Partition, p.CurrentLeaderEpoch, p.Timestamp = q.Partition, q.LeaderEpoch, q.Timestamp
			req.Topics[ti].Partitions = append(req.Topics[ti].Partitions, p)
			at[place{q.Topic, q.Partition}] = i
			out[i] = OffsetAnswer{-1, -1, errMissing}
		}
		kresp, err := s.request(ctx, addr, req, 7)
		if err != nil {
			s.doubt(broker)
			return nil, err
		}
		for _, t := range kresp.(*kmsg.ListOffsetsResponse).Topics {
			for _, p := range t.Partitions {
				if i, ok := at[place{t.Topic, p.Partition}]; ok {
					out[i] = OffsetAnswer{p.Offset, p.LeaderEpoch, kerr.ErrorForCode(p.ErrorCode)}
				}
			}
		}
	}
	return out, nil
}

var errMissing = fmt.Errorf("%w: the answer does not mention the partition", ErrProtocol)

// rounds splits questions so that no partition is twice in one request.
func rounds[Q any](qs []Q, of func(Q) place) [][]int {
	var out [][]int
	count := map[place]int{}
	for i, q := range qs {
		n := count[of(q)]
		count[of(q)]++
		if n == len(out) {
			out = append(out, nil)
		}
		out[n] = append(out[n], i)
	}
	return out
}
