package meta

import (
	"cmp"
	"maps"
	"slices"
	"sync"
)

// ResourceType is the type of a config resource; the numbers are Kafka's.
type ResourceType int8

// Config resource types.
const (
	ResourceTopic  ResourceType = 2
	ResourceBroker ResourceType = 4
	ResourceGroup  ResourceType = 32
	ResourceMirror ResourceType = 64
)

// Resource names a config resource. A broker resource with an empty name is the
// cluster-wide default.
type Resource struct {
	Type ResourceType
	Name string
}

// Topic is immutable.
type Topic struct {
	Name string
	ID   [16]byte
	// Incarnation is the metadata offset of the record that created the topic. A
	// topic that was deleted and made again differs in it, also with the same id.
	Incarnation int64
	// MirrorOffset is the metadata offset of the last change of mirror.name or
	// mirror.start, -1 if there was none.
	MirrorOffset int64
	Partitions   []*Partition // the index is the partition
}

// Internal says whether clients may not create the topic, and a mirror never copies it.
func (t *Topic) Internal() bool { return IsInternalTopic(t.Name) }

// Partition is immutable.
type Partition struct {
	Replicas, ISR  []int32
	Leader         int32 // -1: none
	LeaderEpoch    int32
	PartitionEpoch int32
	// BarrierEnd is the log end after the stop barrier, -1 while there was none (SPEC section 3, rule g).
	BarrierEnd int64
	// AlignedMirrorID is the mirror with whose source the log is aligned, zero for none (SPEC section 4.7).
	AlignedMirrorID [16]byte
}

// Mirror is immutable. Its configuration is Image.Config(ResourceMirror, Name).
type Mirror struct {
	Name string
	ID   [16]byte
}

// Broker is immutable.
type Broker struct {
	ID           int32
	Incarnation  [16]byte // random per process start
	Host         string
	Port         int32
	Rack         *string
	Epoch        int64 // metadata offset of the registration
	Fenced       bool
	ShuttingDown bool
}

// Alive says that the broker takes part: neither fenced nor shutting down.
func (b *Broker) Alive() bool { return !b.Fenced && !b.ShuttingDown }

// mirrorTopic is the key of what a mirror set on a topic.
type mirrorTopic struct{ mirror, topic [16]byte }

// Image is the metadata at one offset. It never changes.
type Image struct {
	offset         int64
	clusterID      string
	nextProducerID int64
	brokers        map[int32]*Broker
	mirrors        map[string]*Mirror
	topics         shardMap[string, *Topic]
	topicNames     shardMap[[16]byte, string]
	configs        shardMap[Resource, map[string]string]
	mirrorSet      shardMap[mirrorTopic, []string] // sorted config keys

	sortOnce sync.Once
	sorted   []*Topic
}

// Empty is the image before the first record.
func Empty() *Image { return &Image{} }

// Offset is the number of records applied: the metadata offset of the next one.
func (img *Image) Offset() int64 { return img.offset }

// ClusterID is empty until it was written.
func (img *Image) ClusterID() string { return img.clusterID }

// NextProducerID is the first producer id that was not handed out to a broker.
func (img *Image) NextProducerID() int64 { return img.nextProducerID }

// Brokers lists the registered brokers by id.
func (img *Image) Brokers() []*Broker {
	return slices.SortedFunc(maps.Values(img.brokers), func(a, b *Broker) int { return cmp.Compare(a.ID, b.ID) })
}

// Broker returns nil for an unknown id.
func (img *Image) Broker(id int32) *Broker { return img.brokers[id] }

// Topic returns nil for an unknown name.
func (img *Image) Topic(name string) *Topic {
	t, _ := img.topics.get(name)
	return t
}

// TopicByID returns nil for an unknown id.
func (img *Image) TopicByID(id [16]byte) *Topic {
	name, ok := img.topicNames.get(id)
	if !ok {
		return nil
	}
	return img.Topic(name)
}

// Topics lists all topics by name. The slice must not be changed.
func (img *Image) Topics() []*Topic {
	img.sortOnce.Do(func() {
		img.sorted = make([]*Topic, 0, img.topics.n)
		img.topics.each(func(_ string, t *Topic) bool {
			img.sorted = append(img.sorted, t)
			return true
		})
		slices.SortFunc(img.sorted, func(a, b *Topic) int { return cmp.Compare(a.Name, b.Name) })
	})
	return img.sorted
}

// Partition returns nil if the topic or the partition does not exist.
func (img *Image) Partition(topic string, partition int32) *Partition {
	t := img.Topic(topic)
	if t == nil || partition < 0 || int(partition) >= len(t.Partitions) {
		return nil
	}
	return t.Partitions[partition]
}

// Config returns the keys that were set on a resource, hidden ones included. The
// map must not be changed; it is nil when nothing is set.
func (img *Image) Config(typ ResourceType, name string) map[string]string {
	c, _ := img.configs.get(Resource{typ, name})
	return c
}

// ConfigResources lists the resources of a type that have configs, by name.
func (img *Image) ConfigResources(typ ResourceType) []Resource {
	var all []Resource
	img.configs.each(func(r Resource, _ map[string]string) bool {
		if r.Type == typ {
			all = append(all, r)
		}
		return true
	})
	slices.SortFunc(all, func(a, b Resource) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// Mirror returns nil for an unknown name.
func (img *Image) Mirror(name string) *Mirror { return img.mirrors[name] }

// Mirrors lists the mirrors by name.
func (img *Image) Mirrors() []*Mirror {
	return slices.SortedFunc(maps.Values(img.mirrors), func(a, b *Mirror) int { return cmp.Compare(a.Name, b.Name) })
}

// MirrorTopics lists the topics that belong to a mirror, whatever their state, by name.
func (img *Image) MirrorTopics(mirror string) []*Topic {
	var in []*Topic
	for _, t := range img.Topics() {
		if m, _ := MirrorNameOf(img.Config(ResourceTopic, t.Name)); m == mirror && m != "" {
			in = append(in, t)
		}
	}
	return in
}

// MirrorSetConfigs lists the topic config keys that a mirror itself has set on a
// topic, sorted (SPEC section 8: only those are removed again). It must not be changed.
func (img *Image) MirrorSetConfigs(mirrorID, topicID [16]byte) []string {
	keys, _ := img.mirrorSet.get(mirrorTopic{mirrorID, topicID})
	return keys
}

var internalTopics = map[string]bool{
	"__consumer_offsets": true, "__transaction_state": true, "__share_group_state": true, "__mirror_state": true,
	"__cluster_metadata": true,
}

// IsInternalTopic says whether a name is that of an internal topic.
func IsInternalTopic(name string) bool { return internalTopics[name] }
