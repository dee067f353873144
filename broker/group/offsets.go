package group

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/broker/meta"
	"stet/broker/mirrormsg"
)

type topicPartition struct {
	topic     string
	partition int32
}

func compareTP(a, b topicPartition) int {
	if c := strings.Compare(a.topic, b.topic); c != 0 {
		return c
	}
	return int(a.partition) - int(b.partition)
}

// offset is a committed offset. It is never changed once it is in a group.
type offset struct {
	offset      int64
	leaderEpoch int32
	metadata    string
	commitMs    int64
	expireMs    int64 // -1: by the group's rule
	topicID     [16]byte
}

// OffsetCommit commits offsets (versions 2 to 10). A commit that carries a
// mirror's id (mirrormsg.SetCommitMirrorID) is one that mirroring has synced from
// the source (SPEC section 8).
func (c *Coordinator) OffsetCommit(ctx context.Context, req *kmsg.OffsetCommitRequest) *kmsg.OffsetCommitResponse {
	resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
	img := c.o.Image()
	synced, isSynced, tagErr := mirrormsg.CommitMirrorID(req)
	var commits []*commit
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := kmsg.NewOffsetCommitResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		topic, unknown := img.Topic(t.Topic), kerr.UnknownTopicOrPartition
		if req.Version >= 10 {
			topic, unknown = img.TopicByID(t.TopicID), kerr.UnknownTopicID
		}
		for j := range t.Partitions {
			p := &t.Partitions[j]
			rp := kmsg.NewOffsetCommitResponseTopicPartition()
			rp.Partition = p.Partition
			switch {
			case topic == nil:
				rp.ErrorCode = unknown.Code
			case p.Partition < 0 || int(p.Partition) >= len(topic.Partitions):
				rp.ErrorCode = kerr.UnknownTopicOrPartition.Code
			case p.Metadata != nil && len(*p.Metadata) > c.o.Config.OffsetMetadataMax:
				rp.ErrorCode = kerr.OffsetMetadataTooLarge.Code
			case isSynced && !mirroring(img, topic.Name, synced):
				rp.ErrorCode = mirrormsg.InvalidMirrorState.Code
			default:
				commits = append(commits, &commit{topic: len(resp.Topics), part: j, name: topic.Name, id: topic.ID, req: p})
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	var err error
	switch {
	case tagErr != nil:
		err = mirrormsg.Errorf(kerr.InvalidRequest, "%v", tagErr)
	case len(commits) > 0:
		err = c.do(ctx, req.Group, func(m *machine) error { return m.commit(req, commits, isSynced) })
	}
	if err != nil {
		for _, x := range commits {
			resp.Topics[x.topic].Partitions[x.part].ErrorCode = code(err)
		}
	}
	return resp
}

// mirroring says whether a topic is being mirrored by the mirror with this id.
func mirroring(img *meta.Image, topic string, mirrorID [16]byte) bool {
	name, state := img.TopicMirror(topic)
	m := img.Mirror(name)
	return m != nil && m.ID == mirrorID && state == meta.MirrorActive
}

// commit is one partition of an OffsetCommit request that passed the first checks.
type commit struct {
	topic, part int // in the response
	name        string
	id          [16]byte
	req         *kmsg.OffsetCommitRequestTopicPartition
}

func (m *machine) commit(req *kmsg.OffsetCommitRequest, commits []*commit, synced bool) error {
	g := m.groups[req.Group]
	if g == nil {
		switch {
		case req.Generation < 0:
			g = m.newGroup(req.Group)
			g.stateMs = m.s.NowMs()
		case req.Version >= 9:
			return kerr.GroupIDNotFound
		default:
			return kerr.IllegalGeneration
		}
	} else if err := m.checkCommit(g, req, synced); err != nil {
		return err
	}
	now := m.s.NowMs()
	for _, x := range commits {
		o := &offset{offset: x.req.Offset, leaderEpoch: -1, commitMs: now, expireMs: -1, topicID: x.id}
		if req.Version >= 6 {
			o.leaderEpoch = x.req.LeaderEpoch
		}
		if x.req.Metadata != nil {
			o.metadata = *x.req.Metadata
		}
		if req.Version >= 2 && req.Version <= 4 && req.RetentionTimeMillis >= 0 {
			o.expireMs = now + req.RetentionTimeMillis
		}
		m.writeOffset(g.id, topicPartition{x.name, x.req.Partition}, o)
	}
	return nil
}

// checkCommit says who may commit to a group that exists.
func (m *machine) checkCommit(g *group, req *kmsg.OffsetCommitRequest, synced bool) error {
	if synced && len(g.members)+len(g.pending) > 0 {
		return kerr.NonEmptyGroup // consumers here are ahead of what the source knows
	}
	if req.Generation < 0 && g.state == empty {
		return nil // a simple consumer or an administrator
	}
	if req.Generation >= 0 || req.MemberID != "" || req.InstanceID != nil {
		mem, err := g.checkMember(req.MemberID, req.InstanceID)
		if err != nil {
			return err
		}
		if req.Generation != g.generation {
			return kerr.IllegalGeneration
		}
		if g.state == completingRebalance {
			return kerr.RebalanceInProgress
		}
		m.resetHeartbeat(g, mem)
		return nil
	}
	return kerr.UnknownMemberID
}

// OffsetFetch returns committed offsets: of one group (versions 1 to 7) or of
// several (8 and later; by topic id from 10 on).
func (c *Coordinator) OffsetFetch(ctx context.Context, req *kmsg.OffsetFetchRequest) *kmsg.OffsetFetchResponse {
	resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
	if req.Version >= 8 {
		for i := range req.Groups {
			resp.Groups = append(resp.Groups, c.fetchGroup(ctx, req.Version, &req.Groups[i]))
		}
		return resp
	}
	// The old form is the new one with a single group.
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group, g.MemberEpoch = req.Group, -1
	if req.Topics != nil || req.Version < 2 {
		g.Topics = []kmsg.OffsetFetchRequestGroupTopic{}
	}
	for _, t := range req.Topics {
		x := kmsg.NewOffsetFetchRequestGroupTopic()
		x.Topic, x.Partitions = t.Topic, t.Partitions
		g.Topics = append(g.Topics, x)
	}
	out := c.fetchGroup(ctx, req.Version, &g)
	resp.ErrorCode = out.ErrorCode
	if out.ErrorCode != 0 && req.Version < 2 { // no place for it but the partitions
		out.Topics = allWith(&g, out.ErrorCode)
	}
	for _, t := range out.Topics {
		x := kmsg.NewOffsetFetchResponseTopic()
		x.Topic = t.Topic
		for _, p := range t.Partitions {
			y := kmsg.NewOffsetFetchResponseTopicPartition()
			y.Partition, y.Offset, y.LeaderEpoch, y.Metadata, y.ErrorCode = p.Partition, p.Offset, p.LeaderEpoch, p.Metadata, p.ErrorCode
			x.Partitions = append(x.Partitions, y)
		}
		resp.Topics = append(resp.Topics, x)
	}
	return resp
}

func fetched(partition int32, o *offset, code int16) kmsg.OffsetFetchResponseGroupTopicPartition {
	p := kmsg.NewOffsetFetchResponseGroupTopicPartition()
	p.Partition, p.Offset, p.LeaderEpoch, p.Metadata, p.ErrorCode = partition, -1, -1, kmsg.StringPtr(""), code
	if o != nil {
		metadata := o.metadata
		p.Offset, p.LeaderEpoch, p.Metadata = o.offset, o.leaderEpoch, &metadata
	}
	return p
}

func allWith(g *kmsg.OffsetFetchRequestGroup, code int16) []kmsg.OffsetFetchResponseGroupTopic {
	var out []kmsg.OffsetFetchResponseGroupTopic
	for _, t := range g.Topics {
		x := kmsg.NewOffsetFetchResponseGroupTopic()
		x.Topic, x.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			x.Partitions = append(x.Partitions, fetched(p, nil, code))
		}
		out = append(out, x)
	}
	return out
}

func (c *Coordinator) fetchGroup(ctx context.Context, version int16, req *kmsg.OffsetFetchRequestGroup) kmsg.OffsetFetchResponseGroup {
	out := kmsg.NewOffsetFetchResponseGroup()
	out.Group = req.Group
	img := c.o.Image()
	err := error(kerr.InvalidGroupID)
	if req.Group != "" {
		err = c.do(ctx, req.Group, func(m *machine) error {
			g := m.groups[req.Group]
			if g == nil && (req.MemberEpoch >= 0 || req.MemberID != nil) {
				return kerr.GroupIDNotFound
			}
			if req.Topics == nil {
				out.Topics = allOffsets(g, img, version)
			} else {
				out.Topics = someOffsets(g, img, version, req.Topics)
			}
			return nil
		})
	}
	if err != nil {
		out.Topics, out.ErrorCode = nil, code(err)
	}
	return out
}

func allOffsets(g *group, img *meta.Image, version int16) []kmsg.OffsetFetchResponseGroupTopic {
	if g == nil {
		return nil
	}
	var out []kmsg.OffsetFetchResponseGroupTopic
	for _, tp := range slices.SortedFunc(maps.Keys(g.offsets), compareTP) {
		if n := len(out); n == 0 || out[n-1].Topic != tp.topic {
			x := kmsg.NewOffsetFetchResponseGroupTopic()
			x.Topic = tp.topic
			out = append(out, x)
		}
		last := &out[len(out)-1]
		last.Partitions = append(last.Partitions, fetched(tp.partition, g.offsets[tp], 0))
	}
	if version < 10 {
		return out
	}
	// By id: a topic that is gone has none.
	var byID []kmsg.OffsetFetchResponseGroupTopic
	for _, t := range out {
		if topic := img.Topic(t.Topic); topic != nil {
			t.TopicID = topic.ID
			byID = append(byID, t)
		}
	}
	return byID
}

func someOffsets(g *group, img *meta.Image, version int16, topics []kmsg.OffsetFetchRequestGroupTopic) []kmsg.OffsetFetchResponseGroupTopic {
	out := []kmsg.OffsetFetchResponseGroupTopic{}
	for _, t := range topics {
		x := kmsg.NewOffsetFetchResponseGroupTopic()
		x.Topic, x.TopicID = t.Topic, t.TopicID
		name, code := t.Topic, int16(0)
		if version >= 10 {
			if topic := img.TopicByID(t.TopicID); topic != nil {
				name = topic.Name
			} else {
				code = kerr.UnknownTopicID.Code
			}
		}
		for _, p := range t.Partitions {
			var o *offset
			if g != nil && code == 0 {
				o = g.offsets[topicPartition{name, p}]
			}
			x.Partitions = append(x.Partitions, fetched(p, o, code))
		}
		out = append(out, x)
	}
	return out
}

// OffsetDelete removes committed offsets of topics that nobody in the group consumes.
func (c *Coordinator) OffsetDelete(ctx context.Context, req *kmsg.OffsetDeleteRequest) *kmsg.OffsetDeleteResponse {
	resp := req.ResponseKind().(*kmsg.OffsetDeleteResponse)
	if req.Group == "" {
		resp.ErrorCode = kerr.InvalidGroupID.Code
		return resp
	}
	img := c.o.Image()
	var topics []kmsg.OffsetDeleteResponseTopic
	err := c.do(ctx, req.Group, func(m *machine) error {
		g := m.groups[req.Group]
		if g == nil {
			return kerr.GroupIDNotFound
		}
		if len(g.members) > 0 && g.protocolType != consumerProtocol {
			return kerr.NonEmptyGroup
		}
		for _, t := range req.Topics {
			x := kmsg.NewOffsetDeleteResponseTopic()
			x.Topic = t.Topic
			for _, p := range t.Partitions {
				y := kmsg.NewOffsetDeleteResponseTopicPartition()
				y.Partition = p.Partition
				tp := topicPartition{t.Topic, p.Partition}
				switch {
				case img.Partition(t.Topic, p.Partition) == nil:
					y.ErrorCode = kerr.UnknownTopicOrPartition.Code
				case len(g.members) > 0 && g.subscribed(t.Topic):
					y.ErrorCode = kerr.GroupSubscribedToTopic.Code
				case g.offsets[tp] != nil:
					m.writeOffset(g.id, tp, nil)
				}
				x.Partitions = append(x.Partitions, y)
			}
			topics = append(topics, x)
		}
		return nil
	})
	if err != nil {
		resp.ErrorCode = code(err)
		return resp
	}
	resp.Topics = topics
	return resp
}
