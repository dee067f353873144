package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/broker/replica"
)

// DeleteRecords (key 21), versions 0-2.
//
// Raises the log start to the offset asked for (-1: the high watermark) and answers with it;
// whole segments below go at once. Refused as Kafka does: above the high watermark
// (OFFSET_OUT_OF_RANGE), on internal topics (INVALID_TOPIC_EXCEPTION), on topics whose
// cleanup.policy does not have delete, and on mirror topics that are not stopped, whose log start
// follows the source's (POLICY_VIOLATION, SPEC section 6). The new start is in the next checkpoint; after a crash
// before that it may lie lower again, as in Kafka.
var deleteRecords = handler{key: 21, min: 0, max: 2, serve: serveDeleteRecords}

func serveDeleteRecords(_ context.Context, a *API, r *Request) (Reply, error) {
	req := r.Msg.(*kmsg.DeleteRecordsRequest)
	resp := kmsg.NewPtrDeleteRecordsResponse()
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := kmsg.NewDeleteRecordsResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewDeleteRecordsResponseTopicPartition()
			rp.Partition, rp.LowWatermark = p.Partition, -1
			low, err := a.deleteRecords(t.Topic, p.Partition, p.Offset)
			if err != nil {
				rp.ErrorCode = code(err)
			} else {
				rp.LowWatermark = low
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp, nil
}

func (a *API) deleteRecords(topic string, index int32, offset int64) (int64, error) {
	if internalTopic(topic) {
		return -1, replica.Refuse(kerr.InvalidTopicException, "records of the internal topic %s cannot be deleted", topic)
	}
	p, err := a.partition(topic, [16]byte{}, false, index)
	if err != nil {
		return -1, err
	}
	if mirror, readOnly := a.Image().ReadOnly(topic); readOnly {
		return -1, replica.Refuse(kerr.PolicyViolation, "topic %s is read-only: it is mirrored by mirror %s", topic, mirror)
	}
	return p.DeleteRecords(offset)
}
