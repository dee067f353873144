package meta

import (
	"cmp"
	"maps"
	"slices"
)

// Delta is what differs between two images. A topic that was deleted and made
// again, also with the same name and id, is in DeletedTopics with its old and in
// CreatedTopics with its new incarnation. All lists are sorted.
type Delta struct {
	Old, New *Image

	CreatedTopics []*Topic
	DeletedTopics []*Topic // as they were
	ChangedTopics []TopicChange

	CreatedMirrors []*Mirror
	DeletedMirrors []*Mirror // as they were

	Configs []Resource // whose configs differ, deleted ones included
	Brokers []int32    // registered, changed or removed
}

// TopicChange is a topic of the same incarnation whose partitions or mirror offset differ.
type TopicChange struct{ Old, New *Topic }

// Empty says that nothing of interest differs (offset, producer ids and notes of
// what mirrors set may).
func (d *Delta) Empty() bool {
	return len(d.CreatedTopics)+len(d.DeletedTopics)+len(d.ChangedTopics)+len(d.CreatedMirrors)+len(d.DeletedMirrors)+len(d.Configs)+len(d.Brokers) == 0
}

// ConfigChanged says whether the configs of a resource differ.
func (d *Delta) ConfigChanged(typ ResourceType, name string) bool {
	return slices.Contains(d.Configs, Resource{typ, name})
}

// Diff computes the delta between any two images, for example after a snapshot was loaded.
func Diff(old, new *Image) *Delta {
	b := newBuilder(old)
	b.img = new
	for _, img := range []*Image{old, new} {
		img.topics.each(func(k string, _ *Topic) bool { b.topics[k] = struct{}{}; return true })
		img.configs.each(func(k Resource, _ map[string]string) bool { b.configs[k] = struct{}{}; return true })
		for k := range img.mirrors {
			b.mirrors[k] = struct{}{}
		}
		for k := range img.brokers {
			b.brokers[k] = struct{}{}
		}
	}
	return b.delta()
}

// delta compares everything that was touched.
func (b *builder) delta() *Delta {
	d := &Delta{Old: b.old, New: b.img}
	for _, name := range slices.Sorted(maps.Keys(b.topics)) {
		was, is := b.old.Topic(name), b.img.Topic(name)
		same := was != nil && is != nil && was.Incarnation == is.Incarnation
		if was != nil && !same {
			d.DeletedTopics = append(d.DeletedTopics, was)
		}
		if is != nil && !same {
			d.CreatedTopics = append(d.CreatedTopics, is)
		}
		if same && !equalTopics(was, is) {
			d.ChangedTopics = append(d.ChangedTopics, TopicChange{was, is})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b.mirrors)) {
		was, is := b.old.Mirror(name), b.img.Mirror(name)
		if was != nil && is != nil && *was == *is {
			continue
		}
		if was != nil {
			d.DeletedMirrors = append(d.DeletedMirrors, was)
		}
		if is != nil {
			d.CreatedMirrors = append(d.CreatedMirrors, is)
		}
	}
	for r := range b.configs {
		if !maps.Equal(b.old.Config(r.Type, r.Name), b.img.Config(r.Type, r.Name)) {
			d.Configs = append(d.Configs, r)
		}
	}
	slices.SortFunc(d.Configs, func(a, b Resource) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Name, b.Name))
	})
	for _, id := range slices.Sorted(maps.Keys(b.brokers)) {
		if !equalBrokers(b.old.Broker(id), b.img.Broker(id)) {
			d.Brokers = append(d.Brokers, id)
		}
	}
	return d
}

func equalTopics(a, b *Topic) bool {
	if a == b {
		return true
	}
	return a.Name == b.Name && a.ID == b.ID && a.Incarnation == b.Incarnation && a.MirrorOffset == b.MirrorOffset &&
		slices.EqualFunc(a.Partitions, b.Partitions, EqualPartitions)
}

// EqualPartitions compares all fields.
func EqualPartitions(a, b *Partition) bool {
	return a == b || slices.Equal(a.Replicas, b.Replicas) && slices.Equal(a.ISR, b.ISR) && a.Leader == b.Leader &&
		a.LeaderEpoch == b.LeaderEpoch && a.PartitionEpoch == b.PartitionEpoch && a.BarrierEnd == b.BarrierEnd &&
		a.AlignedMirrorID == b.AlignedMirrorID
}

func equalBrokers(a, b *Broker) bool {
	if a == nil || b == nil {
		return a == b
	}
	x, y := *a, *b
	sameRack := (x.Rack == nil) == (y.Rack == nil) && (x.Rack == nil || *x.Rack == *y.Rack)
	x.Rack, y.Rack = nil, nil
	return sameRack && x == y
}
