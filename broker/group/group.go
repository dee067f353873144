package group

import (
	"bytes"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/broker/coord"
)

type state int8

const (
	empty state = iota
	preparingRebalance
	completingRebalance
	stable
	dead
)

func (s state) String() string {
	return [...]string{"Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"}[s]
}

// group is a classic group, or just committed offsets under a group id.
type group struct {
	id           string
	state        state
	stateMs      int64 // when the state began
	protocolType string
	protocol     string // selected, "" if none
	generation   int32
	leader       string
	members      map[string]*member
	static       map[string]string       // instance id -> member id
	pending      map[string]*coord.Timer // member ids that were given out and not joined with yet (KIP-394)
	offsets      map[topicPartition]*offset
	written      bool // there is a metadata record

	joinTimer   *coord.Timer
	initial     bool // the first rebalance of an empty group, which waits for more members
	memberAdded bool // since the initial delay began last
	syncTimer   *coord.Timer
	pendingSync map[string]bool
}

// member is a member of a group.
type member struct {
	id, clientID, clientHost string
	instance                 *string
	rebalanceTimeout         time.Duration
	sessionTimeout           time.Duration
	protocols                []kmsg.JoinGroupRequestProtocol
	assignment               []byte
	isNew                    bool // has not completed a join yet
	heartbeat                *coord.Timer
	joining                  *coord.Parked[*kmsg.JoinGroupResponse]
	syncing                  *coord.Parked[syncResult]
}

type syncResult struct {
	assignment             []byte
	protocolType, protocol string
}

func (mem *member) failJoin(err error) {
	if mem.joining != nil {
		mem.joining.Fail(err)
		mem.joining = nil
	}
}

func (mem *member) failSync(err error) {
	if mem.syncing != nil {
		mem.syncing.Fail(err)
		mem.syncing = nil
	}
}

func (mem *member) metadata(protocol string) []byte {
	for _, p := range mem.protocols {
		if p.Name == protocol {
			return p.Metadata
		}
	}
	return nil
}

// sameProtocols compares names and metadata in order.
func (mem *member) sameProtocols(other []kmsg.JoinGroupRequestProtocol) bool {
	return slices.EqualFunc(mem.protocols, other, func(a, b kmsg.JoinGroupRequestProtocol) bool {
		return a.Name == b.Name && bytes.Equal(a.Metadata, b.Metadata)
	})
}

// reset forgets everything but the offsets; a tombstone was read.
func (g *group) reset() {
	g.state, g.protocolType, g.protocol, g.leader, g.generation, g.written = empty, "", "", "", 0, false
	g.members, g.static = map[string]*member{}, map[string]string{}
}

// restore takes over a metadata record.
func (g *group) restore(v *kmsg.GroupMetadataValue) {
	g.reset()
	g.written = true
	g.protocolType, g.generation, g.stateMs = v.ProtocolType, v.Generation, v.CurrentStateTimestamp
	if v.Version < 2 {
		g.stateMs = -1
	}
	if v.Protocol != nil {
		g.protocol = *v.Protocol
	}
	if v.Leader != nil {
		g.leader = *v.Leader
	}
	for _, x := range v.Members {
		mem := &member{
			id: x.MemberID, instance: x.InstanceID, clientID: x.ClientID, clientHost: x.ClientHost, assignment: bytes.Clone(x.Assignment),
			sessionTimeout: time.Duration(x.SessionTimeoutMillis) * time.Millisecond, rebalanceTimeout: time.Duration(x.RebalanceTimeoutMillis) * time.Millisecond,
			protocols: []kmsg.JoinGroupRequestProtocol{{Name: g.protocol, Metadata: bytes.Clone(x.Subscription)}},
		}
		if v.Version < 1 {
			mem.rebalanceTimeout = mem.sessionTimeout
		}
		g.members[mem.id] = mem
		if mem.instance != nil {
			g.static[*mem.instance] = mem.id
		}
	}
	if len(g.members) > 0 {
		g.state = stable
	}
}

func (g *group) is(states ...state) bool { return slices.Contains(states, g.state) }

// memberIDs in a fixed order.
func (g *group) memberIDs() []string { return slices.Sorted(maps.Keys(g.members)) }

// supports says whether a member with these protocols can join the others.
func (g *group) supports(protocolType string, protocols []kmsg.JoinGroupRequestProtocol) bool {
	if len(g.members) == 0 {
		return protocolType != "" && len(protocols) > 0
	}
	return g.protocolType == protocolType && slices.ContainsFunc(protocols, func(p kmsg.JoinGroupRequestProtocol) bool { return g.allSupport(p.Name) })
}

func (g *group) allSupport(protocol string) bool {
	for _, mem := range g.members {
		if !slices.ContainsFunc(mem.protocols, func(p kmsg.JoinGroupRequestProtocol) bool { return p.Name == protocol }) {
			return false
		}
	}
	return true
}

// selectProtocol is a vote: each member for the first of its protocols that all
// support; the most votes win, and the first name among equals.
func (g *group) selectProtocol() string {
	votes := map[string]int{}
	for _, mem := range g.members {
		for _, p := range mem.protocols {
			if g.allSupport(p.Name) {
				votes[p.Name]++
				break
			}
		}
	}
	best := ""
	for _, name := range slices.Sorted(maps.Keys(votes)) {
		if best == "" || votes[name] > votes[best] {
			best = name
		}
	}
	return best
}

func (g *group) rebalanceTimeout() time.Duration {
	var d time.Duration
	for _, mem := range g.members {
		d = max(d, mem.rebalanceTimeout)
	}
	return d
}

func (g *group) allJoined() bool {
	for _, mem := range g.members {
		if mem.joining == nil {
			return false
		}
	}
	return len(g.pending) == 0
}

// checkMember finds a member as Kafka does: a static one by its instance id,
// which must still be held by this member id.
func (g *group) checkMember(memberID string, instance *string) (*member, error) {
	if instance != nil {
		holder, ok := g.static[*instance]
		if !ok {
			return nil, kerr.UnknownMemberID
		}
		if holder != memberID {
			return nil, kerr.FencedInstanceID
		}
	}
	mem := g.members[memberID]
	if mem == nil {
		return nil, kerr.UnknownMemberID
	}
	return mem, nil
}

// subscribed says whether a topic is among the topics that the members consume;
// true as well if that cannot be known.
func (g *group) subscribed(topic string) bool {
	if g.protocolType != consumerProtocol {
		return len(g.members) > 0
	}
	for _, mem := range g.members {
		for _, p := range mem.protocols {
			meta := kmsg.NewConsumerMemberMetadata()
			if meta.ReadFrom(p.Metadata) != nil || slices.Contains(meta.Topics, topic) {
				return true
			}
		}
	}
	return false
}

const consumerProtocol = "consumer"
