package verify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sort"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/zerocopy/batch"
)

// Clusters compares the topics that match and that the destination has. mirroredTo
// is where the copied part of a partition ends (LMO), after which the destination
// has records of its own; -1, or a nil function: it is all copied.
func Clusters(ctx context.Context, source, destination *kgo.Client, match func(topic string) bool, mirroredTo func(topic string, partition int32) int64) (*Report, error) {
	dst, err := describe(ctx, destination)
	if err != nil {
		return nil, fmt.Errorf("destination: %w", err)
	}
	src, err := describe(ctx, source)
	if err != nil {
		return nil, fmt.Errorf("source: %w", err)
	}
	r := &Report{}
	var names []string
	for name := range dst {
		if match(name) {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	for _, name := range names {
		from, ok := src[name]
		if !ok {
			return nil, fmt.Errorf("topic %s: the source does not have it", name)
		}
		if a, b := from.id, dst[name].id; a != b && a != ([16]byte{}) && b != ([16]byte{}) {
			r.Partitions = append(r.Partitions, Partition{Topic: name, Difference: &Difference{Byte: -1, Text: "the topic ids differ: it is another topic of the same name"}})
			continue
		}
		n := max(len(from.leaders), len(dst[name].leaders))
		for i := range n {
			p := Partition{Topic: name, Partition: int32(i)}
			if i >= len(from.leaders) || i >= len(dst[name].leaders) {
				side := "source"
				if i >= len(from.leaders) {
					side = "destination"
				}
				p.Difference = &Difference{Byte: -1, Text: "only the " + side + " has this partition"}
				r.Partitions = append(r.Partitions, p)
				continue
			}
			a := &clusterStream{ctx: ctx, cl: source, topic: from, name: name, index: int32(i)}
			b := &clusterStream{ctx: ctx, cl: destination, topic: dst[name], name: name, index: int32(i)}
			limit := int64(-1)
			if mirroredTo != nil {
				limit = mirroredTo(name, int32(i))
			}
			if err := compareStreams(ctx, &p, a, b, limit); err != nil {
				return nil, fmt.Errorf("%s-%d: %w", name, i, err)
			}
			r.Partitions = append(r.Partitions, p)
		}
	}
	if len(r.Partitions) == 0 {
		return nil, errors.New("no topic of the destination matches")
	}
	return r.finish(), nil
}

func compareStreams(ctx context.Context, p *Partition, a, b *clusterStream, limit int64) error {
	var err error
	if p.Source, err = a.bounds(ctx); err != nil {
		return fmt.Errorf("source: %w", err)
	}
	if p.Destination, err = b.bounds(ctx); err != nil {
		return fmt.Errorf("destination: %w", err)
	}
	p.From, p.To = max(p.Source.Start, p.Destination.Start), min(p.Source.End, p.Destination.End)
	if limit >= 0 && limit < p.To {
		p.To = limit
	}
	if p.To <= p.From {
		p.To = p.From
		return nil
	}
	a.offset, a.end = p.From, p.To
	b.offset, b.end = p.From, p.To
	return compare(p, a, b)
}

type topicMeta struct {
	id      [16]byte
	leaders []int32
}

func describe(ctx context.Context, cl *kgo.Client) (map[string]*topicMeta, error) {
	req := kmsg.NewPtrMetadataRequest()
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, err
	}
	topics := map[string]*topicMeta{}
	for _, t := range resp.Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil || t.Topic == nil {
			continue
		}
		m := &topicMeta{id: t.TopicID, leaders: make([]int32, len(t.Partitions))}
		for _, p := range t.Partitions {
			if int(p.Partition) < len(m.leaders) {
				m.leaders[p.Partition] = p.Leader
			}
		}
		topics[*t.Topic] = m
	}
	return topics, nil
}

// clusterStream reads one partition with plain fetches.
type clusterStream struct {
	ctx         context.Context
	cl          *kgo.Client
	topic       *topicMeta
	name        string
	index       int32
	offset, end int64
	pending     []byte
}

const (
	fetchBytes = 8 << 20
	maxTries   = 20
)

func (s *clusterStream) leader() *kgo.Broker { return s.cl.Broker(int(s.topic.leaders[s.index])) }

func (s *clusterStream) bounds(ctx context.Context) (Range, error) {
	var r Range
	for _, q := range []struct {
		ts  int64
		out *int64
	}{{-2, &r.Start}, {-1, &r.End}} {
		err := s.retry(ctx, func() error {
			req := kmsg.NewPtrListOffsetsRequest()
			req.ReplicaID = -1
			t := kmsg.NewListOffsetsRequestTopic()
			t.Topic = s.name
			p := kmsg.NewListOffsetsRequestTopicPartition()
			p.Partition, p.Timestamp = s.index, q.ts
			t.Partitions = append(t.Partitions, p)
			req.Topics = append(req.Topics, t)
			kresp, err := s.leader().RetriableRequest(ctx, req)
			if err != nil {
				return err
			}
			resp := kresp.(*kmsg.ListOffsetsResponse)
			if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
				return errors.New("the answer to ListOffsets lacks the partition")
			}
			rp := resp.Topics[0].Partitions[0]
			*q.out = rp.Offset
			return kerr.ErrorForCode(rp.ErrorCode)
		})
		if err != nil {
			return r, err
		}
	}
	return r, nil
}

// retry follows the leader when it moves.
func (s *clusterStream) retry(ctx context.Context, f func() error) error {
	for try := 1; ; try++ {
		err := f()
		if err == nil || try == maxTries || ctx.Err() != nil || !kerr.IsRetriable(err) && !isTransport(err) {
			return err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
		if m, err := describe(ctx, s.cl); err == nil && m[s.name] != nil && len(m[s.name].leaders) == len(s.topic.leaders) {
			s.topic = m[s.name]
		}
	}
}

func isTransport(err error) bool {
	var k *kerr.Error
	return !errors.As(err, &k)
}

// Next implements Stream.
func (s *clusterStream) Next() (batch.Batch, error) {
	for {
		if len(s.pending) > 0 {
			b, rest, err := batch.Next(s.pending)
			if err == nil {
				s.pending = rest
				s.offset = b.NextOffset()
				return b, nil
			}
			if !errors.Is(err, batch.ErrIncomplete) {
				return nil, err
			}
			s.pending = nil
		}
		if s.offset >= s.end {
			return nil, io.EOF
		}
		if err := s.retry(s.ctx, s.fetch); err != nil {
			return nil, err
		}
		if len(s.pending) == 0 {
			return nil, fmt.Errorf("offset %d: no records where the end is %d", s.offset, s.end)
		}
	}
}

func (s *clusterStream) fetch() error {
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID = -1
	req.ReplicaState.ID = -1
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 1000, 1, fetchBytes
	req.SessionEpoch = -1
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = s.name, s.topic.id
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = s.index, s.offset, fetchBytes
	p.CurrentLeaderEpoch, p.LastFetchedEpoch, p.LogStartOffset = -1, -1, -1
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	kresp, err := s.leader().RetriableRequest(s.ctx, req)
	if err != nil {
		return err
	}
	resp := kresp.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return errors.New("the answer to Fetch lacks the partition")
	}
	rp := resp.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(rp.ErrorCode); err != nil {
		return err
	}
	s.pending = rp.RecordBatches
	return nil
}
