package meta

import (
	"fmt"
	"maps"
	"slices"
)

// Apply adds records to the image and returns the new image and what changed.
// The receiver stays as it was. Records that do not fit (a partition of an
// unknown topic, say) are a bug of the controller that made them and panic.
func (img *Image) Apply(records []Record) (*Image, *Delta) {
	b := newBuilder(img)
	for _, rec := range records {
		b.apply(rec)
		b.img.offset++
		if end, ok := rec.(*endOfSnapshot); ok {
			b.img.offset = end.Offset
		}
	}
	return b.img, b.delta()
}

// builder is an image while records are added to it.
type builder struct {
	old, img *Image
	edit     *edit
	// what was touched, for the delta
	topics  map[string]struct{}
	configs map[Resource]struct{}
	mirrors map[string]struct{}
	brokers map[int32]struct{}
	// partition slices that this builder may write to
	owned map[*Topic]bool
}

func newBuilder(old *Image) *builder {
	b := &builder{
		old: old, edit: new(edit),
		topics: map[string]struct{}{}, configs: map[Resource]struct{}{}, mirrors: map[string]struct{}{},
		brokers: map[int32]struct{}{}, owned: map[*Topic]bool{},
	}
	b.img = &Image{
		offset: old.offset, clusterID: old.clusterID, nextProducerID: old.nextProducerID, brokers: old.brokers, mirrors: old.mirrors,
		topics: old.topics, topicNames: old.topicNames, configs: old.configs, mirrorSet: old.mirrorSet,
	}
	return b
}

func (b *builder) apply(rec Record) {
	switch r := rec.(type) {
	case *ClusterID:
		b.img.clusterID = r.ID
	case *RegisterBroker:
		broker := r.Broker
		if broker.Epoch < 0 {
			broker.Epoch = b.img.offset
		}
		b.writableBrokers()[broker.ID] = &broker
		b.brokers[broker.ID] = struct{}{}
	case *UnregisterBroker:
		delete(b.writableBrokers(), r.ID)
		b.brokers[r.ID] = struct{}{}
	case *CreateTopic:
		b.createTopic(r)
	case *RemoveTopic:
		b.removeTopic(r.ID)
	case *CreatePartition:
		t := b.writableTopic(r.TopicID)
		if int(r.Partition) != len(t.Partitions) {
			panic(fmt.Sprintf("BUG: partition %s-%d is made when there are %d", t.Name, r.Partition, len(t.Partitions)))
		}
		state := r.State
		t.Partitions = append(t.Partitions, &state)
	case *ChangePartition:
		b.changePartition(r)
	case *SetConfig:
		b.setConfig(r.Resource, r.Key, r.Value)
	case *CreateMirror:
		b.writableMirrors()[r.Name] = &Mirror{Name: r.Name, ID: r.ID}
		b.mirrors[r.Name] = struct{}{}
	case *RemoveMirror:
		b.removeMirror(r.Name)
	case *ProducerIDs:
		b.img.nextProducerID = r.Next
	case *MirrorSetConfig:
		b.mirrorSetConfig(r)
	case *topicMirrorOffset:
		b.writableTopic(r.TopicID).MirrorOffset = r.Offset
	case *endOfSnapshot:
	default:
		panic(fmt.Sprintf("BUG: metadata record %T", rec))
	}
}

func (b *builder) writableBrokers() map[int32]*Broker {
	if len(b.brokers) == 0 {
		b.img.brokers = maps.Clone(b.img.brokers)
		if b.img.brokers == nil {
			b.img.brokers = map[int32]*Broker{}
		}
	}
	return b.img.brokers
}

func (b *builder) writableMirrors() map[string]*Mirror {
	b.img.mirrors = maps.Clone(b.img.mirrors)
	if b.img.mirrors == nil {
		b.img.mirrors = map[string]*Mirror{}
	}
	return b.img.mirrors
}

func (b *builder) createTopic(r *CreateTopic) {
	if b.img.Topic(r.Name) != nil || b.img.TopicByID(r.ID) != nil {
		panic(fmt.Sprintf("BUG: topic %s or its id exists already", r.Name))
	}
	t := &Topic{Name: r.Name, ID: r.ID, Incarnation: r.Incarnation, MirrorOffset: -1}
	if t.Incarnation < 0 {
		t.Incarnation = b.img.offset
	}
	b.owned[t] = true
	b.img.topics.set(b.edit, t.Name, t)
	b.img.topicNames.set(b.edit, t.ID, t.Name)
	b.topics[t.Name] = struct{}{}
}

func (b *builder) removeTopic(id [16]byte) {
	t := b.img.TopicByID(id)
	if t == nil {
		panic(fmt.Sprintf("BUG: topic id %x is removed but does not exist", id))
	}
	b.img.topics.remove(b.edit, t.Name)
	b.img.topicNames.remove(b.edit, id)
	b.topics[t.Name] = struct{}{}
	b.removeConfigs(Resource{ResourceTopic, t.Name})
	b.forgetMirrorSet(func(k mirrorTopic) bool { return k.topic == id })
}

// writableTopic returns a copy of the topic that belongs to this builder, with a
// partition slice of its own.
func (b *builder) writableTopic(id [16]byte) *Topic {
	t := b.img.TopicByID(id)
	if t == nil {
		panic(fmt.Sprintf("BUG: topic id %x does not exist", id))
	}
	if b.owned[t] {
		return t
	}
	c := *t
	c.Partitions = slices.Clone(t.Partitions)
	b.owned[&c] = true
	b.img.topics.set(b.edit, c.Name, &c)
	b.topics[c.Name] = struct{}{}
	return &c
}

func (b *builder) changePartition(r *ChangePartition) {
	t := b.writableTopic(r.TopicID)
	if r.Partition < 0 || int(r.Partition) >= len(t.Partitions) {
		panic(fmt.Sprintf("BUG: partition %s-%d does not exist", t.Name, r.Partition))
	}
	p := *t.Partitions[r.Partition]
	if r.ISR != nil {
		p.ISR = r.ISR
	}
	if r.Replicas != nil {
		p.Replicas = r.Replicas
	}
	if r.Leader != NoLeaderChange {
		p.Leader = r.Leader
	}
	if r.Leader != NoLeaderChange || r.MinLeaderEpoch != NoMinLeaderEpoch {
		p.LeaderEpoch = max(p.LeaderEpoch+1, r.MinLeaderEpoch)
	}
	if r.BarrierEnd != NoBarrierEndChange {
		p.BarrierEnd = r.BarrierEnd
	}
	if r.AlignedMirrorID != nil {
		p.AlignedMirrorID = *r.AlignedMirrorID
	}
	p.PartitionEpoch++
	t.Partitions[r.Partition] = &p
}

func (b *builder) setConfig(res Resource, key string, value *string) {
	old := b.img.Config(res.Type, res.Name)
	next := maps.Clone(old)
	if value == nil {
		delete(next, key)
	} else {
		if next == nil {
			next = map[string]string{}
		}
		next[key] = *value
	}
	if len(next) == 0 {
		b.img.configs.remove(b.edit, res)
	} else {
		b.img.configs.set(b.edit, res, next)
	}
	b.configs[res] = struct{}{}
	if res.Type == ResourceTopic && (key == ConfigMirrorName || key == ConfigMirrorStart) {
		if t := b.img.Topic(res.Name); t != nil {
			b.writableTopic(t.ID).MirrorOffset = b.img.offset
		}
	}
}

func (b *builder) removeConfigs(res Resource) {
	if _, ok := b.img.configs.get(res); ok {
		b.img.configs.remove(b.edit, res)
		b.configs[res] = struct{}{}
	}
}

func (b *builder) removeMirror(name string) {
	m := b.img.Mirror(name)
	if m == nil {
		panic(fmt.Sprintf("BUG: mirror %s is removed but does not exist", name))
	}
	delete(b.writableMirrors(), name)
	b.mirrors[name] = struct{}{}
	b.removeConfigs(Resource{ResourceMirror, name})
	b.forgetMirrorSet(func(k mirrorTopic) bool { return k.mirror == m.ID })
}

func (b *builder) mirrorSetConfig(r *MirrorSetConfig) {
	k := mirrorTopic{r.MirrorID, r.TopicID}
	keys, _ := b.img.mirrorSet.get(k)
	i, found := slices.BinarySearch(keys, r.Key)
	switch {
	case r.Set == found:
		return
	case r.Set:
		keys = slices.Insert(slices.Clone(keys), i, r.Key)
	default:
		keys = slices.Delete(slices.Clone(keys), i, i+1)
	}
	if len(keys) == 0 {
		b.img.mirrorSet.remove(b.edit, k)
	} else {
		b.img.mirrorSet.set(b.edit, k, keys)
	}
}

func (b *builder) forgetMirrorSet(match func(mirrorTopic) bool) {
	var gone []mirrorTopic
	b.img.mirrorSet.each(func(k mirrorTopic, _ []string) bool {
		if match(k) {
			gone = append(gone, k)
		}
		return true
	})
	for _, k := range gone {
		b.img.mirrorSet.remove(b.edit, k)
	}
}
