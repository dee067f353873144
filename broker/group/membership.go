package group

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/broker/coord"
)

// sync is the SyncGroup request: the leader brings the assignment, the others
// wait for it.
func (m *machine) sync(req *kmsg.SyncGroupRequest) (*coord.Parked[syncResult], error) {
	g := m.groups[req.Group]
	if g == nil {
		return nil, kerr.UnknownMemberID
	}
	mem, err := g.checkMember(req.MemberID, req.InstanceID)
	if err != nil {
		return nil, err
	}
	switch {
	case req.Generation != g.generation:
		return nil, kerr.IllegalGeneration
	case req.ProtocolType != nil && *req.ProtocolType != g.protocolType, req.Protocol != nil && *req.Protocol != g.protocol:
		return nil, kerr.InconsistentGroupProtocol
	case g.state == empty:
		return nil, kerr.UnknownMemberID
	case g.state == preparingRebalance:
		return nil, kerr.RebalanceInProgress
	case g.state == dead:
		return nil, kerr.CoordinatorNotAvailable
	}
	parked := coord.NewParked[syncResult]()
	delete(g.pendingSync, mem.id)
	if g.state == stable {
		parked.Complete(m.s, m.assigned(g, mem))
		m.resetHeartbeat(g, mem)
		return parked, nil
	}
	mem.failSync(kerr.RebalanceInProgress) // an older request of the same member
	mem.syncing = parked
	if g.leader == mem.id {
		m.assign(g, req.GroupAssignment)
	}
	return parked, nil
}

func (m *machine) assigned(g *group, mem *member) syncResult {
	return syncResult{nonNil(mem.assignment), g.protocolType, g.protocol}
}

// assign takes over the leader's assignment. Members that it leaves out get an
// empty one. The answers go out when the record is committed.
func (m *machine) assign(g *group, list []kmsg.SyncGroupRequestGroupAssignment) {
	for _, mem := range g.members {
		mem.assignment = []byte{}
	}
	for _, a := range list {
		if mem := g.members[a.MemberID]; mem != nil {
			mem.assignment = append([]byte{}, a.MemberAssignment...)
		}
	}
	m.setState(g, stable)
	m.writeGroup(g)
	for _, id := range g.memberIDs() {
		if mem := g.members[id]; mem.syncing != nil {
			mem.syncing.Complete(m.s, m.assigned(g, mem))
			mem.syncing = nil
			m.resetHeartbeat(g, mem)
		}
	}
}

// heartbeat is the Heartbeat request.
func (m *machine) heartbeat(req *kmsg.HeartbeatRequest) error {
	g := m.groups[req.Group]
	if g == nil {
		return kerr.UnknownMemberID
	}
	mem, err := g.checkMember(req.MemberID, req.InstanceID)
	if err != nil {
		return err
	}
	if req.Generation != g.generation {
		return kerr.IllegalGeneration
	}
	switch g.state {
	case preparingRebalance:
		m.resetHeartbeat(g, mem)
		return kerr.RebalanceInProgress
	case completingRebalance, stable:
		m.resetHeartbeat(g, mem)
		return nil
	case dead:
		return kerr.CoordinatorNotAvailable
	}
	return kerr.UnknownMemberID
}

// leave removes members: by member id, or by instance id alone (admin).
func (m *machine) leave(id string, list []kmsg.LeaveGroupRequestMember) ([]kmsg.LeaveGroupResponseMember, error) {
	g := m.groups[id]
	if g == nil {
		return nil, kerr.UnknownMemberID
	}
	var out []kmsg.LeaveGroupResponseMember
	for _, l := range list {
		r := kmsg.NewLeaveGroupResponseMember()
		r.MemberID, r.InstanceID = l.MemberID, l.InstanceID
		r.ErrorCode = code(m.leaveOne(g, l.MemberID, l.InstanceID))
		out = append(out, r)
	}
	return out, nil
}

func (m *machine) leaveOne(g *group, memberID string, instance *string) error {
	if _, ok := g.pending[memberID]; ok {
		if instance != nil {
			return kerr.UnknownMemberID
		}
		m.dropPending(g, memberID)
		m.maybeCompleteJoin(g)
		m.forgetIfUnused(g)
		return nil
	}
	if memberID == "" {
		if instance == nil {
			return kerr.UnknownMemberID
		}
		memberID = g.static[*instance]
		if memberID == "" {
			return kerr.UnknownMemberID
		}
	}
	mem, err := g.checkMember(memberID, instance)
	if err != nil {
		return err
	}
	m.memberGone(g, mem)
	return nil
}
