package broker

import (
	"context"
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/broker/controller"
	"stet/broker/mirrormsg"
)

// ensureInternal creates an internal topic when it is missing, once.
func (b *Broker) ensureInternal(ctx context.Context, topic string) error {
	if b.quorum.Image().Topic(topic) != nil {
		return nil
	}
	b.internalMu.Lock()
	defer b.internalMu.Unlock()
	if b.quorum.Image().Topic(topic) != nil {
		return nil
	}
	partitions, factorKey, segment := int32(0), "", ""
	switch topic {
	case "__consumer_offsets":
		partitions, factorKey = int32(b.cfg.int("offsets.topic.num.partitions")), "offsets.topic.replication.factor"
		segment = b.cfg.value("offsets.topic.segment.bytes")
	case mirrormsg.MirrorStateTopic:
		partitions, factorKey = int32(b.cfg.int("mirror.state.topic.num.partitions")), "mirror.state.topic.replication.factor"
		segment = "104857600"
	default:
		return fmt.Errorf("%s is not an internal topic that is served", topic)
	}
	alive := 0
	for _, m := range b.quorum.Image().Brokers() {
		if m.Alive() {
			alive++
		}
	}
	factor := int16(1) // one voter so far, and the default follows the voters
	if v, set := b.cfg.Static[factorKey]; set {
		n, err := strconv.ParseInt(v, 10, 16)
		if err != nil {
			return fmt.Errorf("%s: %w", factorKey, err)
		}
		factor = int16(n)
		if int(factor) > alive {
			return fmt.Errorf("%s=%d waits for more brokers: %d are there", factorKey, factor, alive)
		}
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version = 7
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = topic, partitions, factor
	for _, kv := range [][2]string{{"cleanup.policy", "compact"}, {"segment.bytes", segment}, {"compression.type", "producer"}} {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = kv[0], &kv[1]
		t.Configs = append(t.Configs, c)
	}
	req.Topics = append(req.Topics, t)
	resp, err := b.control.CreateTopics(ctx, req, controller.CreateOpts{Internal: true})
	if err != nil {
		return err
	}
	for i := range resp.Topics {
		if err := kerr.ErrorForCode(resp.Topics[i].ErrorCode); err != nil && resp.Topics[i].ErrorCode != kerr.TopicAlreadyExists.Code {
			if m := resp.Topics[i].ErrorMessage; m != nil {
				return fmt.Errorf("%w: %s", err, *m)
			}
			return err
		}
	}
	return nil
}

// growTopic adds partitions to a mirror topic up to count, as its source has grown.
func (b *Broker) growTopic(ctx context.Context, topic string, count int32) error {
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.Version = 3
	t := kmsg.NewCreatePartitionsRequestTopic()
	t.Topic, t.Count = topic, count
	req.Topics = append(req.Topics, t)
	resp, err := b.control.CreatePartitions(ctx, req, controller.CreateOpts{Internal: true})
	if err != nil {
		return err
	}
	for i := range resp.Topics {
		if err := kerr.ErrorForCode(resp.Topics[i].ErrorCode); err != nil {
			if m := resp.Topics[i].ErrorMessage; m != nil {
				return fmt.Errorf("%w: %s", err, *m)
			}
			return err
		}
	}
	return nil
}
