package controller

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"

	"stet/broker/meta"
	"stet/broker/mirrormsg"
)

// BumpLeaderEpochs raises leader epochs and keeps BarrierEnd and AlignedMirrorId
// with the partitions (SPEC sections 3, 4.3, 4.7). When every partition of a topic
// that is being stopped has its barrier end, the topic becomes STOPPED.
func (c *Controller) BumpLeaderEpochs(ctx context.Context, req *mirrormsg.BumpLeaderEpochsRequest) (*mirrormsg.BumpLeaderEpochsResponse, error) {
	return do(ctx, c, func(img *meta.Image) ([]meta.Record, *mirrormsg.BumpLeaderEpochsResponse) {
		return bumpLeaderEpochs(img, req)
	})
}

func bumpLeaderEpochs(img *meta.Image, req *mirrormsg.BumpLeaderEpochsRequest) ([]meta.Record, *mirrormsg.BumpLeaderEpochsResponse) {
	resp := mirrormsg.NewPtrBumpLeaderEpochsResponse()
	ch := &change{img: img}
	for i := range req.Topics {
		t := &req.Topics[i]
		out := mirrormsg.NewBumpLeaderEpochsResponseTopic()
		topic := ch.img.TopicByID(t.TopicID)
		if topic != nil {
			out.TopicName = topic.Name
		}
		for j := range t.Partitions {
			p := mirrormsg.NewBumpLeaderEpochsResponseTopicPartition()
			p.PartitionIndex = t.Partitions[j].PartitionIndex
			recs, err := bumpPartition(ch.img, topic, &t.Partitions[j])
			p.ErrorCode = mirrormsg.CodeForError(err)
			ch.add(recs...)
			out.Partitions = append(out.Partitions, p)
		}
		resp.Topics = append(resp.Topics, out)
		if topic != nil {
			ch.add(stoppedIfComplete(ch.img, topic.Name)...)
		}
	}
	return ch.recs, resp
}

func bumpPartition(img *meta.Image, topic *meta.Topic, req *mirrormsg.BumpLeaderEpochsRequestTopicPartition) ([]meta.Record, error) {
	if topic == nil {
		return nil, kerr.UnknownTopicID
	}
	p := img.Partition(topic.Name, req.PartitionIndex)
	if p == nil {
		return nil, kerr.UnknownTopicOrPartition
	}
	rec := meta.NewChangePartition(topic.ID, req.PartitionIndex)
	changed := false
	if req.MinLeaderEpoch > p.LeaderEpoch {
		rec.MinLeaderEpoch = req.MinLeaderEpoch
		changed = true
	}
	name, state := img.TopicMirror(topic.Name)
	if req.BarrierEnd >= 0 {
		// A barrier that belongs to an older stop (the topic was started again) must not
		// mark this one as done. One that was lost and run again is moved, also where the
		// mirror has been deleted since: else each restart would run it again.
		moved := state == meta.NotMirrored && p.BarrierEnd >= 0
		if state != meta.MirrorStopping && state != meta.MirrorStopped && !moved {
			return nil, mirrormsg.InvalidMirrorState
		}
		if p.BarrierEnd != req.BarrierEnd || p.AlignedMirrorID != [16]byte{} {
			rec.BarrierEnd = req.BarrierEnd
			rec.AlignedMirrorID = new([16]byte)
			changed = true
		}
	} else if req.AlignedMirrorID != [16]byte{} {
		m := img.Mirror(name)
		if m == nil || m.ID != req.AlignedMirrorID || state == meta.MirrorStopped || p.BarrierEnd >= 0 {
			return nil, mirrormsg.InvalidMirrorState
		}
		if p.AlignedMirrorID != req.AlignedMirrorID {
			id := req.AlignedMirrorID
			rec.AlignedMirrorID = &id
			changed = true
		}
	}
	if !changed {
		return nil, nil
	}
	return []meta.Record{rec}, nil
}

// stoppedIfComplete turns <mirror>.stopping into <mirror>.stopped once all
// partitions have their barrier end.
func stoppedIfComplete(img *meta.Image, name string) []meta.Record {
	mirror, state := img.TopicMirror(name)
	if state != meta.MirrorStopping {
		return nil
	}
	for _, p := range img.Topic(name).Partitions {
		if p.BarrierEnd < 0 {
			return nil
		}
	}
	return []meta.Record{mirrorNameRecord(name, mirror, meta.MirrorStopped)}
}

func mirrorNameRecord(topic, mirror string, state meta.MirrorTopicState) meta.Record {
	v := meta.MirrorNameValue(mirror, state)
	return &meta.SetConfig{Resource: meta.Resource{Type: meta.ResourceTopic, Name: topic}, Key: meta.ConfigMirrorName, Value: &v}
}
