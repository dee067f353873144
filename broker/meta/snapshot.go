package meta

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
)

// Records are records that make this image when applied to Empty, in an order
// that depends only on the image.
func (img *Image) Records() []Record {
	var recs []Record
	if img.clusterID != "" {
		recs = append(recs, &ClusterID{img.clusterID})
	}
	for _, b := range img.Brokers() {
		recs = append(recs, &RegisterBroker{*b})
	}
	if img.nextProducerID != 0 {
		recs = append(recs, &ProducerIDs{img.nextProducerID})
	}
	for _, m := range img.Mirrors() {
		recs = append(recs, &CreateMirror{m.Name, m.ID})
	}
	for _, t := range img.Topics() {
		recs = append(recs, &CreateTopic{t.Name, t.ID, t.Incarnation})
		for i, p := range t.Partitions {
			recs = append(recs, &CreatePartition{t.ID, int32(i), *p})
		}
	}
	recs = append(recs, img.configRecords()...)
	for _, t := range img.Topics() {
		cfg := img.Config(ResourceTopic, t.Name)
		_, named := cfg[ConfigMirrorName]
		_, started := cfg[ConfigMirrorStart]
		if t.MirrorOffset >= 0 || named || started { // after the configs, which move it
			recs = append(recs, &topicMirrorOffset{t.ID, t.MirrorOffset})
		}
	}
	recs = append(recs, img.mirrorSetRecords()...)
	return append(recs, &endOfSnapshot{img.offset})
}

func (img *Image) configRecords() []Record {
	var resources []Resource
	img.configs.each(func(r Resource, _ map[string]string) bool {
		resources = append(resources, r)
		return true
	})
	slices.SortFunc(resources, func(a, b Resource) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Name, b.Name))
	})
	var recs []Record
	for _, r := range resources {
		cfg := img.Config(r.Type, r.Name)
		for _, k := range slices.Sorted(maps.Keys(cfg)) {
			v := cfg[k]
			recs = append(recs, &SetConfig{r, k, &v})
		}
	}
	return recs
}

func (img *Image) mirrorSetRecords() []Record {
	var keys []mirrorTopic
	img.mirrorSet.each(func(k mirrorTopic, _ []string) bool {
		keys = append(keys, k)
		return true
	})
	slices.SortFunc(keys, func(a, b mirrorTopic) int {
		return cmp.Or(bytes.Compare(a.mirror[:], b.mirror[:]), bytes.Compare(a.topic[:], b.topic[:]))
	})
	var recs []Record
	for _, k := range keys {
		for _, key := range img.MirrorSetConfigs(k.mirror, k.topic) {
			recs = append(recs, &MirrorSetConfig{k.mirror, k.topic, key, true})
		}
	}
	return recs
}
