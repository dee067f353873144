package meta

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kbin"
)

// Encode appends records: each is its length, type and version as uvarints and
// its fields.
func Encode(dst []byte, records []Record) []byte {
	var body []byte
	for _, rec := range records {
		typ, version := rec.kind()
		body = kbin.AppendUvarint(body[:0], uint32(typ))
		body = kbin.AppendUvarint(body, uint32(version))
		body = rec.append(body)
		dst = kbin.AppendUvarint(dst, uint32(len(body)))
		dst = append(dst, body...)
	}
	return dst
}

// Decode reads what Encode wrote. A record of an unknown type or version is an
// error that names it: an older Stet must not misread a newer one's metadata.
func Decode(src []byte) ([]Record, error) {
	var records []Record
	r := &reader{kbin.Reader{Src: src}}
	for len(r.Src) > 0 {
		n := r.Uvarint()
		body := &reader{kbin.Reader{Src: r.Span(int(n))}}
		typ, version := uint64(body.Uvarint()), body.Uvarint()
		if !r.Ok() || !body.Ok() {
			return nil, fmt.Errorf("metadata record %d: cut off", len(records))
		}
		rec, minVersion := newRecord(typ)
		if rec == nil {
			return nil, fmt.Errorf("metadata record %d: type %d is not known to this version of Stet", len(records), typ)
		}
		if _, newest := rec.kind(); version < uint32(minVersion) || version > uint32(newest) {
			return nil, fmt.Errorf("metadata record %d: type %d has version %d; this version of Stet knows %d to %d", len(records), typ, version, minVersion, newest)
		}
		rec.read(body, uint16(version))
		if !body.Ok() || len(body.Src) != 0 {
			return nil, fmt.Errorf("metadata record %d: type %d version %d: malformed", len(records), typ, version)
		}
		records = append(records, rec)
	}
	return records, nil
}

// reader adds our shapes to kbin.Reader.
type reader struct{ kbin.Reader }

// ints reads a list of int32, nil for null.
func (r *reader) ints() []int32 {
	n := r.CompactArrayLen()
	if n < 0 || !r.Ok() || int(n)*4 > len(r.Src) {
		if n >= 0 {
			r.Span(len(r.Src) + 1) // fails the reader
		}
		return nil
	}
	v := make([]int32, n)
	for i := range v {
		v[i] = r.Int32()
	}
	return v
}

func appendInts(dst []byte, v []int32) []byte {
	dst = kbin.AppendCompactNullableArrayLen(dst, len(v), v == nil)
	for _, x := range v {
		dst = kbin.AppendInt32(dst, x)
	}
	return dst
}

func (c *ClusterID) append(dst []byte) []byte { return kbin.AppendCompactString(dst, c.ID) }
func (c *ClusterID) read(r *reader, _ uint16) { c.ID = r.CompactString() }

func (c *RegisterBroker) append(dst []byte) []byte {
	b := &c.Broker
	dst = kbin.AppendInt32(dst, b.ID)
	dst = kbin.AppendUuid(dst, b.Incarnation)
	dst = kbin.AppendCompactString(dst, b.Host)
	dst = kbin.AppendInt32(dst, b.Port)
	dst = kbin.AppendCompactNullableString(dst, b.Rack)
	dst = kbin.AppendInt64(dst, b.Epoch)
	dst = kbin.AppendBool(dst, b.Fenced)
	return kbin.AppendBool(dst, b.ShuttingDown)
}

func (c *RegisterBroker) read(r *reader, _ uint16) {
	c.Broker = Broker{
		ID: r.Int32(), Incarnation: r.Uuid(), Host: r.CompactString(), Port: r.Int32(),
		Rack: r.CompactNullableString(), Epoch: r.Int64(), Fenced: r.Bool(), ShuttingDown: r.Bool(),
	}
}

func (c *UnregisterBroker) append(dst []byte) []byte { return kbin.AppendInt32(dst, c.ID) }
func (c *UnregisterBroker) read(r *reader, _ uint16) { c.ID = r.Int32() }

func (c *CreateTopic) append(dst []byte) []byte {
	dst = kbin.AppendCompactString(dst, c.Name)
	dst = kbin.AppendUuid(dst, c.ID)
	return kbin.AppendInt64(dst, c.Incarnation)
}

func (c *CreateTopic) read(r *reader, _ uint16) {
	c.Name, c.ID, c.Incarnation = r.CompactString(), r.Uuid(), r.Int64()
}

func (c *RemoveTopic) append(dst []byte) []byte { return kbin.AppendUuid(dst, c.ID) }
func (c *RemoveTopic) read(r *reader, _ uint16) { c.ID = r.Uuid() }

func (c *CreatePartition) append(dst []byte) []byte {
	p := &c.State
	dst = kbin.AppendUuid(dst, c.TopicID)
	dst = kbin.AppendInt32(dst, c.Partition)
	dst = appendInts(dst, p.Replicas)
	dst = appendInts(dst, p.ISR)
	dst = kbin.AppendInt32(dst, p.Leader)
	dst = kbin.AppendInt32(dst, p.LeaderEpoch)
	dst = kbin.AppendInt32(dst, p.PartitionEpoch)
	dst = kbin.AppendInt64(dst, p.BarrierEnd)
	return kbin.AppendUuid(dst, p.AlignedMirrorID)
}

func (c *CreatePartition) read(r *reader, _ uint16) {
	c.TopicID, c.Partition = r.Uuid(), r.Int32()
	c.State = Partition{
		Replicas: r.ints(), ISR: r.ints(), Leader: r.Int32(), LeaderEpoch: r.Int32(), PartitionEpoch: r.Int32(),
		BarrierEnd: r.Int64(), AlignedMirrorID: r.Uuid(),
	}
}

func (c *ChangePartition) append(dst []byte) []byte {
	dst = kbin.AppendUuid(dst, c.TopicID)
	dst = kbin.AppendInt32(dst, c.Partition)
	dst = appendInts(dst, c.ISR)
	dst = appendInts(dst, c.Replicas)
	dst = kbin.AppendInt32(dst, c.Leader)
	dst = kbin.AppendInt32(dst, c.MinLeaderEpoch)
	dst = kbin.AppendInt64(dst, c.BarrierEnd)
	dst = kbin.AppendBool(dst, c.AlignedMirrorID != nil)
	if c.AlignedMirrorID != nil {
		dst = kbin.AppendUuid(dst, *c.AlignedMirrorID)
	}
	return dst
}

func (c *ChangePartition) read(r *reader, _ uint16) {
	c.TopicID, c.Partition = r.Uuid(), r.Int32()
	c.ISR, c.Replicas = r.ints(), r.ints()
	c.Leader, c.MinLeaderEpoch, c.BarrierEnd = r.Int32(), r.Int32(), r.Int64()
	if r.Bool() {
		id := r.Uuid()
		c.AlignedMirrorID = &id
	}
}

func (c *SetConfig) append(dst []byte) []byte {
	dst = kbin.AppendInt8(dst, int8(c.Resource.Type))
	dst = kbin.AppendCompactString(dst, c.Resource.Name)
	dst = kbin.AppendCompactString(dst, c.Key)
	return kbin.AppendCompactNullableString(dst, c.Value)
}

func (c *SetConfig) read(r *reader, _ uint16) {
	c.Resource = Resource{ResourceType(r.Int8()), r.CompactString()}
	c.Key, c.Value = r.CompactString(), r.CompactNullableString()
}

func (c *CreateMirror) append(dst []byte) []byte {
	return kbin.AppendUuid(kbin.AppendCompactString(dst, c.Name), c.ID)
}
func (c *CreateMirror) read(r *reader, _ uint16) { c.Name, c.ID = r.CompactString(), r.Uuid() }

func (c *RemoveMirror) append(dst []byte) []byte { return kbin.AppendCompactString(dst, c.Name) }
func (c *RemoveMirror) read(r *reader, _ uint16) { c.Name = r.CompactString() }

func (c *ProducerIDs) append(dst []byte) []byte { return kbin.AppendInt64(dst, c.Next) }
func (c *ProducerIDs) read(r *reader, _ uint16) { c.Next = r.Int64() }

func (c *MirrorSetConfig) append(dst []byte) []byte {
	dst = kbin.AppendUuid(dst, c.MirrorID)
	dst = kbin.AppendUuid(dst, c.TopicID)
	dst = kbin.AppendCompactString(dst, c.Key)
	return kbin.AppendBool(dst, c.Set)
}

func (c *MirrorSetConfig) read(r *reader, _ uint16) {
	c.MirrorID, c.TopicID, c.Key, c.Set = r.Uuid(), r.Uuid(), r.CompactString(), r.Bool()
}

func (c *topicMirrorOffset) append(dst []byte) []byte {
	return kbin.AppendInt64(kbin.AppendUuid(dst, c.TopicID), c.Offset)
}
func (c *topicMirrorOffset) read(r *reader, _ uint16) { c.TopicID, c.Offset = r.Uuid(), r.Int64() }

func (c *endOfSnapshot) append(dst []byte) []byte { return kbin.AppendInt64(dst, c.Offset) }
func (c *endOfSnapshot) read(r *reader, _ uint16) { c.Offset = r.Int64() }
