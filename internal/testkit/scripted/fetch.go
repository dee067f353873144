package scripted

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fetchSession is the incremental session of one connection (KIP-227).
type fetchSession struct {
	id    int32
	epoch int32
	parts []*sessionPart // in the order of service: who was served goes to the end
}

type sessionPart struct {
	topic string
	id    [16]byte
	req   kmsg.FetchRequestTopicPartition
	// as last told
	hw, start int64
	told      bool
}

func (s *fetchSession) update(c *Cluster, r *kmsg.FetchRequest) {
	for _, t := range r.Topics {
		name := t.Topic
		if r.Version >= 13 {
			name = c.nameOf(t.TopicID)
		}
		for _, p := range t.Partitions {
			if sp := s.find(name, t.TopicID, p.Partition); sp != nil {
				sp.req, sp.told = p, false
			} else {
				s.parts = append(s.parts, &sessionPart{topic: name, id: t.TopicID, req: p})
			}
		}
	}
	for _, t := range r.ForgottenTopics {
		name := t.Topic
		if r.Version >= 13 {
			name = c.nameOf(t.TopicID)
		}
		for _, p := range t.Partitions {
			for i, sp := range s.parts {
				if sp.topic == name && sp.id == t.TopicID && sp.req.Partition == p {
					s.parts = append(s.parts[:i], s.parts[i+1:]...)
					break
				}
			}
		}
	}
}

func (s *fetchSession) find(topic string, id [16]byte, partition int32) *sessionPart {
	for _, sp := range s.parts {
		if sp.topic == topic && sp.id == id && sp.req.Partition == partition {
			return sp
		}
	}
	return nil
}

func (c *Cluster) nameOf(id [16]byte) string {
	for _, t := range c.topics {
		if t.ID == id {
			return t.Name
		}
	}
	return ""
}

func (b *Broker) fetch(r *kmsg.FetchRequest, s *fetchSession) kmsg.Response {
	c := b.c
	c.mu.Lock()
	defer c.mu.Unlock()
	resp := r.ResponseKind().(*kmsg.FetchResponse)
	switch {
	case r.Version < 7 || r.SessionEpoch == -1:
		*s = fetchSession{}
		s.update(c, r)
	case r.SessionEpoch == 0:
		*s = fetchSession{id: s.id + 1}
		s.update(c, r)
	case r.SessionID != s.id:
		resp.ErrorCode = kerr.FetchSessionIDNotFound.Code
		return resp
	case r.SessionEpoch != s.epoch+1:
		resp.ErrorCode = kerr.InvalidFetchSessionEpoch.Code
		return resp
	default:
		s.epoch = r.SessionEpoch
		s.update(c, r)
	}
	resp.SessionID = s.id
	until := time.Now().Add(time.Duration(r.MaxWaitMillis) * time.Millisecond)
	for {
		if b.fill(r, resp, s) || c.closed || c.Impatient || !time.Now().Before(until) {
			return resp
		}
		c.wait(time.Until(until))
	}
}

// fill reads for all partitions of the session and reports whether the response is worth sending now.
func (b *Broker) fill(r *kmsg.FetchRequest, resp *kmsg.FetchResponse, s *fetchSession) bool {
	resp.Topics = nil
	left, urgent := int(r.MaxBytes), false
	full := s.epoch == 0
	bytes := 0
	var served []*sessionPart
	rest := make([]*sessionPart, 0, len(s.parts))
	for _, sp := range s.parts {
		p := kmsg.NewFetchResponseTopicPartition()
		p.Partition = sp.req.Partition
		t := b.c.topics[sp.topic]
		var l *Log
		if r.Version >= 13 && (t == nil || t.ID != sp.id) {
			p.ErrorCode = kerr.UnknownTopicID.Code
		} else {
			l, p.ErrorCode = b.log(t, sp.req.Partition, sp.req.CurrentLeaderEpoch)
		}
		if l == nil {
			p.HighWatermark, p.LastStableOffset = -1, -1
			if t != nil && p.ErrorCode == kerr.NotLeaderForPartition.Code && r.Version >= 12 {
				p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = t.Logs[p.Partition].Leader, t.Logs[p.Partition].Epoch
			}
		} else {
			b.read(r, &p, l, sp, left, bytes == 0)
		}
		bytes += len(p.RecordBatches)
		left = max(left-len(p.RecordBatches), 0)
		urgent = urgent || p.ErrorCode != 0 || p.DivergingEpoch.EndOffset >= 0
		news := p.ErrorCode != 0 || len(p.RecordBatches) > 0 || p.DivergingEpoch.EndOffset >= 0 || sp.told && (sp.hw != p.HighWatermark || sp.start != p.LogStartOffset)
		if full || news || !sp.told && s.epoch > 0 {
			add(resp, sp, p)
		}
		if news && sp.told {
			urgent = urgent || sp.start != p.LogStartOffset
		}
		if len(p.RecordBatches) > 0 {
			served = append(served, sp)
		} else {
			rest = append(rest, sp)
		}
	}
	done := urgent || bytes > 0 && bytes >= int(r.MinBytes) || r.MaxWaitMillis == 0
	if done || b.c.closed {
		s.parts = slices.Concat(rest, served)
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if sp := s.find(t.Topic, t.TopicID, p.Partition); sp != nil && done {
				sp.hw, sp.start, sp.told = p.HighWatermark, p.LogStartOffset, true
			}
		}
	}
	return done
}

func (b *Broker) read(r *kmsg.FetchRequest, p *kmsg.FetchResponseTopicPartition, l *Log, sp *sessionPart, left int, whole bool) {
	p.HighWatermark, p.LastStableOffset, p.LogStartOffset = l.HighWatermark(), l.HighWatermark(), l.Start
	if l.Open != nil {
		p.LastStableOffset = min(p.LastStableOffset, *l.Open)
	}
	offset := sp.req.FetchOffset
	if r.Version >= 12 && sp.req.LastFetchedEpoch >= 0 {
		epoch, end := l.epochEnd(sp.req.LastFetchedEpoch)
		if epoch < 0 {
			p.ErrorCode = kerr.OffsetOutOfRange.Code
			return
		}
		if epoch < sp.req.LastFetchedEpoch || end < offset {
			p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset = epoch, end
			return
		}
	}
	if offset < l.Start || offset > l.End() {
		p.ErrorCode = kerr.OffsetOutOfRange.Code
		return
	}
	p.RecordBatches = l.read(offset, min(int(sp.req.PartitionMaxBytes), left), whole)
}

func add(resp *kmsg.FetchResponse, sp *sessionPart, p kmsg.FetchResponseTopicPartition) {
	for i := range resp.Topics {
		if t := &resp.Topics[i]; t.Topic == sp.topic && t.TopicID == sp.id {
			t.Partitions = append(t.Partitions, p)
			return
		}
	}
	t := kmsg.NewFetchResponseTopic()
	t.Topic, t.TopicID = sp.topic, sp.id
	t.Partitions = append(t.Partitions, p)
	resp.Topics = append(resp.Topics, t)
}
