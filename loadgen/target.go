package loadgen

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/broker/mirrormsg"
)

// target is a cluster: a control client, and where the partitions of a topic are led.
type target struct {
	cl    *kgo.Client
	seeds string
}

func openTarget(bootstrap string) (*target, error) {
	var seeds []string
	for _, s := range strings.Split(bootstrap, ",") {
		seeds = append(seeds, strings.TrimSpace(s))
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.MaxVersions(mirrormsg.MaxVersions()), kgo.ClientID("stet-loadgen"),
		kgo.RetryTimeout(10*time.Second), kgo.RequestTimeoutOverhead(35*time.Second), kgo.MetadataMinAge(50*time.Millisecond))
	if err != nil {
		return nil, err
	}
	return &target{cl, bootstrap}, nil
}

func (t *target) close() { t.cl.Close() }

// failed is a request's error in words for a user: which cluster does not answer, and why.
func (t *target) failed(err error) error {
	if parts, ok := errors.AsType[*kadm.ShardErrors](err); ok && len(parts.Errs) > 0 {
		err = parts.Errs[0].Err
	}
	if _, ok := errors.AsType[*net.OpError](err); ok {
		return fmt.Errorf("%s: %w", t.seeds, plain(err))
	}
	return err
}

// layout is where the partitions of one topic are led.
type layout struct {
	topic   string
	id      [16]byte
	leaders []string // HOST:PORT by partition, "" without a leader
}

func (t *target) layout(ctx context.Context, topic string) (*layout, error) {
	req := kmsg.NewPtrMetadataRequest()
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = &topic
	req.Topics = append(req.Topics, rt)
	req.AllowAutoTopicCreation = false
	resp, err := req.RequestWith(ctx, t.cl)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.seeds, err)
	}
	addrs := map[int32]string{}
	for _, b := range resp.Brokers {
		addrs[b.NodeID] = fmt.Sprintf("%s:%d", b.Host, b.Port)
	}
	for _, mt := range resp.Topics {
		if mt.Topic == nil || *mt.Topic != topic {
			continue
		}
		if err := kerr.ErrorForCode(mt.ErrorCode); err != nil {
			return nil, fmt.Errorf("%s: topic %s: %w", t.seeds, topic, err)
		}
		l := &layout{topic: topic, id: mt.TopicID, leaders: make([]string, len(mt.Partitions))}
		for _, p := range mt.Partitions {
			if int(p.Partition) < len(l.leaders) {
				l.leaders[p.Partition] = addrs[p.Leader]
			}
		}
		return l, nil
	}
	return nil, fmt.Errorf("%s: topic %s is not in the metadata", t.seeds, topic)
}

// leaderPatience bounds the wait for a new topic's leaders.
const leaderPatience = time.Minute

// ensureTopic finds the leaders of a topic, and creates it when it is missing and create is set.
func (t *target) ensureTopic(ctx context.Context, topic string, create bool, partitions int) (*layout, error) {
	l, err := t.layout(ctx, topic)
	switch {
	case err == nil && !ready(l):
		return nil, fmt.Errorf("%s: topic %s has partitions without a leader", t.seeds, topic)
	case err == nil:
		return l, nil
	case !errors.Is(err, kerr.UnknownTopicOrPartition):
		return nil, err
	case !create:
		return nil, fmt.Errorf("%s: there is no topic %s: %w", t.seeds, topic, kerr.UnknownTopicOrPartition)
	}
	ctx, cancel := context.WithTimeout(ctx, leaderPatience)
	defer cancel()
	adm := kadm.NewClient(t.cl)
	if created, cerr := adm.CreateTopic(ctx, int32(partitions), -1, nil, topic); cerr != nil {
		if created.ErrMessage != "" {
			cerr = fmt.Errorf("%s: %w", created.ErrMessage, cerr)
		}
		return nil, fmt.Errorf("%s: topic %s could not be created: %w", t.seeds, topic, cerr)
	}
	for {
		l, err = t.layout(ctx, topic)
		if err == nil && ready(l) { // in the metadata; the leaders may not know it yet
			if _, err = t.ends(ctx, topic, false); err == nil {
				return l, nil
			}
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, fmt.Errorf("topic %s was created but has no leaders: %w", topic, ctx.Err())
		}
	}
}

func ready(l *layout) bool {
	for _, a := range l.leaders {
		if a == "" {
			return false
		}
	}
	return len(l.leaders) > 0
}

// ends are the offsets of a special timestamp (-1 latest, -2 earliest) of all partitions.
func (t *target) ends(ctx context.Context, topic string, earliest bool) ([]int64, error) {
	adm := kadm.NewClient(t.cl)
	list := adm.ListEndOffsets
	if earliest {
		list = adm.ListStartOffsets
	}
	got, err := list(ctx, topic)
	if err != nil {
		return nil, err
	}
	ps := got[topic]
	out := make([]int64, len(ps))
	for p, o := range ps {
		if o.Err != nil {
			return nil, fmt.Errorf("%s-%d: %w", topic, p, o.Err)
		}
		if int(p) < len(out) {
			out[p] = o.Offset
		}
	}
	return out, nil
}
