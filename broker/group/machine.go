package group

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/broker/coord"
	"stet/zerocopy/batch"
)

// machine is the state of one partition of __consumer_offsets.
type machine struct {
	c         *Coordinator
	partition int32
	s         *coord.Shard // nil while loading
	groups    map[string]*group
	out       []batch.KV // records of the running operation
	outBytes  int
}

func newMachine(c *Coordinator, partition int32) *machine {
	return &machine{c: c, partition: partition, groups: map[string]*group{}}
}

func (m *machine) take() []batch.KV {
	out := m.out
	m.out, m.outBytes = nil, 0
	return out
}

// An operation that may touch any number of offsets makes at most so many bytes
// of records and is then repeated: the records of one operation share a batch.
const maxOperationBytes = 256 << 10

func (m *machine) full() bool { return m.outBytes >= maxOperationBytes }

func (m *machine) emit(kv batch.KV) {
	m.out = append(m.out, kv)
	m.outBytes += len(kv.Key) + len(kv.Value) + 32
}

// timer runs f later as an operation of its own.
func (m *machine) timer(d time.Duration, f func()) *coord.Timer {
	return m.s.After(d, func() []batch.KV {
		f()
		return m.take()
	})
}

// Record key versions of __consumer_offsets that we read and write.
const (
	keyOffset0 = 0
	keyOffset  = 1
	keyGroup   = 2
)

// Replay implements coord.Machine. Records of a kind that we do not write (those
// of KIP-848 groups begin at key version 3) are passed over.
func (m *machine) Replay(r coord.Record) error {
	if len(r.Key) < 2 {
		return fmt.Errorf("%s: key of %d bytes", OffsetsTopic, len(r.Key))
	}
	switch (&kbin.Reader{Src: r.Key}).Int16() {
	case keyOffset0, keyOffset:
		return m.replayOffset(r)
	case keyGroup:
		if r.Offset < 0 {
			return nil // the operation that made it has the group up to date
		}
		return m.replayGroup(r)
	}
	return nil
}

func (m *machine) replayOffset(r coord.Record) error {
	key := kmsg.NewOffsetCommitKey()
	if err := key.ReadFrom(r.Key); err != nil {
		return fmt.Errorf("%s offset key: %w", OffsetsTopic, err)
	}
	tp := topicPartition{key.Topic, key.Partition}
	g := m.groups[key.Group]
	if r.Value == nil {
		if g != nil {
			delete(g.offsets, tp)
			m.dropIfGone(g)
		}
		return nil
	}
	v := kmsg.NewOffsetCommitValue()
	if err := v.ReadFrom(r.Value); err != nil {
		return fmt.Errorf("%s offset value: %w", OffsetsTopic, err)
	}
	o := &offset{offset: v.Offset, leaderEpoch: v.LeaderEpoch, metadata: v.Metadata, commitMs: v.CommitTimestamp, expireMs: -1, topicID: v.TopicID}
	if v.Version == 1 && v.ExpireTimestamp > 0 {
		o.expireMs = v.ExpireTimestamp
	}
	if v.Version < 3 {
		o.leaderEpoch = -1
	}
	if g == nil {
		g = m.newGroup(key.Group)
	}
	g.offsets[tp] = o
	return nil
}

func (m *machine) replayGroup(r coord.Record) error {
	key := kmsg.NewGroupMetadataKey()
	if err := key.ReadFrom(r.Key); err != nil {
		return fmt.Errorf("%s group key: %w", OffsetsTopic, err)
	}
	g := m.groups[key.Group]
	if r.Value == nil {
		if g != nil {
			g.reset()
			m.dropIfGone(g)
		}
		return nil
	}
	v := kmsg.NewGroupMetadataValue()
	if err := v.ReadFrom(r.Value); err != nil {
		return fmt.Errorf("%s group value: %w", OffsetsTopic, err)
	}
	if g == nil {
		g = m.newGroup(key.Group)
	}
	g.restore(&v)
	return nil
}

// dropIfGone forgets a group while loading when nothing of it is left.
func (m *machine) dropIfGone(g *group) {
	if m.s == nil && len(g.offsets) == 0 && len(g.members) == 0 && !g.written {
		delete(m.groups, g.id)
	}
}

// Loaded implements coord.Machine: members must send heartbeats from now on.
func (m *machine) Loaded(s *coord.Shard) {
	m.s = s
	for _, id := range slices.Sorted(maps.Keys(m.groups)) {
		g := m.groups[id]
		for _, mem := range g.members {
			m.resetHeartbeat(g, mem)
		}
	}
	m.scheduleExpiry()
}

// Unloaded implements coord.Machine.
func (m *machine) Unloaded(err error) {
	for _, g := range m.groups {
		for _, mem := range g.members {
			mem.failJoin(err)
			mem.failSync(err)
		}
	}
}

func (m *machine) newGroup(id string) *group {
	g := &group{id: id, members: map[string]*member{}, static: map[string]string{}, pending: map[string]*coord.Timer{}, offsets: map[topicPartition]*offset{}}
	m.groups[id] = g
	return g
}

// writeGroup writes the group's generation, members and assignments.
func (m *machine) writeGroup(g *group) {
	key := kmsg.NewGroupMetadataKey()
	key.Version, key.Group = keyGroup, g.id
	v := kmsg.NewGroupMetadataValue()
	v.Version = 3
	v.ProtocolType, v.Generation, v.CurrentStateTimestamp = g.protocolType, g.generation, g.stateMs
	if g.state != empty {
		v.Protocol, v.Leader = kmsg.StringPtr(g.protocol), kmsg.StringPtr(g.leader)
	}
	for _, id := range slices.Sorted(maps.Keys(g.members)) {
		mem := g.members[id]
		x := kmsg.NewGroupMetadataValueMember()
		x.MemberID, x.InstanceID, x.ClientID, x.ClientHost = mem.id, mem.instance, mem.clientID, mem.clientHost
		x.RebalanceTimeoutMillis, x.SessionTimeoutMillis = int32(mem.rebalanceTimeout.Milliseconds()), int32(mem.sessionTimeout.Milliseconds())
		x.Subscription, x.Assignment = nonNil(mem.metadata(g.protocol)), nonNil(mem.assignment)
		v.Members = append(v.Members, x)
	}
	g.written = true
	m.emit(batch.KV{Key: key.AppendTo(nil), Value: v.AppendTo(nil)})
}

func nonNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// removeGroup writes the tombstone of a group without members and offsets.
func (m *machine) removeGroup(g *group) {
	if g.written {
		key := kmsg.NewGroupMetadataKey()
		key.Version, key.Group = keyGroup, g.id
		m.emit(batch.KV{Key: key.AppendTo(nil)})
	}
	for _, t := range g.pending {
		t.Stop()
	}
	g.joinTimer.Stop()
	g.syncTimer.Stop()
	g.state = dead
	delete(m.groups, g.id)
}

// writeOffset writes a committed offset, nil to remove it.
func (m *machine) writeOffset(group string, tp topicPartition, o *offset) {
	key := kmsg.NewOffsetCommitKey()
	key.Version, key.Group, key.Topic, key.Partition = keyOffset, group, tp.topic, tp.partition
	kv := batch.KV{Key: key.AppendTo(nil)}
	if o != nil {
		v := kmsg.NewOffsetCommitValue()
		v.Version = 4
		v.Offset, v.LeaderEpoch, v.Metadata, v.CommitTimestamp, v.TopicID = o.offset, o.leaderEpoch, o.metadata, o.commitMs, o.topicID
		if o.expireMs >= 0 { // only version 1 has the field
			v.Version, v.ExpireTimestamp = 1, o.expireMs
		}
		kv.Value = v.AppendTo(nil)
	}
	m.emit(kv)
}
