package mirrorcoord

import (
	"bytes"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"

	"stet/broker/coord"
	"stet/broker/meta"
	"stet/broker/mirror/mirrorstate"
	"stet/broker/mirrormsg"
	"stet/zerocopy/batch"
)

// kept is how many cuts and events a state keeps (SPEC section 10).
const kept = 16

// entryKey is what states and pairs are kept under. The mirror's name is not part
// of it: a mirror made again under the same name inherits nothing.
type entryKey struct {
	mirror, topic [16]byte
	partition     int32
}

// entry is what is stored for a partition. The values are replaced, never changed:
// answers hold on to them.
type entry struct {
	state *mirrormsg.PartitionState
	pairs map[string]*mirrormsg.LastMirrorEpochs // by source cluster id
}

// machine is the state of one partition of __mirror_state.
type machine struct {
	o       *Options
	entries map[entryKey]*entry
}

// Replay implements coord.Machine.
func (m *machine) Replay(r coord.Record) error {
	var k mirrormsg.StateRecordKey
	if err := k.ReadFrom(r.Key); err != nil {
		return err
	}
	key := entryKey{k.MirrorID, k.TopicID, k.Partition}
	e := m.entries[key]
	if r.Value == nil {
		if e == nil {
			return nil
		}
		if k.Type == mirrormsg.StateRecordState {
			e.state = nil
		} else {
			delete(e.pairs, k.SourceClusterID)
		}
		if e.state == nil && len(e.pairs) == 0 {
			delete(m.entries, key)
		}
		return nil
	}
	v, err := mirrormsg.DecodeStateValue(k.Type, r.Value)
	if err != nil {
		return err
	}
	if e == nil {
		e = &entry{pairs: map[string]*mirrormsg.LastMirrorEpochs{}}
		m.entries[key] = e
	}
	switch v := v.(type) {
	case *mirrormsg.PartitionState:
		e.state = v
	case *mirrormsg.LastMirrorEpochs:
		e.pairs[k.SourceClusterID] = v
	}
	return nil
}

// Loaded implements coord.Machine. What belongs to mirrors and topics that were
// deleted while nobody led the partition is removed.
func (m *machine) Loaded(s *coord.Shard) {
	var pass func() []batch.KV
	pass = func() []batch.KV {
		recs, more := m.sweep(m.o.Image())
		if more {
			s.After(0, pass)
		}
		return recs
	}
	s.After(0, pass)
}

// Unloaded implements coord.Machine.
func (m *machine) Unloaded(error) {}

// current is the entry of a topic's present incarnation: records of another one
// are absent (SPEC section 3, rule e).
func (m *machine) current(t *meta.Topic, key entryKey) entry {
	e := m.entries[key]
	if e == nil {
		return entry{}
	}
	var out entry
	if e.state != nil && e.state.Incarnation == t.Incarnation {
		out.state = e.state
	}
	for _, c := range slices.Sorted(maps.Keys(e.pairs)) {
		if e.pairs[c].Incarnation == t.Incarnation {
			if out.pairs == nil {
				out.pairs = map[string]*mirrormsg.LastMirrorEpochs{}
			}
			out.pairs[c] = e.pairs[c]
		}
	}
	return out
}

func (m *machine) read(img *meta.Image, key entryKey) (*mirrormsg.PartitionState, []mirrormsg.LastMirrorEpochs) {
	t := img.TopicByID(key.topic)
	if t == nil {
		return nil, nil
	}
	e := m.current(t, key)
	var pairs []mirrormsg.LastMirrorEpochs
	for _, c := range slices.Sorted(maps.Keys(e.pairs)) {
		pairs = append(pairs, *e.pairs[c])
	}
	if e.state == nil {
		return nil, pairs
	}
	state := *e.state
	return &state, pairs
}

type writePartition = mirrormsg.WriteMirrorStatesRequestTopicPartition

// write checks and makes the records of one partition. stored is the state epoch
// that is stored afterwards, -1 for none.
func (m *machine) write(img *meta.Image, key entryKey, mirror string, in *writePartition) (stored int32, recs []batch.KV, err error) {
	stored = -1
	t := img.TopicByID(key.topic)
	if t == nil {
		return stored, nil, kerr.UnknownTopicID
	}
	if mi := img.Mirror(mirror); mi == nil || mi.ID != key.mirror {
		return stored, nil, mirrormsg.UnknownMirror
	}
	e := m.current(t, key)
	if e.state != nil {
		stored = e.state.StateEpoch
	}
	epoch := stored
	if in.State != nil {
		next, err := nextState(t, e.state, in.State)
		if err != nil {
			return stored, nil, err
		}
		epoch = next.StateEpoch
		next.MirrorName, next.TopicName = mirror, t.Name
		recs = append(recs, batch.KV{Key: recordKey(mirrormsg.StateRecordState, key, ""), Value: next.AppendTo(nil)})
	}
	if in.LastMirror != nil {
		if err := checkIncarnation(t, in.LastMirror.Incarnation); err != nil {
			return stored, nil, err
		}
		pair := *in.LastMirror
		pair.Version, pair.MirrorName, pair.TopicName = 0, mirror, t.Name
		recs = append(recs, batch.KV{Key: recordKey(mirrormsg.StateRecordLastMirror, key, pair.SourceClusterID), Value: pair.AppendTo(nil)})
	}
	if in.RemoveLastMirror != nil {
		if e := m.entries[key]; e != nil && e.pairs[*in.RemoveLastMirror] != nil {
			recs = append(recs, batch.KV{Key: recordKey(mirrormsg.StateRecordLastMirror, key, *in.RemoveLastMirror)})
		}
	}
	return epoch, recs, nil
}

// checkIncarnation refuses writers that mean another life of the topic. A writer
// that is ahead of our image is asked to try again.
func checkIncarnation(t *meta.Topic, incarnation int64) error {
	switch {
	case incarnation < t.Incarnation:
		return kerr.UnknownTopicID
	case incarnation > t.Incarnation:
		return kerr.CoordinatorLoadInProgress
	}
	return nil
}

// nextState fences a write and makes what is stored of it.
func nextState(t *meta.Topic, stored, in *mirrormsg.PartitionState) (*mirrormsg.PartitionState, error) {
	if err := checkIncarnation(t, in.Incarnation); err != nil {
		return nil, err
	}
	to := mirrorstate.State(in.State)
	if !to.Storable() {
		return nil, mirrormsg.Errorf(kerr.InvalidRequest, "state %d cannot be stored", in.State)
	}
	from, epoch := mirrorstate.Unknown, int32(-1)
	if stored != nil {
		from, epoch = mirrorstate.State(stored.State), stored.StateEpoch
		if in.LeaderEpoch < stored.LeaderEpoch {
			return nil, kerr.FencedLeaderEpoch
		}
	}
	if in.StateEpoch != epoch {
		return nil, kerr.FencedStateEpoch
	}
	if !mirrorstate.Allowed(from, to) {
		return nil, mirrormsg.Errorf(mirrormsg.InvalidMirrorState, "%v does not lead to %v", from, to)
	}
	next := *in
	next.Version, next.StateEpoch = 0, epoch+1
	next.Cuts = next.Cuts[max(0, len(next.Cuts)-kept):]
	next.Events = next.Events[max(0, len(next.Events)-kept):]
	return &next, nil
}

func recordKey(typ int16, k entryKey, cluster string) []byte {
	r := mirrormsg.StateRecordKey{Type: typ, MirrorID: k.mirror, TopicID: k.topic, Partition: k.partition, SourceClusterID: cluster}
	return r.AppendTo(nil)
}

// A pass of the sweep makes at most so many tombstones.
const sweepLimit = 4096

// sweep makes tombstones for what belongs to mirrors and topics that are gone;
// more says that another pass is needed. An image that may be older than a record
// (its topic or start comes later) says nothing about it.
func (m *machine) sweep(img *meta.Image) (recs []batch.KV, more bool) {
	mirrors := map[[16]byte]bool{}
	for _, mi := range img.Mirrors() {
		mirrors[mi.ID] = true
	}
	keys := slices.SortedFunc(maps.Keys(m.entries), func(a, b entryKey) int {
		if c := bytes.Compare(a.mirror[:], b.mirror[:]); c != 0 {
			return c
		}
		if c := bytes.Compare(a.topic[:], b.topic[:]); c != 0 {
			return c
		}
		return int(a.partition) - int(b.partition)
	})
	for _, key := range keys {
		e := m.entries[key]
		gone := func(incarnation, start int64) bool {
			if incarnation >= img.Offset() || start >= img.Offset() {
				return false
			}
			t := img.TopicByID(key.topic)
			return !mirrors[key.mirror] || t == nil || t.Incarnation != incarnation
		}
		start := int64(-1)
		if e.state != nil {
			start = e.state.StartOffset
			if gone(e.state.Incarnation, start) {
				recs = append(recs, batch.KV{Key: recordKey(mirrormsg.StateRecordState, key, "")})
			}
		}
		for _, c := range slices.Sorted(maps.Keys(e.pairs)) {
			if gone(e.pairs[c].Incarnation, start) {
				recs = append(recs, batch.KV{Key: recordKey(mirrormsg.StateRecordLastMirror, key, c)})
			}
		}
		if len(recs) >= sweepLimit {
			return recs, true
		}
	}
	return recs, false
}
