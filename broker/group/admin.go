package group

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/broker/coord"
	"stet/zerocopy/batch"
)

// onShards runs an operation on every shard that is led here.
func (c *Coordinator) onShards(ctx context.Context, op func(m *machine) error) error {
	partitions := c.rt.Partitions()
	slices.Sort(partitions)
	for _, p := range partitions {
		err := c.rt.Do(ctx, p, func(m *machine, _ *coord.Shard) ([]batch.KV, error) {
			err := op(m)
			return m.take(), err
		})
		if err != nil && !errors.Is(err, kerr.NotCoordinator) { // given up meanwhile: another broker's
			return err
		}
	}
	return nil
}

// onShardsRepeated is onShards for an operation that stops when it has made enough
// records and says whether it has to be run again.
func (c *Coordinator) onShardsRepeated(ctx context.Context, op func(m *machine) (more bool)) error {
	for again := true; again; {
		again = false
		err := c.onShards(ctx, func(m *machine) error {
			again = op(m) || again
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// ListGroups lists the groups that are coordinated here, filtered by state
// (version 4, KIP-518) and type (version 5, KIP-848).
func (c *Coordinator) ListGroups(ctx context.Context, req *kmsg.ListGroupsRequest) *kmsg.ListGroupsResponse {
	resp := req.ResponseKind().(*kmsg.ListGroupsResponse)
	wanted := func(filter []string, value string) bool {
		return len(filter) == 0 || slices.ContainsFunc(filter, func(f string) bool { return strings.EqualFold(f, value) })
	}
	var groups []kmsg.ListGroupsResponseGroup
	err := c.onShards(ctx, func(m *machine) error {
		for _, g := range m.groups {
			if !wanted(req.StatesFilter, g.state.String()) || !wanted(req.TypesFilter, groupType) {
				continue
			}
			x := kmsg.NewListGroupsResponseGroup()
			x.Group, x.ProtocolType, x.GroupState, x.GroupType = g.id, g.protocolType, g.state.String(), groupType
			groups = append(groups, x)
		}
		return nil
	})
	slices.SortFunc(groups, func(a, b kmsg.ListGroupsResponseGroup) int { return strings.Compare(a.Group, b.Group) })
	resp.Groups, resp.ErrorCode = groups, code(err)
	return resp
}

const groupType = "Classic"

// DescribeGroups describes classic groups. A group that does not exist is Dead, or
// from version 6 on GROUP_ID_NOT_FOUND.
func (c *Coordinator) DescribeGroups(ctx context.Context, req *kmsg.DescribeGroupsRequest) *kmsg.DescribeGroupsResponse {
	resp := req.ResponseKind().(*kmsg.DescribeGroupsResponse)
	for _, id := range req.Groups {
		x := kmsg.NewDescribeGroupsResponseGroup()
		x.Group = id
		err := error(kerr.InvalidGroupID)
		if id != "" {
			err = c.do(ctx, id, func(m *machine) error {
				if g := m.groups[id]; g != nil {
					describe(g, &x)
					return nil
				}
				x.State = dead.String()
				if req.Version >= 6 {
					return kerr.GroupIDNotFound
				}
				return nil
			})
		}
		x.ErrorCode = code(err)
		if errors.Is(err, kerr.GroupIDNotFound) {
			x.ErrorMessage = kmsg.StringPtr("Group " + id + " not found.")
		}
		resp.Groups = append(resp.Groups, x)
	}
	return resp
}

func describe(g *group, x *kmsg.DescribeGroupsResponseGroup) {
	x.State, x.ProtocolType = g.state.String(), g.protocolType
	settled := g.state == stable
	if settled {
		x.Protocol = g.protocol
	}
	for _, id := range g.memberIDs() {
		mem := g.members[id]
		y := kmsg.NewDescribeGroupsResponseGroupMember()
		y.MemberID, y.InstanceID, y.ClientID, y.ClientHost = mem.id, mem.instance, mem.clientID, mem.clientHost
		y.ProtocolMetadata, y.MemberAssignment = []byte{}, []byte{}
		if settled {
			y.ProtocolMetadata, y.MemberAssignment = nonNil(mem.metadata(g.protocol)), nonNil(mem.assignment)
		}
		x.Members = append(x.Members, y)
	}
}

// DeleteGroups deletes groups without members, with their offsets.
func (c *Coordinator) DeleteGroups(ctx context.Context, req *kmsg.DeleteGroupsRequest) *kmsg.DeleteGroupsResponse {
	resp := req.ResponseKind().(*kmsg.DeleteGroupsResponse)
	for _, id := range req.Groups {
		x := kmsg.NewDeleteGroupsResponseGroup()
		x.Group = id
		x.ErrorCode = code(c.deleteGroup(ctx, id))
		resp.Groups = append(resp.Groups, x)
	}
	return resp
}

func (c *Coordinator) deleteGroup(ctx context.Context, id string) error {
	if id == "" {
		return kerr.InvalidGroupID
	}
	for more := true; more; {
		err := c.do(ctx, id, func(m *machine) (err error) {
			more, err = m.deleteGroup(id)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// deleteGroup removes a group's offsets and, when they are all on the way, the group.
func (m *machine) deleteGroup(id string) (more bool, err error) {
	g := m.groups[id]
	switch {
	case g == nil:
		return false, kerr.GroupIDNotFound
	case g.state != empty || len(g.pending) > 0:
		return false, kerr.NonEmptyGroup
	}
	for tp := range g.offsets {
		if m.full() {
			return true, nil
		}
		m.writeOffset(id, tp, nil)
	}
	clear(g.offsets)
	m.removeGroup(g)
	return false, nil
}

// ForgetTopic removes the committed offsets of a deleted topic in the groups that
// are coordinated here. Offsets that were committed to a topic of the same name
// made again since then, which is told by its id, stay.
func (c *Coordinator) ForgetTopic(ctx context.Context, topic string, id [16]byte) error {
	return c.onShardsRepeated(ctx, func(m *machine) bool {
		for _, g := range m.groups {
			for tp, o := range g.offsets {
				if tp.topic == topic && (o.topicID == id || o.topicID == [16]byte{}) {
					if m.full() {
						return true
					}
					m.writeOffset(g.id, tp, nil)
				}
			}
		}
		return false
	})
}
