package api

import (
	"context"
	"sort"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/broker/controller"
	"stet/broker/meta"
)

// DescribeTopicPartitions (key 75), version 0 (KIP-966).
//
// Topics in order of name, cut off after ResponsePartitionLimit partitions (2000
// at most) with a cursor to go on from. No topics: all.
var describeTopicPartitions = handler{key: 75, min: 0, max: 0, serve: serveDescribeTopicPartitions}

const maxDescribedPartitions = 2000

func serveDescribeTopicPartitions(_ context.Context, a *API, r *Request) (Reply, error) {
	req := r.Msg.(*kmsg.DescribeTopicPartitionsRequest)
	resp := kmsg.NewPtrDescribeTopicPartitionsResponse()
	img := a.Image()
	var names []string
	for _, t := range req.Topics {
		names = append(names, t.Topic)
	}
	if len(names) == 0 {
		for _, t := range img.Topics() {
			names = append(names, t.Name)
		}
	}
	sort.Strings(names)
	limit := int(req.ResponsePartitionLimit)
	if limit <= 0 || limit > maxDescribedPartitions {
		limit = maxDescribedPartitions
	}
	for i, name := range names {
		if i > 0 && names[i-1] == name || req.Cursor != nil && name < req.Cursor.Topic {
			continue
		}
		rt := kmsg.NewDescribeTopicPartitionsResponseTopic()
		rt.Topic, rt.AuthorizedOperations = kmsg.StringPtr(name), opsUnknown
		t := img.Topic(name)
		if t == nil {
			rt.ErrorCode = kerr.UnknownTopicOrPartition.Code
			if controller.CheckTopicName(name) != nil {
				rt.ErrorCode = kerr.InvalidTopicException.Code
			}
			resp.Topics = append(resp.Topics, rt)
			continue
		}
		rt.TopicID, rt.IsInternal = t.ID, internalTopic(name)
		first := 0
		if req.Cursor != nil && req.Cursor.Topic == name {
			first = max(0, int(req.Cursor.Partition))
		}
		for p := first; p < len(t.Partitions); p++ {
			if limit == 0 {
				resp.NextCursor = &kmsg.DescribeTopicPartitionsResponseNextCursor{Topic: name, Partition: int32(p)}
				break
			}
			limit--
			rt.Partitions = append(rt.Partitions, a.describePartition(t, p))
		}
		if len(rt.Partitions) > 0 || resp.NextCursor == nil {
			resp.Topics = append(resp.Topics, rt)
		}
		if resp.NextCursor != nil {
			break
		}
	}
	return resp, nil
}

func (a *API) describePartition(t *meta.Topic, i int) kmsg.DescribeTopicPartitionsResponseTopicPartition {
	s := t.Partitions[i]
	rp := kmsg.NewDescribeTopicPartitionsResponseTopicPartition()
	rp.Partition, rp.LeaderID, rp.LeaderEpoch = int32(i), s.Leader, s.LeaderEpoch
	rp.Replicas, rp.ISR = s.Replicas, s.ISR
	rp.EligibleLeaderReplicas, rp.LastKnownELR, rp.OfflineReplicas = []int32{}, []int32{}, []int32{} // null ends the Java client
	if a.offline(t.Name, int32(i)) {
		rp.LeaderID, rp.OfflineReplicas = -1, []int32{a.Node} // no live replica, so no leader
	}
	if rp.LeaderID < 0 {
		rp.ErrorCode = kerr.LeaderNotAvailable.Code
	}
	return rp
}
