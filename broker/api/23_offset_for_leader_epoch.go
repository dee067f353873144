package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// OffsetForLeaderEpoch (key 23), versions 2-4.
//
// The end of an epoch, from the log's epoch cache (KIP-279); (-1, -1) for an
// epoch that is unknown. An epoch above the latest cached one and not above the
// leader's own ends at the log end (SPEC section 4.1).
var offsetForLeaderEpoch = handler{key: 23, min: 2, max: 4, serve: serveOffsetForLeaderEpoch}

func serveOffsetForLeaderEpoch(_ context.Context, a *API, r *Request) (Reply, error) {
	req := r.Msg.(*kmsg.OffsetForLeaderEpochRequest)
	resp := kmsg.NewPtrOffsetForLeaderEpochResponse()
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			rp.Partition, rp.LeaderEpoch, rp.EndOffset = p.Partition, -1, -1
			part, err := a.partition(t.Topic, [16]byte{}, false, p.Partition)
			if err == nil {
				rp.LeaderEpoch, rp.EndOffset, err = part.EpochEnd(p.LeaderEpoch, p.CurrentLeaderEpoch)
			}
			rp.ErrorCode = code(err)
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp, nil
}
