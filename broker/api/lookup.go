package api

import (
	"github.com/twmb/franz-go/pkg/kerr"

	"stet/broker/mirrormsg"
	"stet/broker/replica"
)

// partition finds a partition by name, or by topic id where the version says so.
func (a *API) partition(topic string, id [16]byte, byID bool, index int32) (*replica.Partition, error) {
	img := a.Image()
	t := img.Topic(topic)
	if byID {
		if t = img.TopicByID(id); t == nil {
			return nil, replica.Refuse(kerr.UnknownTopicID, "no topic has the id %s", mirrormsg.UUIDString(id))
		}
	}
	if t == nil {
		return nil, replica.Refuse(kerr.UnknownTopicOrPartition, "no topic %q", topic)
	}
	if index < 0 || int(index) >= len(t.Partitions) {
		return nil, replica.Refuse(kerr.UnknownTopicOrPartition, "topic %s has %d partitions, not a partition %d", t.Name, len(t.Partitions), index)
	}
	if p := a.Replicas.Get(t.Name, index); p != nil && p.ID == t.ID {
		return p, nil
	}
	if err := a.Replicas.Failed(t.Name, index); err != nil {
		return nil, replica.Refuse(kerr.KafkaStorageError, "%v", err)
	}
	return nil, replica.Refuse(kerr.NotLeaderForPartition, "%s-%d is not on this broker", t.Name, index)
}

// internalTopic says whether clients may not create, delete or write the topic.
func internalTopic(name string) bool {
	return name == "__consumer_offsets" || name == "__transaction_state" || name == "__mirror_state"
}
