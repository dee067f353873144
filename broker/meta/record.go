package meta

// Record is a record of the metadata log. The types of this file are all there are.
type Record interface {
	// kind is the type number and version that are written.
	kind() (typ, version uint16)
	append(dst []byte) []byte
	read(r *reader, version uint16)
}

// ClusterID sets the cluster's id, once.
type ClusterID struct{ ID string }

// RegisterBroker adds a broker or replaces its registration.
type RegisterBroker struct {
	Broker Broker
	// Broker.Epoch -1: the offset of this record.
}

// UnregisterBroker removes a broker.
type UnregisterBroker struct{ ID int32 }

// CreateTopic creates a topic without partitions.
type CreateTopic struct {
	Name        string
	ID          [16]byte
	Incarnation int64 // -1: the offset of this record
}

// RemoveTopic removes a topic with its partitions, its configs and what mirrors set on it.
type RemoveTopic struct{ ID [16]byte }

// CreatePartition adds the next partition to a topic.
type CreatePartition struct {
	TopicID   [16]byte
	Partition int32
	State     Partition
}

// What ChangePartition leaves as it is.
const (
	NoLeaderChange     int32 = -2
	NoMinLeaderEpoch   int32 = -1
	NoBarrierEndChange int64 = -2
)

// ChangePartition changes a partition. Each one raises the partition epoch by
// one; a new leader or a MinLeaderEpoch raises the leader epoch to max(current +
// 1, MinLeaderEpoch). It is Kafka's PartitionChangeRecord with the additions of
// SPEC section 10, hence version 3.
type ChangePartition struct {
	TopicID         [16]byte
	Partition       int32
	ISR             []int32   // nil: no change
	Replicas        []int32   // nil: no change
	Leader          int32     // NoLeaderChange
	MinLeaderEpoch  int32     // NoMinLeaderEpoch
	BarrierEnd      int64     // NoBarrierEndChange; -1 removes it
	AlignedMirrorID *[16]byte // nil: no change; zero removes it
}

// NewChangePartition is a change that changes nothing yet.
func NewChangePartition(topicID [16]byte, partition int32) *ChangePartition {
	return &ChangePartition{
		TopicID: topicID, Partition: partition, Leader: NoLeaderChange,
		MinLeaderEpoch: NoMinLeaderEpoch, BarrierEnd: NoBarrierEndChange,
	}
}

// SetConfig sets or, with a nil value, removes a config key of a resource.
type SetConfig struct {
	Resource Resource
	Key      string
	Value    *string
}

// CreateMirror creates a mirror. Its configs are SetConfig records.
type CreateMirror struct {
	Name string
	ID   [16]byte
}

// RemoveMirror removes a mirror, its configs and the notes of what it set.
type RemoveMirror struct{ Name string }

// ProducerIDs moves the first producer id that was not handed out.
type ProducerIDs struct{ Next int64 }

// MirrorSetConfig notes that a mirror itself has set a topic config key, or with
// Set false that this is over.
type MirrorSetConfig struct {
	MirrorID, TopicID [16]byte
	Key               string
	Set               bool
}

// topicMirrorOffset restores Topic.MirrorOffset; in snapshots only.
type topicMirrorOffset struct {
	TopicID [16]byte
	Offset  int64
}

// endOfSnapshot restores the image's offset; the last record of a snapshot.
type endOfSnapshot struct{ Offset int64 }

// Type numbers are on disk: never reuse one.
const (
	typeClusterID         = 1
	typeRegisterBroker    = 2
	typeUnregisterBroker  = 3
	typeCreateTopic       = 4
	typeRemoveTopic       = 5
	typeCreatePartition   = 6
	typeChangePartition   = 7
	typeSetConfig         = 8
	typeCreateMirror      = 9
	typeRemoveMirror      = 10
	typeProducerIDs       = 11
	typeMirrorSetConfig   = 12
	typeTopicMirrorOffset = 13
	typeEndOfSnapshot     = 14
)

func newRecord(typ uint64) (rec Record, minVersion uint16) {
	switch typ {
	case typeClusterID:
		return new(ClusterID), 0
	case typeRegisterBroker:
		return new(RegisterBroker), 0
	case typeUnregisterBroker:
		return new(UnregisterBroker), 0
	case typeCreateTopic:
		return new(CreateTopic), 0
	case typeRemoveTopic:
		return new(RemoveTopic), 0
	case typeCreatePartition:
		return new(CreatePartition), 0
	case typeChangePartition:
		return new(ChangePartition), 3 // versions 0 to 2 are Kafka's and never written here
	case typeSetConfig:
		return new(SetConfig), 0
	case typeCreateMirror:
		return new(CreateMirror), 0
	case typeRemoveMirror:
		return new(RemoveMirror), 0
	case typeProducerIDs:
		return new(ProducerIDs), 0
	case typeMirrorSetConfig:
		return new(MirrorSetConfig), 0
	case typeTopicMirrorOffset:
		return new(topicMirrorOffset), 0
	case typeEndOfSnapshot:
		return new(endOfSnapshot), 0
	}
	return nil, 0
}

func (*ClusterID) kind() (typ, version uint16)         { return typeClusterID, 0 }
func (*RegisterBroker) kind() (typ, version uint16)    { return typeRegisterBroker, 0 }
func (*UnregisterBroker) kind() (typ, version uint16)  { return typeUnregisterBroker, 0 }
func (*CreateTopic) kind() (typ, version uint16)       { return typeCreateTopic, 0 }
func (*RemoveTopic) kind() (typ, version uint16)       { return typeRemoveTopic, 0 }
func (*CreatePartition) kind() (typ, version uint16)   { return typeCreatePartition, 0 }
func (*ChangePartition) kind() (typ, version uint16)   { return typeChangePartition, 3 }
func (*SetConfig) kind() (typ, version uint16)         { return typeSetConfig, 0 }
func (*CreateMirror) kind() (typ, version uint16)      { return typeCreateMirror, 0 }
func (*RemoveMirror) kind() (typ, version uint16)      { return typeRemoveMirror, 0 }
func (*ProducerIDs) kind() (typ, version uint16)       { return typeProducerIDs, 0 }
func (*MirrorSetConfig) kind() (typ, version uint16)   { return typeMirrorSetConfig, 0 }
func (*topicMirrorOffset) kind() (typ, version uint16) { return typeTopicMirrorOffset, 0 }
func (*endOfSnapshot) kind() (typ, version uint16)     { return typeEndOfSnapshot, 0 }
