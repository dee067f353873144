package api

import (
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/valyala/bytebufferpool"

	"stet/broker/meta"
	"stet/broker/replica"
	"stet/zerocopy"
)

// FetchReply is a Fetch response whose records are ranges of segment files. It
// is encoded by hand, because a generated encoder would copy the records; a test
// holds it against kmsg.
type FetchReply struct {
	version   int16
	errorCode int16
	sessionID int32
	parts     []fetchedPartition
}

type fetchedPartition struct {
	replica.ReadResult
	p      *fetchPartition
	leader *meta.Partition // for the leader hint, nil: unknown
}

func (r *FetchReply) add(p fetchedPartition) { r.parts = append(r.parts, p) }

// reset gives back what a read took, before another try.
func (r *FetchReply) reset() {
	for i := range r.parts {
		r.parts[i].Slice.Release()
	}
	clear(r.parts)
	r.parts = r.parts[:0]
}

// write sends the frame. Records go out as file ranges between memory pieces.
func (r *FetchReply) write(w Output, correlation int32) error {
	defer r.reset()
	buf := bytebufferpool.Get()
	defer bytebufferpool.Put(buf)
	e := fetchEncoder{b: buf.B[:0], flex: r.version >= 12, version: r.version}
	e.encode(r, correlation)
	buf.B = e.b
	binary.BigEndian.PutUint32(e.b, uint32(len(e.b)-4+e.records))

	at := 0
	for _, h := range e.holes {
		w.Bytes(e.b[at:h.at])
		at = h.at
		s := &r.parts[h.part].Slice
		w.Range(zerocopy.Range{File: s.File().OSFile(), Reader: s.File(), Pos: s.Pos(), Len: s.Len()})
	}
	w.Bytes(e.b[at:])
	return w.Flush()
}

// told notes in the session what the client learns. The session is locked. A client that does not get the answer is
// refused by the session's epoch and begins another one.
func (r *FetchReply) told() {
	for i := range r.parts {
		p := &r.parts[i]
		p.p.sentHW, p.p.sentLogStart, p.p.dirty = p.HighWatermark, p.LogStartOffset, p.Err != nil || p.Diverging
	}
}

// fetchEncoder builds the memory pieces; holes are where records belong.
type fetchEncoder struct {
	b       []byte
	flex    bool
	version int16
	holes   []hole
	records int
}

type hole struct{ at, part int }

func (e *fetchEncoder) i16(v int16) { e.b = binary.BigEndian.AppendUint16(e.b, uint16(v)) }
func (e *fetchEncoder) i32(v int32) { e.b = binary.BigEndian.AppendUint32(e.b, uint32(v)) }
func (e *fetchEncoder) i64(v int64) { e.b = binary.BigEndian.AppendUint64(e.b, uint64(v)) }

func (e *fetchEncoder) arrayLen(n int) {
	if e.flex {
		e.b = binary.AppendUvarint(e.b, uint64(n)+1)
	} else {
		e.i32(int32(n))
	}
}

func (e *fetchEncoder) nullArray() {
	if e.flex {
		e.b = append(e.b, 0)
	} else {
		e.i32(-1)
	}
}

func (e *fetchEncoder) noTags() {
	if e.flex {
		e.b = append(e.b, 0)
	}
}

func (e *fetchEncoder) encode(r *FetchReply, correlation int32) {
	e.i32(0) // size, patched by the caller
	e.i32(correlation)
	e.noTags() // response header version 1
	e.i32(0)   // throttle time
	if e.version >= 7 {
		e.i16(r.errorCode)
		e.i32(r.sessionID)
	}
	topics := 0
	for i := range r.parts {
		if i == 0 || !sameTopic(r.parts[i-1].p, r.parts[i].p) {
			topics++
		}
	}
	e.arrayLen(topics)
	for i := 0; i < len(r.parts); {
		n := 1
		for i+n < len(r.parts) && sameTopic(r.parts[i].p, r.parts[i+n].p) {
			n++
		}
		e.topic(r.parts[i].p)
		e.arrayLen(n)
		for ; n > 0; n-- {
			e.partition(&r.parts[i], i)
			i++
		}
		e.noTags()
	}
	e.noTags()
}

func sameTopic(a, b *fetchPartition) bool { return a.topic == b.topic && a.id == b.id }

func (e *fetchEncoder) topic(p *fetchPartition) {
	switch {
	case e.version >= versionTopicID:
		e.b = append(e.b, p.id[:]...)
	case e.flex:
		e.b = binary.AppendUvarint(e.b, uint64(len(p.topic))+1)
		e.b = append(e.b, p.topic...)
	default:
		e.i16(int16(len(p.topic)))
		e.b = append(e.b, p.topic...)
	}
}

func (e *fetchEncoder) partition(p *fetchedPartition, index int) {
	errCode := code(p.Err)
	e.i32(p.p.index)
	e.i16(errCode)
	e.i64(p.HighWatermark)
	e.i64(p.LastStableOffset)
	if e.version >= 5 {
		e.i64(p.LogStartOffset)
	}
	if p.Aborted == nil {
		e.nullArray()
	} else {
		e.arrayLen(len(p.Aborted))
		for _, t := range p.Aborted {
			e.i64(t.ProducerID)
			e.i64(t.FirstOffset)
			e.noTags()
		}
	}
	if e.version >= 11 {
		e.i32(-1) // preferred read replica
	}
	n := p.Slice.Len()
	if e.flex {
		e.b = binary.AppendUvarint(e.b, uint64(n)+1)
	} else {
		e.i32(int32(n))
	}
	if n > 0 {
		e.holes = append(e.holes, hole{len(e.b), index})
		e.records += n
	}
	if !e.flex {
		return
	}
	hint := p.leader != nil && (errCode == kerr.NotLeaderForPartition.Code || errCode == kerr.FencedLeaderEpoch.Code)
	tags := 0
	if p.Diverging {
		tags++
	}
	if hint {
		tags++
	}
	e.b = append(e.b, byte(tags))
	if p.Diverging { // tag 0: epoch, end offset, no tags
		e.b = append(e.b, 0, 13)
		e.i32(p.DivergingEpoch)
		e.i64(p.DivergingEndOffset)
		e.b = append(e.b, 0)
	}
	if hint { // tag 1: leader id, leader epoch, no tags
		e.b = append(e.b, 1, 9)
		e.i32(p.leader.Leader)
		e.i32(p.leader.LeaderEpoch)
		e.b = append(e.b, 0)
	}
}
