package controller

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/broker/meta"
	"stet/broker/meta/configs"
	"stet/broker/mirrormsg"
)

// DeleteTopics deletes topics by name and, from version 6 on, by id.
func (c *Controller) DeleteTopics(ctx context.Context, req *kmsg.DeleteTopicsRequest) (*kmsg.DeleteTopicsResponse, error) {
	return do(ctx, c, func(img *meta.Image) ([]meta.Record, *kmsg.DeleteTopicsResponse) {
		return deleteTopics(img, &c.env, req)
	})
}

func deleteTopics(img *meta.Image, env *Env, req *kmsg.DeleteTopicsRequest) ([]meta.Record, *kmsg.DeleteTopicsResponse) {
	resp := req.ResponseKind().(*kmsg.DeleteTopicsResponse)
	wanted := req.Topics
	for _, name := range req.TopicNames {
		t := kmsg.NewDeleteTopicsRequestTopic()
		t.Topic = kmsg.StringPtr(name)
		wanted = append(wanted, t)
	}
	count := map[any]int{}
	key := func(t *kmsg.DeleteTopicsRequestTopic) any {
		if t.Topic != nil {
			return *t.Topic
		}
		return t.TopicID
	}
	for i := range wanted {
		count[key(&wanted[i])]++
	}
	ch := &change{img: img}
	answered := map[any]bool{}
	for i := range wanted {
		t := &wanted[i]
		if answered[key(t)] {
			continue
		}
		answered[key(t)] = true
		r := kmsg.NewDeleteTopicsResponseTopic()
		r.Topic, r.TopicID = t.Topic, t.TopicID
		topic, err := deleteTopic(ch.img, env, req.Version, t, count[key(t)] > 1)
		if err == nil {
			r.Topic, r.TopicID = kmsg.StringPtr(topic.Name), topic.ID
			ch.add(&meta.RemoveTopic{ID: topic.ID})
		}
		r.ErrorCode, r.ErrorMessage = mirrormsg.CodeAndMessage(err)
		resp.Topics = append(resp.Topics, r)
	}
	return ch.recs, resp
}

func deleteTopic(img *meta.Image, env *Env, version int16, t *kmsg.DeleteTopicsRequestTopic, duplicate bool) (*meta.Topic, error) {
	byID := t.TopicID != [16]byte{}
	switch {
	case t.Topic == nil && !byID:
		return nil, mirrormsg.Errorf(kerr.InvalidRequest, "Neither topic name nor id were specified.")
	case t.Topic != nil && byID:
		return nil, mirrormsg.Errorf(kerr.InvalidRequest, "You may not specify both topic name and topic id.")
	case duplicate && byID:
		return nil, mirrormsg.Errorf(kerr.InvalidRequest, "Duplicate topic id.")
	case duplicate:
		return nil, mirrormsg.Errorf(kerr.InvalidRequest, "Duplicate topic name.")
	}
	if v, _ := configs.BrokerValue(env.brokerConfigs(img), "delete.topic.enable"); v == "false" {
		if version < 3 {
			return nil, mirrormsg.Errorf(kerr.InvalidRequest, "Topic deletion is disabled.")
		}
		return nil, mirrormsg.Errorf(kerr.TopicDeletionDisabled, "Topic deletion is disabled (delete.topic.enable).")
	}
	var topic *meta.Topic
	if byID {
		if topic = img.TopicByID(t.TopicID); topic == nil {
			return nil, kerr.UnknownTopicID
		}
	} else if topic = img.Topic(*t.Topic); topic == nil {
		return nil, kerr.UnknownTopicOrPartition
	}
	if topic.Internal() {
		return nil, mirrormsg.Errorf(kerr.InvalidRequest, "Deletion of internal topic %s is prohibited.", topic.Name)
	}
	return topic, checkNotReadOnly(img, topic.Name)
}
