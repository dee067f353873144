package controller

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/broker/meta"
	"stet/broker/mirrormsg"
)

// CreatePartitions adds partitions to topics. On a mirror topic that is not
// stopped only mirroring itself may (opts.Internal): the source has grown.
func (c *Controller) CreatePartitions(ctx context.Context, req *kmsg.CreatePartitionsRequest, opts CreateOpts) (*kmsg.CreatePartitionsResponse, error) {
	return do(ctx, c, func(img *meta.Image) ([]meta.Record, *kmsg.CreatePartitionsResponse) {
		return createPartitions(img, req, opts)
	})
}

func createPartitions(img *meta.Image, req *kmsg.CreatePartitionsRequest, opts CreateOpts) ([]meta.Record, *kmsg.CreatePartitionsResponse) {
	resp := req.ResponseKind().(*kmsg.CreatePartitionsResponse)
	count := map[string]int{}
	for _, t := range req.Topics {
		count[t.Topic]++
	}
	ch := &change{img: img}
	answered := map[string]bool{}
	for i := range req.Topics {
		t := &req.Topics[i]
		if answered[t.Topic] {
			continue
		}
		answered[t.Topic] = true
		r := kmsg.NewCreatePartitionsResponseTopic()
		r.Topic = t.Topic
		var recs []meta.Record
		err := error(nil)
		if count[t.Topic] > 1 {
			err = mirrormsg.Errorf(kerr.InvalidRequest, "Duplicate topic in request.")
		} else {
			recs, err = addPartitions(ch.img, t, opts)
		}
		if err == nil {
			ch.add(recs...)
		}
		r.ErrorCode, r.ErrorMessage = mirrormsg.CodeAndMessage(err)
		resp.Topics = append(resp.Topics, r)
	}
	if req.ValidateOnly {
		return nil, resp
	}
	return ch.recs, resp
}

func addPartitions(img *meta.Image, t *kmsg.CreatePartitionsRequestTopic, opts CreateOpts) ([]meta.Record, error) {
	topic := img.Topic(t.Topic)
	if topic == nil {
		return nil, kerr.UnknownTopicOrPartition
	}
	if topic.Name == mirrormsg.MirrorStateTopic {
		return nil, mirrormsg.Errorf(kerr.InvalidRequest, "Partitions cannot be added to %s: its keys are placed by the partition count.", topic.Name)
	}
	if !opts.Internal {
		if err := checkNotReadOnly(img, topic.Name); err != nil {
			return nil, err
		}
	}
	have := int32(len(topic.Partitions))
	switch {
	case t.Count == have:
		return nil, mirrormsg.Errorf(kerr.InvalidPartitions, "Topic already has %d partition(s).", have)
	case t.Count < have:
		return nil, mirrormsg.Errorf(kerr.InvalidPartitions, "The topic %s currently has %d partition(s); %d would not be an increase.", topic.Name, have, t.Count)
	case t.Count-have > maxPartitionsPerTopic:
		return nil, mirrormsg.Errorf(kerr.InvalidPartitions, "%d new partitions were asked for; at most %d are allowed in one request.", t.Count-have, maxPartitionsPerTopic)
	}
	factor := len(topic.Partitions[0].Replicas)
	var assignment [][]int32
	if t.Assignment != nil {
		if n := len(t.Assignment); n != int(t.Count-have) {
			return nil, mirrormsg.Errorf(kerr.InvalidReplicaAssignment, "Attempted to add %d additional partition(s), but only %d assignment(s) were specified.", t.Count-have, n)
		}
		for _, a := range t.Assignment {
			if err := checkAssignment(img, a.Replicas, factor); err != nil {
				return nil, err
			}
			assignment = append(assignment, append([]int32{}, a.Replicas...))
		}
	} else {
		var err error
		if assignment, err = place(img, topic.Name, have, t.Count-have, factor); err != nil {
			return nil, err
		}
	}
	return partitionRecords(img, topic.ID, have, assignment, alignedFor(img, topic.Name))
}

// alignedFor is the AlignedMirrorID of a new, hence empty, partition of a topic:
// the mirror's that is copying it.
func alignedFor(img *meta.Image, topic string) [16]byte {
	name, state := img.TopicMirror(topic)
	if m := img.Mirror(name); m != nil && (state == meta.MirrorActive || state == meta.MirrorPaused) {
		return m.ID
	}
	return [16]byte{}
}
