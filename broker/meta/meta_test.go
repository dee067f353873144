package meta

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// step draws records that fit the image, as a controller would make them.
func step(t *rapid.T, img *Image) []Record {
	name := func() string { return fmt.Sprintf("t%d", rapid.IntRange(0, 6).Draw(t, "topic")) }
	id := func() [16]byte { return [16]byte{byte(rapid.IntRange(1, 6).Draw(t, "id"))} }
	ints := func() []int32 { return rapid.SliceOfN(rapid.Int32Range(0, 5), 1, 3).Draw(t, "ints") }
	value := rapid.StringN(0, 6, 12)
	switch rapid.IntRange(0, 10).Draw(t, "kind") {
	case 0, 1:
		n, i := name(), id()
		if img.Topic(n) != nil || img.TopicByID(i) != nil {
			return nil
		}
		recs := []Record{&CreateTopic{Name: n, ID: i, Incarnation: -1}}
		for p := range rapid.Int32Range(1, 3).Draw(t, "partitions") {
			recs = append(recs, &CreatePartition{i, p, Partition{Replicas: ints(), ISR: ints(), Leader: 1, BarrierEnd: -1}})
		}
		return recs
	case 2:
		if topic := img.Topic(name()); topic != nil {
			return []Record{&RemoveTopic{topic.ID}}
		}
	case 3, 4:
		topic := img.Topic(name())
		if topic == nil {
			return nil
		}
		c := NewChangePartition(topic.ID, rapid.Int32Range(0, int32(len(topic.Partitions))-1).Draw(t, "partition"))
		if rapid.Bool().Draw(t, "bump") {
			c.MinLeaderEpoch = rapid.Int32Range(0, 1000).Draw(t, "epoch")
		}
		if rapid.Bool().Draw(t, "leader") {
			c.Leader = rapid.Int32Range(-1, 5).Draw(t, "leader id")
			c.ISR, c.Replicas = ints(), ints()
		}
		if rapid.Bool().Draw(t, "barrier") {
			c.BarrierEnd = rapid.Int64Range(-1, 1000).Draw(t, "end")
			zero := [16]byte{}
			c.AlignedMirrorID = &zero
		}
		if rapid.Bool().Draw(t, "aligned") {
			a := id()
			c.AlignedMirrorID = &a
		}
		return []Record{c}
	case 5, 6:
		r := Resource{rapid.SampledFrom([]ResourceType{ResourceTopic, ResourceBroker, ResourceMirror, ResourceGroup}).Draw(t, "type"), name()}
		key := rapid.SampledFrom([]string{"a", "b", ConfigMirrorName, ConfigMirrorStart}).Draw(t, "key")
		if rapid.Bool().Draw(t, "delete") {
			return []Record{&SetConfig{r, key, nil}}
		}
		v := value.Draw(t, "value")
		return []Record{&SetConfig{r, key, &v}}
	case 7:
		n := "m" + name()
		if img.Mirror(n) != nil {
			return []Record{&RemoveMirror{n}}
		}
		return []Record{&CreateMirror{n, id()}}
	case 8:
		return []Record{&MirrorSetConfig{id(), id(), "k" + name(), rapid.Bool().Draw(t, "set")}}
	case 9:
		b := Broker{ID: rapid.Int32Range(0, 3).Draw(t, "broker"), Host: value.Draw(t, "host"), Port: 9092, Incarnation: id(), Epoch: -1, Fenced: rapid.Bool().Draw(t, "fenced")}
		if rapid.Bool().Draw(t, "rack") {
			rack := value.Draw(t, "rack")
			b.Rack = &rack
		}
		if rapid.Bool().Draw(t, "gone") {
			return []Record{&UnregisterBroker{b.ID}}
		}
		return []Record{&RegisterBroker{b}}
	case 10:
		return []Record{&ProducerIDs{rapid.Int64Range(0, 1<<40).Draw(t, "ids")}, &ClusterID{value.Draw(t, "cluster")}}
	}
	return nil
}

// flat is all that an image holds, in comparable form.
func flat(img *Image) map[string]any {
	m := map[string]any{"offset": img.offset, "cluster": img.clusterID, "ids": img.nextProducerID}
	for _, b := range img.Brokers() {
		m[fmt.Sprint("broker ", b.ID)] = *b
	}
	for _, t := range img.Topics() {
		m["topic "+t.Name] = *t
		m[fmt.Sprint("id ", t.ID)] = img.TopicByID(t.ID).Name
	}
	for _, x := range img.Mirrors() {
		m["mirror "+x.Name] = *x
	}
	img.configs.each(func(r Resource, c map[string]string) bool {
		m[fmt.Sprint("config ", r)] = c
		return true
	})
	img.mirrorSet.each(func(k mirrorTopic, keys []string) bool {
		m[fmt.Sprint("set ", k)] = keys
		return true
	})
	m["count"] = img.topics.n
	return m
}

func TestImageProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		img := Empty()
		var history []Record
		type past struct {
			img  *Image
			flat map[string]any
		}
		var pasts []past
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			recs := step(t, img)
			pasts = append(pasts, past{img, flat(img)})
			next, delta := img.Apply(recs)
			if next.Offset() != img.Offset()+int64(len(recs)) {
				t.Fatalf("offset %d after %d records on %d", next.Offset(), len(recs), img.Offset())
			}
			checkDelta(t, delta, img, next)
			history = append(history, recs...)
			img = next
		}
		// Images never change.
		for _, p := range pasts {
			if now := flat(p.img); !reflect.DeepEqual(now, p.flat) {
				t.Fatalf("an old image changed:\nnow %v\nwas %v", now, p.flat)
			}
		}
		// image -> records -> bytes -> records -> image is the identity.
		decoded, err := Decode(Encode(nil, img.Records()))
		if err != nil {
			t.Fatal(err)
		}
		back, _ := Empty().Apply(decoded)
		if !reflect.DeepEqual(flat(back), flat(img)) {
			t.Fatalf("image from its own records:\ngot  %v\nwant %v", flat(back), flat(img))
		}
		if !bytes.Equal(Encode(nil, back.Records()), Encode(nil, img.Records())) {
			t.Fatal("the snapshot of the same image differs")
		}
		if d := Diff(img, back); !d.Empty() {
			t.Fatalf("equal images differ: %+v", d)
		}
		// Applying in one go, and after an encoding, ends in the same image.
		if decoded, err = Decode(Encode(nil, history)); err != nil {
			t.Fatal(err)
		}
		again, delta := Empty().Apply(decoded)
		if !reflect.DeepEqual(flat(again), flat(img)) {
			t.Fatalf("replayed image:\ngot  %v\nwant %v", flat(again), flat(img))
		}
		checkDelta(t, delta, Empty(), img)
	})
}

// checkDelta compares a delta with a plain comparison of the two images.
func checkDelta(t *rapid.T, d *Delta, old, new *Image) {
	var created, deleted, changed []string
	names := map[string]bool{}
	for _, x := range slices.Concat(old.Topics(), new.Topics()) {
		names[x.Name] = true
	}
	for _, n := range slices.Sorted(maps.Keys(names)) {
		was, is := old.Topic(n), new.Topic(n)
		if was != nil && (is == nil || is.Incarnation != was.Incarnation) {
			deleted = append(deleted, fmt.Sprint(n, was.Incarnation))
		}
		if is != nil && (was == nil || is.Incarnation != was.Incarnation) {
			created = append(created, fmt.Sprint(n, is.Incarnation))
		}
		if was != nil && is != nil && is.Incarnation == was.Incarnation && !reflect.DeepEqual(*was, *is) {
			changed = append(changed, n)
		}
	}
	text := func(ts []*Topic) (s []string) {
		for _, x := range ts {
			s = append(s, fmt.Sprint(x.Name, x.Incarnation))
		}
		return s
	}
	var gotChanged []string
	for _, c := range d.ChangedTopics {
		gotChanged = append(gotChanged, c.New.Name)
	}
	if !slices.Equal(text(d.CreatedTopics), created) || !slices.Equal(text(d.DeletedTopics), deleted) || !slices.Equal(gotChanged, changed) {
		t.Fatalf("created %v want %v; deleted %v want %v; changed %v want %v", text(d.CreatedTopics), created, text(d.DeletedTopics), deleted, gotChanged, changed)
	}
	resources := map[Resource]bool{}
	for _, img := range []*Image{old, new} {
		img.configs.each(func(r Resource, _ map[string]string) bool {
			resources[r] = true
			return true
		})
	}
	n := 0
	for r := range resources {
		if !maps.Equal(old.Config(r.Type, r.Name), new.Config(r.Type, r.Name)) {
			n++
			if !d.ConfigChanged(r.Type, r.Name) {
				t.Fatalf("the delta lacks the config of %v", r)
			}
		}
	}
	if n != len(d.Configs) {
		t.Fatalf("the delta has %d configs, want %d", len(d.Configs), n)
	}
	for _, b := range slices.Concat(old.Brokers(), new.Brokers()) {
		if same := reflect.DeepEqual(old.Broker(b.ID), new.Broker(b.ID)); same == slices.Contains(d.Brokers, b.ID) {
			t.Fatalf("broker %d: same %v, in the delta %v", b.ID, same, d.Brokers)
		}
	}
}

func TestDeletedAndMadeAgain(t *testing.T) {
	id := [16]byte{1}
	create := []Record{&CreateTopic{"t", id, -1}, &CreatePartition{id, 0, Partition{BarrierEnd: -1}}}
	one, _ := Empty().Apply(create)
	two, d := one.Apply(append([]Record{&RemoveTopic{id}}, create...))
	if len(d.DeletedTopics) != 1 || len(d.CreatedTopics) != 1 || d.DeletedTopics[0].Incarnation != 0 || d.CreatedTopics[0].Incarnation != 3 {
		t.Fatalf("delta %+v", d)
	}
	// The same through snapshots.
	decoded, err := Decode(Encode(nil, two.Records()))
	if err != nil {
		t.Fatal(err)
	}
	loaded, _ := Empty().Apply(decoded)
	if d := Diff(one, loaded); len(d.DeletedTopics) != 1 || len(d.CreatedTopics) != 1 {
		t.Fatalf("delta after a snapshot %+v", d)
	}
}

func TestLeaderEpochs(t *testing.T) {
	id := [16]byte{1}
	img, _ := Empty().Apply([]Record{&CreateTopic{"t", id, -1}, &CreatePartition{id, 0, Partition{LeaderEpoch: 4, BarrierEnd: -1}}})
	change := func(f func(*ChangePartition)) {
		c := NewChangePartition(id, 0)
		f(c)
		img, _ = img.Apply([]Record{c})
	}
	for i, c := range []struct {
		change func(*ChangePartition)
		epoch  int32
	}{
		{func(c *ChangePartition) { c.MinLeaderEpoch = 2 }, 5},
		{func(c *ChangePartition) { c.MinLeaderEpoch = 20 }, 20},
		{func(c *ChangePartition) { c.BarrierEnd = 7 }, 20},
		{func(c *ChangePartition) { c.Leader = 3 }, 21},
		{func(c *ChangePartition) { c.Leader, c.MinLeaderEpoch = 2, 100 }, 100},
	} {
		change(c.change)
		p := img.Partition("t", 0)
		if p.LeaderEpoch != c.epoch || p.PartitionEpoch != int32(i+1) {
			t.Errorf("change %d: leader epoch %d want %d, partition epoch %d", i, p.LeaderEpoch, c.epoch, p.PartitionEpoch)
		}
	}
	if p := img.Partition("t", 0); p.BarrierEnd != 7 || p.Leader != 2 {
		t.Errorf("partition %+v", p)
	}
}

func TestDecodeErrors(t *testing.T) {
	good := Encode(nil, []Record{&ChangePartition{ISR: []int32{1, 2}}})
	for _, c := range []struct {
		name, want string
		bytes      []byte
	}{
		{"unknown type", "type 99", []byte{2, 99, 0}},
		{"unknown version", "version 4", append([]byte{good[0], good[1], 4}, good[3:]...)},
		{"old version", "version 2", append([]byte{good[0], good[1], 2}, good[3:]...)},
		{"cut off", "cut off", good[:len(good)-1]},
		{"bytes too many", "malformed", append([]byte{good[0] + 1}, append(slices.Clone(good[1:]), 0)...)},
		{"huge list", "malformed", append([]byte{28, 7, 3}, append(make([]byte, 20), 0xff, 0xff, 0xff, 0xff, 0x0f, 0)...)},
	} {
		if _, err := Decode(c.bytes); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestMirrorConfigs(t *testing.T) {
	for _, state := range []MirrorTopicState{MirrorActive, MirrorPaused, MirrorStopping, MirrorStopped} {
		cfg := map[string]string{ConfigMirrorName: MirrorNameValue("a.b", state)}
		if m, s := MirrorNameOf(cfg); m != "a.b" || s != state {
			t.Errorf("%v: %q %v", cfg, m, s)
		}
	}
	if m, s := MirrorNameOf(nil); m != "" || s != NotMirrored {
		t.Errorf("no config: %q %v", m, s)
	}
	for _, c := range []struct {
		text      string
		offset    int64
		overwrite bool
	}{{"12", 12, false}, {"12,overwrite", 12, true}, {"", -1, false}, {"x", -1, false}} {
		o, ow := MirrorStartOf(map[string]string{ConfigMirrorStart: c.text})
		if o != c.offset || ow != c.overwrite {
			t.Errorf("%q: %d %v", c.text, o, ow)
		}
	}
	if MirrorStartValue(5, true) != "5,overwrite" {
		t.Error(MirrorStartValue(5, true))
	}
}
