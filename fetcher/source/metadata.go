package source

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Topic is a topic as the source describes it.
type Topic struct {
	Name       string
	ID         [16]byte // zero for a source without topic ids
	Internal   bool
	Err        error // of the topic: a *kerr.Error such as kerr.UnknownTopicOrPartition
	Partitions []Partition
}

// Partition is a partition as the source describes it.
type Partition struct {
	Index       int32
	Leader      int32 // -1: none
	LeaderEpoch int32 // -1: the version does not say
	Err         error
}

// Topics describes topics by name; a nil list means all of the cluster's, an empty one none (brokers and cluster id are
// refreshed by every call). Topics come in the order of the answer.
func (s *Source) Topics(ctx context.Context, names []string) ([]Topic, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = false
	if names != nil {
		req.Topics = []kmsg.MetadataRequestTopic{}
	}
	for _, n := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(n)
		req.Topics = append(req.Topics, t)
	}
	kresp, err := s.anyBroker(ctx, req, 13)
	if err != nil {
		return nil, err
	}
	resp := kresp.(*kmsg.MetadataResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	s.mu.Lock()
	clear(s.brokers)
	for _, b := range resp.Brokers {
		s.brokers[b.NodeID] = hostPort(b.Host, b.Port)
	}
	if resp.ClusterID != nil {
		s.clusterID = *resp.ClusterID
	}
	s.mu.Unlock()
	out := make([]Topic, 0, len(resp.Topics))
	for i := range resp.Topics {
		rt := &resp.Topics[i]
		t := Topic{ID: rt.TopicID, Internal: rt.IsInternal, Err: kerr.ErrorForCode(rt.ErrorCode)}
		if rt.Topic != nil {
			t.Name = *rt.Topic
		}
		for j := range rt.Partitions {
			rp := &rt.Partitions[j]
			t.Partitions = append(t.Partitions, Partition{Index: rp.Partition, Leader: rp.Leader, LeaderEpoch: rp.LeaderEpoch, Err: kerr.ErrorForCode(rp.ErrorCode)})
		}
		out = append(out, t)
	}
	return out, nil
}

// ClusterID asks the source for its cluster id.
func (s *Source) ClusterID(ctx context.Context) (string, error) {
	if _, err := s.Topics(ctx, []string{}); err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clusterID, nil
}

// Config is one setting of a topic.
type Config struct {
	Name  string
	Value string
}

// TopicConfigs returns the settings that were made on the topics themselves (no defaults, no broker-wide ones),
// by topic. A topic that cannot be described has an error.
func (s *Source) TopicConfigs(ctx context.Context, names []string) (map[string][]Config, map[string]error, error) {
	req := kmsg.NewPtrDescribeConfigsRequest()
	for _, n := range names {
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType = kmsg.ConfigResourceTypeTopic
		r.ResourceName = n
		req.Resources = append(req.Resources, r)
	}
	configs, errs := map[string][]Config{}, map[string]error{}
	if len(names) == 0 {
		return configs, errs, nil
	}
	kresp, err := s.anyBroker(ctx, req, 4)
	if err != nil {
		return nil, nil, err
	}
	for _, r := range kresp.(*kmsg.DescribeConfigsResponse).Resources {
		if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
			errs[r.ResourceName] = err
			continue
		}
		list := []Config{}
		for _, c := range r.Configs {
			dynamic := c.Source == kmsg.ConfigSourceDynamicTopicConfig
			if kresp.GetVersion() == 0 {
				dynamic = !c.IsDefault
			}
			if dynamic && !c.IsSensitive && c.Value != nil {
				list = append(list, Config{c.Name, *c.Value})
			}
		}
		configs[r.ResourceName] = list
	}
	return configs, errs, nil
}
