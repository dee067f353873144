package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"

	"stet/broker/log"
	"stet/broker/mirror"
	"stet/broker/replica"
)

// mirrorPartitions lets the mirror use the partitions of this broker.
type mirrorPartitions struct{ b *Broker }

func (m mirrorPartitions) Get(topic string, partition int32) mirror.Partition {
	if p := m.b.replicas.Load().Get(topic, partition); p != nil {
		return mirrorPartition{p}
	}
	return nil
}

// Offline implements mirror.Partitions.
func (m mirrorPartitions) Offline(topic string, partition int32) error {
	r := m.b.replicas.Load()
	if p := r.Get(topic, partition); p != nil {
		return p.Log().Err()
	}
	return r.Failed(topic, partition)
}

// mirrorPartition is a partition as the mirror sees it.
type mirrorPartition struct{ p *replica.Partition }

func (m mirrorPartition) Incarnation() int64      { return m.p.Incarnation }
func (m mirrorPartition) IsLeader() bool          { return m.p.IsLeader() }
func (m mirrorPartition) LeaderEpoch() int32      { return m.p.LeaderEpoch() }
func (m mirrorPartition) LogStartOffset() int64   { return m.p.Log().LogStartOffset() }
func (m mirrorPartition) LogEndOffset() int64     { return m.p.Log().LogEndOffset() }
func (m mirrorPartition) HighWatermark() int64    { return m.p.Log().HighWatermark() }
func (m mirrorPartition) LastStableOffset() int64 { return m.p.Log().LastStableOffset() }

func (m mirrorPartition) LatestEpoch() int32 {
	if e, ok := m.p.Log().LatestEpoch(); ok {
		return e
	}
	return -1
}

func (m mirrorPartition) EpochEntries() []mirror.EpochStart {
	entries := m.p.Log().EpochEntries()
	out := make([]mirror.EpochStart, len(entries))
	for i, e := range entries {
		out[i] = mirror.EpochStart{Epoch: e.Epoch, Start: e.Start}
	}
	return out
}

func (m mirrorPartition) OpenTransactions() []mirror.OpenTransaction {
	open := m.p.Log().OpenTransactions()
	out := make([]mirror.OpenTransaction, len(open))
	for i, t := range open {
		out[i] = mirror.OpenTransaction{ProducerID: t.ProducerID, ProducerEpoch: t.ProducerEpoch, CoordinatorEpoch: t.CoordinatorEpoch, FirstOffset: t.FirstOffset}
	}
	return out
}

func (m mirrorPartition) AppendMirrored(batches []byte) error {
	_, err := m.p.AppendAsFollower(batches)
	return err
}

func (m mirrorPartition) AppendControl(batches []byte) error {
	_, err := m.p.AppendAsLeader(batches, log.OriginInternal)
	return err
}

func (m mirrorPartition) NeedsFullCopy(to int64) bool { return m.p.Log().TruncationNeedsFullCopy(to) }

func (m mirrorPartition) Truncate(to int64) error { return m.p.Truncate(to) }

func (m mirrorPartition) TruncateFullyAndStartAt(offset int64) error {
	return m.p.TruncateFullyAndStartAt(offset)
}

func (m mirrorPartition) IncrementLogStartOffset(to int64) error {
	return m.p.Log().IncrementLogStartOffset(to)
}

func (m mirrorPartition) WaitReplicated(ctx context.Context, offset int64) error {
	return m.p.WaitCommitted(ctx, offset)
}

// WaitAllReplicas: with one broker the assigned replicas are the in-sync ones.
func (m mirrorPartition) WaitAllReplicas(ctx context.Context, offset int64) error {
	return m.p.WaitCommitted(ctx, offset)
}

func (m mirrorPartition) ReadBatches(offset int64, limit int) ([]byte, error) {
	return readBatches(m.p, offset, limit)
}

func (m mirrorPartition) Flush() error { return m.p.Log().Sync() }

func (m mirrorPartition) SetGate(g mirror.Gate) {
	m.p.Log().SetRetentionEnabled(g.Kind == mirror.GateOpen)
	m.p.SetGate(gate(g, m.p.Topic))
}

// gate is what clients are told.
func gate(g mirror.Gate, topic string) replica.Gate {
	switch g.Kind {
	case mirror.GateReadOnly:
		return replica.Gate{Err: kerr.PolicyViolation, Message: "topic " + topic + " is read-only: it is mirrored by mirror " + g.Mirror}
	case mirror.GateUnknown:
		return replica.Gate{Err: kerr.NotLeaderForPartition, Message: "topic " + topic + ": the state of mirror " + g.Mirror + " is not known yet"}
	}
	return replica.Gate{}
}
