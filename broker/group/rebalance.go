package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

func (m *machine) setState(g *group, s state) {
	g.state, g.stateMs = s, m.s.NowMs()
}

// maybePrepareRebalance begins a rebalance unless one is being prepared, and
// completes it when nobody is missing.
func (m *machine) maybePrepareRebalance(g *group) {
	if g.is(stable, completingRebalance, empty) {
		m.prepareRebalance(g)
	}
	m.maybeCompleteJoin(g)
}

func (m *machine) prepareRebalance(g *group) {
	if g.state == completingRebalance {
		for _, mem := range g.members {
			mem.assignment = nil
			mem.failSync(kerr.RebalanceInProgress)
		}
	}
	g.syncTimer.Stop()
	g.pendingSync = nil
	if g.state == empty {
		delay := m.c.o.Config.InitialRebalanceDelay
		g.initial, g.memberAdded = true, false
		m.initialDelay(g, delay, max(g.rebalanceTimeout()-delay, 0))
	} else {
		g.initial = false
		g.joinTimer = m.timer(g.rebalanceTimeout(), func() { m.completeJoin(g) })
	}
	m.setState(g, preparingRebalance)
}

// initialDelay waits for more members of a group that was empty, again and again
// while new ones come, but not beyond the rebalance timeout (KIP-134).
func (m *machine) initialDelay(g *group, delay, left time.Duration) {
	g.joinTimer = m.timer(delay, func() {
		if g.memberAdded && left > 0 {
			g.memberAdded = false
			next := min(m.c.o.Config.InitialRebalanceDelay, left)
			m.initialDelay(g, next, max(left-next, 0))
			return
		}
		m.completeJoin(g)
	})
}

func (m *machine) maybeCompleteJoin(g *group) {
	if g.state == preparingRebalance && !g.initial && g.allJoined() {
		m.completeJoin(g)
	}
}

// completeJoin ends the join phase: dynamic members that did not come back are
// removed, the others get the new generation.
func (m *machine) completeJoin(g *group) {
	g.joinTimer.Stop()
	g.initial = false
	for _, id := range g.memberIDs() {
		if mem := g.members[id]; mem.joining == nil && mem.instance == nil {
			m.removeMember(g, mem)
		}
	}
	if len(g.members) > 0 && !electLeader(g) {
		// Only static members are left and none of them is back: wait for them until
		// their sessions expire.
		g.joinTimer = m.timer(g.rebalanceTimeout(), func() { m.completeJoin(g) })
		return
	}
	g.generation++
	if len(g.members) == 0 {
		g.protocol, g.leader = "", ""
		m.setState(g, empty)
		m.writeGroup(g)
		return
	}
	g.protocol = g.selectProtocol()
	m.setState(g, completingRebalance)
	g.pendingSync = map[string]bool{}
	for _, id := range g.memberIDs() {
		mem := g.members[id]
		mem.isNew = false
		g.pendingSync[id] = true
		if mem.joining != nil {
			mem.joining.Complete(m.s, joinResponse(g, mem))
			mem.joining = nil
		}
		m.resetHeartbeat(g, mem)
	}
	generation := g.generation
	g.syncTimer = m.timer(g.rebalanceTimeout(), func() { m.syncTimedOut(g, generation) })
}

// electLeader keeps a leader that came back, or takes the first member that did.
func electLeader(g *group) bool {
	if mem := g.members[g.leader]; mem != nil && mem.joining != nil {
		return true
	}
	for _, id := range g.memberIDs() {
		if g.members[id].joining != nil {
			g.leader = id
			return true
		}
	}
	return false
}

// syncTimedOut removes members that joined a generation and never asked for their
// assignment.
func (m *machine) syncTimedOut(g *group, generation int32) {
	if g.generation != generation || !g.is(completingRebalance, stable) || len(g.pendingSync) == 0 {
		return
	}
	for id := range g.pendingSync {
		if mem := g.members[id]; mem != nil {
			m.removeMember(g, mem)
		}
	}
	m.maybePrepareRebalance(g)
}

// removeMember takes a member out; what that means for the rebalance is the caller's matter.
func (m *machine) removeMember(g *group, mem *member) {
	mem.heartbeat.Stop()
	mem.failJoin(kerr.UnknownMemberID)
	mem.failSync(kerr.UnknownMemberID)
	delete(g.members, mem.id)
	delete(g.pendingSync, mem.id)
	if mem.instance != nil && g.static[*mem.instance] == mem.id {
		delete(g.static, *mem.instance)
	}
	if g.leader == mem.id {
		g.leader = ""
		if ids := g.memberIDs(); len(ids) > 0 {
			g.leader = ids[0]
		}
	}
}

// memberGone removes a member that left or whose session expired.
func (m *machine) memberGone(g *group, mem *member) {
	m.removeMember(g, mem)
	switch g.state {
	case stable, completingRebalance, preparingRebalance:
		m.maybePrepareRebalance(g)
	}
}

// resetHeartbeat gives a member another session timeout.
func (m *machine) resetHeartbeat(g *group, mem *member) {
	m.heartbeatAfter(g, mem, mem.sessionTimeout)
}

func (m *machine) heartbeatAfter(g *group, mem *member, d time.Duration) {
	mem.heartbeat.Stop()
	mem.heartbeat = m.timer(d, func() { m.sessionExpired(g, mem) })
}

func (m *machine) sessionExpired(g *group, mem *member) {
	if g.state == dead || g.members[mem.id] != mem {
		return
	}
	// A member that waits for an answer of ours cannot send heartbeats; a new one
	// has a deadline of its own (newMemberTimeout).
	if !mem.isNew && (mem.joining != nil || mem.syncing != nil) {
		return
	}
	m.memberGone(g, mem)
}
