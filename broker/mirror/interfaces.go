package mirror

import (
	"context"

	"stet/broker/mirrormsg"
)

// GateKind says what happens to a client that wants to append.
type GateKind int8

// Gates of a partition.
const (
	// GateOpen: an ordinary topic, or a STOPPED one. Retention runs.
	GateOpen GateKind = iota
	// GateReadOnly: POLICY_VIOLATION with a message that names the mirror (SPEC section 6). Local retention does not run.
	GateReadOnly
	// GateUnknown: NOT_LEADER_OR_FOLLOWER, clients try again (SPEC section 3, rule f). Local retention does not run.
	GateUnknown
)

// Gate is what a partition is told to do with clients' appends.
type Gate struct {
	Kind   GateKind
	Mirror string
}

// EpochStart is an entry of the leader-epoch cache.
type EpochStart struct {
	Epoch int32
	Start int64
}

// OpenTransaction is a transaction without a marker.
type OpenTransaction struct {
	ProducerID       int64
	ProducerEpoch    int16
	CoordinatorEpoch int32 // -1: no marker of this producer was ever seen
	FirstOffset      int64
}

// Partition is a partition that this broker holds. Safe for concurrent use.
type Partition interface {
	Incarnation() int64
	IsLeader() bool
	LeaderEpoch() int32
	LogStartOffset() int64
	LogEndOffset() int64
	HighWatermark() int64
	LastStableOffset() int64
	// LatestEpoch is the epoch of the last batch, -1 for none.
	LatestEpoch() int32
	EpochEntries() []EpochStart
	OpenTransactions() []OpenTransaction
	// AppendMirrored stores whole checked batches as they are, past any gate.
	AppendMirrored(batches []byte) error
	// AppendControl appends control batches of our own as leader, past any gate: offsets and leader epoch are assigned.
	AppendControl(batches []byte) error
	// NeedsFullCopy says that a cut at the offset would leave keys without a value that they had, because compaction has
	// removed an older one in favour of what is cut (SPEC 4.7, C17).
	NeedsFullCopy(to int64) bool
	// Truncate removes everything from offset to on.
	Truncate(to int64) error
	// TruncateFullyAndStartAt empties the log, which then starts and ends at offset.
	TruncateFullyAndStartAt(offset int64) error
	// IncrementLogStartOffset never goes above the high watermark.
	IncrementLogStartOffset(to int64) error
	// WaitReplicated returns when every in-sync replica has everything below offset in this leader epoch.
	WaitReplicated(ctx context.Context, offset int64) error
	// WaitAllReplicas is WaitReplicated for all assigned replicas.
	WaitAllReplicas(ctx context.Context, offset int64) error
	// ReadBatches returns whole batches from offset on, at most about limit bytes, nil at the log end.
	ReadBatches(offset int64, limit int) ([]byte, error)
	// Flush makes the log durable.
	Flush() error
	// SetGate returns when no append that the new gate refuses is in flight.
	SetGate(g Gate)
}

// Partitions is the table of partitions that this broker holds.
type Partitions interface {
	// Get returns nil for a partition that is not here.
	Get(topic string, partition int32) Partition
	// Offline is why the log of a partition that should be here cannot be used, or nil.
	Offline(topic string, partition int32) error
}

// Controller is the metadata half of the mirror requests and what the mirror itself changes.
type Controller interface {
	CreateMirror(context.Context, *mirrormsg.CreateMirrorRequest) (*mirrormsg.CreateMirrorResponse, error)
	DeleteMirror(context.Context, *mirrormsg.DeleteMirrorRequest) (*mirrormsg.DeleteMirrorResponse, error)
	StartMirrorTopics(context.Context, *mirrormsg.StartMirrorTopicsRequest) (*mirrormsg.StartMirrorTopicsResponse, error)
	StopMirrorTopics(context.Context, *mirrormsg.StopMirrorTopicsRequest) (*mirrormsg.StopMirrorTopicsResponse, error)
	PauseMirrorTopics(context.Context, *mirrormsg.PauseMirrorTopicsRequest) (*mirrormsg.PauseMirrorTopicsResponse, error)
	ResumeMirrorTopics(context.Context, *mirrormsg.ResumeMirrorTopicsRequest) (*mirrormsg.ResumeMirrorTopicsResponse, error)
	BumpLeaderEpochs(context.Context, *mirrormsg.BumpLeaderEpochsRequest) (*mirrormsg.BumpLeaderEpochsResponse, error)
	// SetSourceClusterID keeps the source's cluster id, once, and returns the one that holds.
	SetSourceClusterID(ctx context.Context, mirror string, mirrorID [16]byte, clusterID string) (string, error)
	// SyncTopicConfigs sets and removes configs of a mirror topic and notes which ones the mirror has set.
	SyncTopicConfigs(ctx context.Context, mirror string, topicID [16]byte, set map[string]string, remove []string) error
	// GrowTopic adds partitions to a topic, up to count, although it is a mirror topic.
	GrowTopic(ctx context.Context, topic string, count int32) error
}

// Coordinator keeps the durable states. An error is a failure to reach it; codes are in the responses. It follows the
// metadata itself and writes tombstones for deleted mirrors and topics.
type Coordinator interface {
	ReadMirrorStates(context.Context, *mirrormsg.ReadMirrorStatesRequest) (*mirrormsg.ReadMirrorStatesResponse, error)
	WriteMirrorStates(context.Context, *mirrormsg.WriteMirrorStatesRequest) (*mirrormsg.WriteMirrorStatesResponse, error)
	// EnsureTopic creates __mirror_state when it is missing. The error says what it waits for.
	EnsureTopic(context.Context) error
}

// Groups are the consumer groups of this cluster.
type Groups interface {
	// ClampOffsets lowers committed offsets of the partition that lie above end to it.
	ClampOffsets(ctx context.Context, topic string, partition int32, end int64) error
}
