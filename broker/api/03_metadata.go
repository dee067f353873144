package api

import (
	"context"
	"sort"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/broker/controller"
	"stet/broker/meta"
)

// Metadata (key 3), versions 0-13.
//
// Topics by name, by id (v10), all (null, or empty at v0). A name that does not
// exist is created when the client allows it and auto.create.topics.enable is
// set. Every broker answers with its address on the listener that was asked.
var metadata = handler{key: 3, min: 0, max: 13, serve: serveMetadata}

// opsUnknown says that authorized operations were not asked for (KIP-430).
const opsUnknown = -2147483648

func serveMetadata(ctx context.Context, a *API, r *Request) (Reply, error) {
	req := r.Msg.(*kmsg.MetadataRequest)
	resp := kmsg.NewPtrMetadataResponse()
	img := a.Image()
	all := req.Topics == nil || r.Version == 0 && len(req.Topics) == 0
	if !all && a.autoCreate(ctx, img, req, r.Version) {
		img = a.Image()
	}
	for _, b := range img.Brokers() {
		if b.Fenced {
			continue
		}
		mb := kmsg.NewMetadataResponseBroker()
		mb.NodeID, mb.Rack = b.ID, b.Rack
		mb.Host, mb.Port = a.Advertised(r.Listener, b)
		resp.Brokers = append(resp.Brokers, mb)
	}
	id := img.ClusterID()
	resp.ClusterID = &id
	resp.ControllerID = a.ControllerID()
	resp.AuthorizedOperations = opsUnknown
	if all {
		for _, t := range img.Topics() {
			resp.Topics = append(resp.Topics, a.metadataTopic(t))
		}
		return resp, nil
	}
	for i := range req.Topics {
		q := &req.Topics[i]
		var t *meta.Topic
		byID := q.TopicID != [16]byte{} && r.Version >= 10
		if byID {
			t = img.TopicByID(q.TopicID)
		} else if q.Topic != nil {
			t = img.Topic(*q.Topic)
		}
		if t != nil {
			resp.Topics = append(resp.Topics, a.metadataTopic(t))
			continue
		}
		mt := kmsg.NewMetadataResponseTopic()
		mt.Topic, mt.TopicID = q.Topic, q.TopicID
		mt.AuthorizedOperations = opsUnknown
		switch {
		case byID:
			mt.ErrorCode = kerr.UnknownTopicID.Code
		case q.Topic == nil:
			mt.ErrorCode = kerr.InvalidTopicException.Code
		default:
			mt.ErrorCode = kerr.UnknownTopicOrPartition.Code
			if err := controller.CheckTopicName(*q.Topic); err != nil {
				mt.ErrorCode = kerr.InvalidTopicException.Code
			}
		}
		resp.Topics = append(resp.Topics, mt)
	}
	return resp, nil
}

func (a *API) metadataTopic(t *meta.Topic) kmsg.MetadataResponseTopic {
	mt := kmsg.NewMetadataResponseTopic()
	mt.Topic, mt.TopicID, mt.IsInternal = &t.Name, t.ID, internalTopic(t.Name)
	mt.AuthorizedOperations = opsUnknown
	mt.Partitions = make([]kmsg.MetadataResponseTopicPartition, 0, len(t.Partitions))
	for i, p := range t.Partitions {
		mp := kmsg.NewMetadataResponseTopicPartition()
		mp.Partition, mp.Leader, mp.LeaderEpoch = int32(i), p.Leader, p.LeaderEpoch
		mp.Replicas, mp.ISR = p.Replicas, p.ISR
		if a.offline(t.Name, int32(i)) {
			mp.Leader, mp.OfflineReplicas = -1, []int32{a.Node} // no live replica, so no leader
		}
		if mp.Leader < 0 {
			mp.ErrorCode = kerr.LeaderNotAvailable.Code
		}
		mt.Partitions = append(mt.Partitions, mp)
	}
	return mt
}

// offline says that this broker's replica of a partition cannot be used.
func (a *API) offline(topic string, partition int32) bool {
	if p := a.Replicas.Get(topic, partition); p != nil {
		return p.Log().Err() != nil
	}
	return a.Replicas.Failed(topic, partition) != nil
}

// autoCreate creates what is missing; true: the image may have changed.
func (a *API) autoCreate(ctx context.Context, img *meta.Image, req *kmsg.MetadataRequest, version int16) bool {
	if !a.Settings.AutoCreateTopics || version >= 4 && !req.AllowAutoTopicCreation {
		return false
	}
	var missing []string
	for i := range req.Topics {
		if t := req.Topics[i].Topic; t != nil && img.Topic(*t) == nil {
			missing = append(missing, *t)
		}
	}
	if len(missing) == 0 {
		return false
	}
	sort.Strings(missing)
	create := kmsg.NewPtrCreateTopicsRequest()
	create.Version = 7
	for i, name := range missing {
		if i > 0 && missing[i-1] == name {
			continue
		}
		if internalTopic(name) {
			if err := a.EnsureInternal(ctx, name); err != nil {
				a.Logger.Warn("internal topic could not be created", "topic", name, "err", err)
			}
			continue
		}
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = name, -1, -1
		create.Topics = append(create.Topics, t)
	}
	if len(create.Topics) > 0 {
		if _, err := a.Controller.CreateTopics(ctx, create, controller.CreateOpts{}); err != nil {
			a.Logger.Warn("topics could not be created", "err", err)
		}
	}
	return true
}
