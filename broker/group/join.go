package group

import (
	"crypto/rand"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/broker/coord"
)

type parkedJoin = *coord.Parked[*kmsg.JoinGroupResponse]

// newMemberID is a client id or instance id and a random uuid, as Kafka makes them.
func newMemberID(prefix string) string {
	var u [16]byte
	_, _ = rand.Read(u[:]) // never fails
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	return fmt.Sprintf("%s-%x-%x-%x-%x-%x", prefix, u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

// join is the JoinGroup request. The answer is complete at once, or when the
// rebalance that it begins or takes part in is.
func (m *machine) join(req *kmsg.JoinGroupRequest, clientID, clientHost string) (parkedJoin, error) {
	g := m.groups[req.Group]
	if g == nil {
		if req.MemberID != "" {
			return nil, kerr.UnknownMemberID
		}
		g = m.newGroup(req.Group)
		g.stateMs = m.s.NowMs()
	}
	p, err := m.joinGroup(g, req, clientID, clientHost)
	if err != nil && len(g.members)+len(g.pending)+len(g.offsets) == 0 && !g.written {
		delete(m.groups, g.id)
	}
	return p, err
}

func (m *machine) joinGroup(g *group, req *kmsg.JoinGroupRequest, clientID, clientHost string) (parkedJoin, error) {
	_, isPending := g.pending[req.MemberID]
	known := g.members[req.MemberID] != nil
	if !g.supports(req.ProtocolType, req.Protocols) {
		return nil, kerr.InconsistentGroupProtocol
	}
	if !known && !m.fits(g, req, isPending) {
		m.dropPending(g, req.MemberID)
		return nil, kerr.GroupMaxSizeReached
	}
	j := &joiner{m: m, g: g, req: req, clientID: clientID, clientHost: clientHost, answer: coord.NewParked[*kmsg.JoinGroupResponse]()}
	switch {
	case req.MemberID == "" && req.InstanceID != nil:
		return j.static()
	case req.MemberID == "":
		return j.dynamic()
	case isPending:
		if req.InstanceID != nil {
			return nil, kerr.UnknownMemberID // a static member never gets an id to come back with
		}
		m.dropPending(g, req.MemberID)
		j.add(req.MemberID)
		return j.answer, nil
	}
	return j.rejoin()
}

// fits says whether a member may be added under group.max.size; one that
// replaces itself (static), or was counted as pending, may.
func (m *machine) fits(g *group, req *kmsg.JoinGroupRequest, isPending bool) bool {
	if req.InstanceID != nil && g.static[*req.InstanceID] != "" {
		return true
	}
	n := len(g.members) + len(g.pending)
	if isPending {
		n--
	}
	return n < m.c.o.Config.MaxSize
}

func (m *machine) dropPending(g *group, id string) {
	if t, ok := g.pending[id]; ok {
		t.Stop()
		delete(g.pending, id)
	}
}

// joiner is one JoinGroup request at work.
type joiner struct {
	m                    *machine
	g                    *group
	req                  *kmsg.JoinGroupRequest
	clientID, clientHost string
	answer               parkedJoin
}

// dynamic is a first join without an instance id. From version 4 on the member
// gets an id first and comes back with it, so that a lost answer leaves no ghost
// member behind (KIP-394).
func (j *joiner) dynamic() (parkedJoin, error) {
	id := newMemberID(j.clientID)
	if j.req.Version < 4 {
		j.add(id)
		return j.answer, nil
	}
	g, m := j.g, j.m
	g.pending[id] = m.timer(time.Duration(j.req.SessionTimeoutMillis)*time.Millisecond, func() {
		delete(g.pending, id)
		m.maybeCompleteJoin(g)
		m.forgetIfUnused(g)
	})
	resp := j.req.ResponseKind().(*kmsg.JoinGroupResponse)
	resp.ErrorCode, resp.Generation, resp.MemberID = kerr.MemberIDRequired.Code, -1, id
	if j.req.Version < 7 {
		resp.Protocol = kmsg.StringPtr("")
	}
	j.answer.Complete(m.s, resp)
	return j.answer, nil
}

// forgetIfUnused drops a group that never came to life.
func (m *machine) forgetIfUnused(g *group) {
	if g.state == empty && len(g.members)+len(g.pending)+len(g.offsets) == 0 && !g.written {
		delete(m.groups, g.id)
	}
}

// add makes a member and begins a rebalance.
func (j *joiner) add(id string) {
	g, m := j.g, j.m
	mem := &member{id: id, isNew: true}
	j.update(mem)
	mem.instance, mem.clientID, mem.clientHost = j.req.InstanceID, j.clientID, j.clientHost
	if len(g.members) == 0 {
		g.protocolType = j.req.ProtocolType
	}
	if g.leader == "" {
		g.leader = id
	}
	g.members[id] = mem
	if mem.instance != nil {
		g.static[*mem.instance] = id
	}
	if g.state == preparingRebalance && g.initial {
		g.memberAdded = true
	}
	m.heartbeatAfter(g, mem, newMemberTimeout)
	m.maybePrepareRebalance(g)
}

// A client that waits for its first join for longer than this is believed to be gone.
const newMemberTimeout = 5 * time.Minute

// update takes over what the request says, and parks the answer in the member.
func (j *joiner) update(mem *member) {
	mem.protocols = cloneProtocols(j.req.Protocols)
	mem.sessionTimeout = time.Duration(j.req.SessionTimeoutMillis) * time.Millisecond
	mem.rebalanceTimeout = time.Duration(j.req.RebalanceTimeoutMillis) * time.Millisecond
	if j.req.Version < 1 || j.req.RebalanceTimeoutMillis < 0 {
		mem.rebalanceTimeout = mem.sessionTimeout
	}
	mem.failJoin(kerr.RebalanceInProgress) // an older request of the same member
	mem.joining = j.answer
}

// The request's bytes may be reused when it is answered.
func cloneProtocols(ps []kmsg.JoinGroupRequestProtocol) []kmsg.JoinGroupRequestProtocol {
	out := make([]kmsg.JoinGroupRequestProtocol, len(ps))
	for i, p := range ps {
		out[i] = kmsg.JoinGroupRequestProtocol{Name: p.Name, Metadata: append([]byte{}, p.Metadata...)}
	}
	return out
}

// updateAndRebalance lets a known member join again.
func (j *joiner) updateAndRebalance(mem *member) {
	j.update(mem)
	j.m.maybePrepareRebalance(j.g)
}

// rejoin is a join of a member that knows its id.
func (j *joiner) rejoin() (parkedJoin, error) {
	g := j.g
	mem, err := g.checkMember(j.req.MemberID, j.req.InstanceID)
	if err != nil {
		return nil, err
	}
	switch g.state {
	case preparingRebalance:
		j.updateAndRebalance(mem)
	case completingRebalance:
		if mem.sameProtocols(j.req.Protocols) {
			j.current(mem) // the answer was lost on the way
		} else {
			j.updateAndRebalance(mem)
		}
	case stable:
		if g.leader == mem.id || !mem.sameProtocols(j.req.Protocols) {
			j.updateAndRebalance(mem)
		} else {
			j.current(mem)
		}
	default:
		return nil, kerr.UnknownMemberID
	}
	return j.answer, nil
}

// current answers with the current generation.
func (j *joiner) current(mem *member) {
	j.answer.Complete(j.m.s, joinResponse(j.g, mem))
	j.m.resetHeartbeat(j.g, mem)
}

// joinResponse tells a member about the current generation; the leader gets the members.
func joinResponse(g *group, mem *member) *kmsg.JoinGroupResponse {
	resp := kmsg.NewPtrJoinGroupResponse()
	resp.Generation, resp.LeaderID, resp.MemberID = g.generation, g.leader, mem.id
	resp.ProtocolType, resp.Protocol = kmsg.StringPtr(g.protocolType), kmsg.StringPtr(g.protocol)
	if g.leader == mem.id {
		resp.Members = joinMembers(g)
	}
	return resp
}

func joinMembers(g *group) []kmsg.JoinGroupResponseMember {
	var out []kmsg.JoinGroupResponseMember
	for _, id := range g.memberIDs() {
		x := kmsg.NewJoinGroupResponseMember()
		x.MemberID, x.InstanceID, x.ProtocolMetadata = id, g.members[id].instance, nonNil(g.members[id].metadata(g.protocol))
		out = append(out, x)
	}
	return out
}

// static is a join with an instance id and without a member id: a new static
// member, or the same one after a restart, which takes its place (KIP-345).
func (j *joiner) static() (parkedJoin, error) {
	g, m := j.g, j.m
	id := newMemberID(*j.req.InstanceID)
	oldID, replaces := g.static[*j.req.InstanceID]
	if !replaces {
		j.add(id)
		return j.answer, nil
	}
	oldLeader := g.leader
	mem := g.members[oldID]
	m.renameStatic(g, mem, id)
	j.update(mem)
	mem.clientID, mem.clientHost = j.clientID, j.clientHost
	m.resetHeartbeat(g, mem)
	switch g.state {
	case stable:
		if g.protocol != g.selectProtocol() {
			m.maybePrepareRebalance(g)
			return j.answer, nil
		}
		// The assignment stays as it is; only who holds it is written.
		m.writeGroup(g)
		resp := joinResponse(g, mem)
		if j.req.Version >= 9 {
			resp.SkipAssignment = g.leader == id
		} else {
			// A client that knows nothing of SkipAssignment must not compute a new
			// assignment that nobody waits for (KIP-814).
			resp.LeaderID, resp.Members = oldLeader, nil
		}
		mem.joining = nil
		j.answer.Complete(m.s, resp)
	case completingRebalance:
		m.maybePrepareRebalance(g)
	case preparingRebalance:
		m.maybeCompleteJoin(g)
	}
	return j.answer, nil
}

// renameStatic gives a static member a new id and fences the old one.
func (m *machine) renameStatic(g *group, mem *member, id string) {
	mem.failJoin(kerr.FencedInstanceID)
	mem.failSync(kerr.FencedInstanceID)
	delete(g.members, mem.id)
	if g.pendingSync[mem.id] {
		delete(g.pendingSync, mem.id)
		g.pendingSync[id] = true
	}
	if g.leader == mem.id {
		g.leader = id
	}
	mem.heartbeat.Stop()
	mem.id = id
	g.members[id] = mem
	g.static[*mem.instance] = id
}
