package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/broker/replica"
)

// ListOffsets (key 2), versions 1-11.
//
// Timestamps look up the first record at or after them. Special ones: -1 latest
// (high watermark, or last stable offset for read committed), -2 earliest, -3
// record with the largest timestamp (KIP-734, v7), -4 earliest local (v8), -5
// latest tiered (v9) and -6 earliest pending upload (v11), which are -1 without
// tiered storage, as Kafka answers.
var listOffsets = handler{key: 2, min: 1, max: 11, serve: serveListOffsets}

const (
	tsLatest          = -1
	tsEarliest        = -2
	tsMaxTimestamp    = -3
	tsEarliestLocal   = -4
	tsLatestTiered    = -5
	tsEarliestPending = -6
)

func serveListOffsets(_ context.Context, a *API, r *Request) (Reply, error) {
	req := r.Msg.(*kmsg.ListOffsetsRequest)
	resp := kmsg.NewPtrListOffsetsResponse()
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := kmsg.NewListOffsetsResponseTopic()
		rt.Topic = t.Topic
		for j := range t.Partitions {
			p := &t.Partitions[j]
			rp := kmsg.NewListOffsetsResponseTopicPartition()
			rp.Partition = p.Partition
			rp.Timestamp, rp.Offset, rp.LeaderEpoch = -1, -1, -1
			part, err := a.partition(t.Topic, [16]byte{}, false, p.Partition)
			if err == nil {
				err = listOffset(part, r.Version, req.IsolationLevel, p, &rp)
			}
			rp.ErrorCode = code(err)
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp, nil
}

func listOffset(part *replica.Partition, version int16, isolation int8, p *kmsg.ListOffsetsRequestTopicPartition, rp *kmsg.ListOffsetsResponseTopicPartition) error {
	if err := part.CheckLeader(p.CurrentLeaderEpoch); err != nil {
		return err
	}
	l := part.Log()
	bound := l.HighWatermark()
	if isolation == readCommitted {
		bound = l.LastStableOffset()
	}
	var err error
	switch ts := p.Timestamp; {
	case ts == tsLatest:
		rp.Offset = bound
		rp.LeaderEpoch = part.LeaderEpoch()
		if e, ok := l.EpochAt(bound); ok {
			rp.LeaderEpoch = e
		}
	case ts == tsEarliest, ts == tsEarliestLocal && version >= 8:
		rp.Offset = l.LogStartOffset()
		if e, ok := l.EpochAt(rp.Offset); ok {
			rp.LeaderEpoch = e
		}
	case ts == tsMaxTimestamp && version >= 7:
		rp.Offset, rp.Timestamp, rp.LeaderEpoch, err = l.MaxTimestamp()
	case ts == tsLatestTiered && version >= 9, ts == tsEarliestPending && version >= 11:
	case ts < 0:
		return replica.Refuse(kerr.UnsupportedVersion, "timestamp %d is not defined at version %d", ts, version)
	default:
		rp.Offset, rp.Timestamp, rp.LeaderEpoch, err = l.OffsetForTimestamp(ts)
	}
	if err != nil {
		rp.Offset, rp.Timestamp, rp.LeaderEpoch = -1, -1, -1
		return err
	}
	if p.Timestamp >= 0 && rp.Offset >= bound { // found, but not to be seen yet
		rp.Offset, rp.Timestamp, rp.LeaderEpoch = -1, -1, -1
	}
	return nil
}
