package api

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kbin"

	"stet/zerocopy/batch"
)

// Versions of Produce at which the wire changes.
const (
	versionProduceErrors = 8  // record errors and a message
	versionProduceFlex   = 9  // compact arrays, tagged fields
	versionProduceLeader = 10 // the present leader, in a tagged field (kmsg sends it from 9 on)
	versionProduceID     = 13 // topics by id
)

// produceCall is one Produce request and its answer, read and written by hand into memory that is used again: a usual
// request costs no allocation. Tests hold both against kmsg.
type produceCall struct {
	acks   int16
	topics []produceTopic
	parts  []producePartition
	out    []byte // the response frame
	texts  int    // bytes of error texts that the answer may yet hold
}

// Bounds on what a request may cost beyond its own size.
const (
	// maxHollow is how many topics and partitions without room for a batch one request may name. Such a partition is answered
	// with an error, as by Kafka, but costs 15 times its bytes; no client sends many. All others are at least
	// minPartition bytes, which is about what they cost.
	maxHollow    = 1000
	minPartition = 4 + 1 + batch.HeaderSize
	// freeTexts and the size of the request are what the error texts of its answer may add up to.
	freeTexts = 64 << 10
)

// produceTopic is a topic of the request; its partitions are parts[from:to].
type produceTopic struct {
	name     string // lies in the request: not to be kept
	id       [16]byte
	from, to int
}

type producePartition struct {
	index   int32
	records []byte // lie in the request

	code                       int16
	message                    string // with code only
	base, appendTime, logStart int64
	leader, leaderEpoch        int32 // -1: no hint
}

var producePool = sync.Pool{New: func() any { return new(produceCall) }}

// keepProduce is how many partitions and bytes of answer a reused call may hold.
const keepProduce = 64 << 10

func (c *produceCall) release() {
	if cap(c.parts) > keepProduce || cap(c.out) > keepProduce || cap(c.topics) > keepProduce {
		return
	}
	clear(c.topics)
	clear(c.parts)
	c.topics, c.parts, c.out = c.topics[:0], c.parts[:0], c.out[:0]
	producePool.Put(c)
}

// parse reads the whole body, so that nothing of a malformed one is done. What it holds is bounded by len(body).
func (c *produceCall) parse(version int16, body []byte) error {
	flex := version >= versionProduceFlex
	r := kbin.Reader{Src: body}
	c.texts = len(body) + freeTexts
	hollow := 0
	if n := length(&r, flex, 2); n > 0 { // transactional id: answered by the batches' own flag
		r.Span(n)
	}
	c.acks = r.Int16()
	r.Int32() // timeout: this broker is the only in-sync replica and waits for nobody
	for n := arrayLen(&r, flex); n > 0 && r.Ok(); n-- {
		t := produceTopic{from: len(c.parts)}
		if version >= versionProduceID {
			t.id = r.Uuid()
		} else {
			t.name = view(r.Span(length(&r, flex, 2))) // a null one, -1, is malformed
		}
		m := arrayLen(&r, flex)
		if m > 1 {
			c.parts = slices.Grow(c.parts, min(int(m), len(r.Src)/minPartition+maxHollow-hollow))
		}
		for ; m > 0 && r.Ok(); m-- {
			p := producePartition{index: r.Int32(), base: -1, appendTime: -1, logStart: -1, leader: -1, leaderEpoch: -1}
			if n := length(&r, flex, 4); n > 0 {
				p.records = r.Span(n)
			}
			skipTags(&r, flex)
			if len(p.records) < batch.HeaderSize {
				if hollow++; hollow > maxHollow {
					return errHollow
				}
			}
			c.parts = append(c.parts, p)
		}
		skipTags(&r, flex)
		t.to = len(c.parts)
		if t.from == t.to {
			if hollow++; hollow > maxHollow {
				return errHollow
			}
		}
		c.topics = append(c.topics, t)
	}
	skipTags(&r, flex)
	return r.Complete()
}

var errHollow = fmt.Errorf("more than %d topics and partitions without a record batch", maxHollow)

// text is what an answer says of an error: the string of the partition before where it is the same, and nothing
// when the texts of this answer would be more than the request was.
func (c *produceCall) text(s string, partition int) string {
	if c.texts -= len(s); c.texts < 0 {
		c.texts = 0
		return ""
	}
	if partition > 0 && c.parts[partition-1].message == s {
		return c.parts[partition-1].message
	}
	return s
}

// encode writes the response frame with its length and header.
func (c *produceCall) encode(version int16, correlation int32) {
	flex := version >= versionProduceFlex
	be := binary.BigEndian
	b := be.AppendUint32(c.out[:0], 0) // the size, below
	b = be.AppendUint32(b, uint32(correlation))
	b = appendTags(b, flex) // header
	b = appendLen(b, flex, len(c.topics))
	for i := range c.topics {
		t := &c.topics[i]
		if version >= versionProduceID {
			b = append(b, t.id[:]...)
		} else {
			b = appendString(b, flex, t.name)
		}
		b = appendLen(b, flex, t.to-t.from)
		for j := t.from; j < t.to; j++ {
			b = c.parts[j].append(b, version)
		}
		b = appendTags(b, flex)
	}
	b = be.AppendUint32(b, 0) // throttle time
	b = appendTags(b, flex)
	be.PutUint32(b, uint32(len(b)-4))
	c.out = b
}

func (p *producePartition) append(b []byte, version int16) []byte {
	flex := version >= versionProduceFlex
	be := binary.BigEndian
	b = be.AppendUint32(b, uint32(p.index))
	b = be.AppendUint16(b, uint16(p.code))
	b = be.AppendUint64(b, uint64(p.base))
	b = be.AppendUint64(b, uint64(p.appendTime))
	if version >= 5 {
		b = be.AppendUint64(b, uint64(p.logStart))
	}
	if version >= versionProduceErrors {
		b = appendLen(b, flex, 0) // errors of single records: the batch is refused as a whole
		switch {
		case p.code != 0:
			b = appendString(b, flex, p.message)
		case flex:
			b = append(b, 0)
		default:
			b = be.AppendUint16(b, 0xffff)
		}
	}
	if version >= versionProduceLeader && p.leader >= 0 {
		b = append(b, 1, 0, 9) // one tag, 0: leader id, leader epoch, no tags
		b = be.AppendUint32(b, uint32(p.leader))
		b = be.AppendUint32(b, uint32(p.leaderEpoch))
		return append(b, 0)
	}
	return appendTags(b, flex)
}

// view is a string over bytes that do not change while it is used.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// arrayLen is -1 for a null array.
func arrayLen(r *kbin.Reader, flex bool) int32 {
	if flex {
		return r.CompactArrayLen()
	}
	return r.ArrayLen()
}

// length reads that of a string or of bytes, which has so many bytes itself outside flexible versions; -1 for null.
func length(r *kbin.Reader, flex bool, size int) int {
	switch {
	case flex:
		return int(r.Uvarint()) - 1
	case size == 2:
		return int(r.Int16())
	}
	return int(r.Int32())
}

func skipTags(r *kbin.Reader, flex bool) {
	if !flex {
		return
	}
	for n := r.Uvarint(); n > 0 && r.Ok(); n-- {
		r.Uvarint()
		r.Span(int(r.Uvarint()))
	}
}

func appendLen(b []byte, flex bool, n int) []byte {
	if flex {
		return binary.AppendUvarint(b, uint64(n)+1)
	}
	return binary.BigEndian.AppendUint32(b, uint32(n))
}

func appendString(b []byte, flex bool, s string) []byte {
	if flex {
		b = binary.AppendUvarint(b, uint64(len(s))+1)
	} else {
		b = binary.BigEndian.AppendUint16(b, uint16(len(s)))
	}
	return append(b, s...)
}

// appendTags ends a structure without tagged fields.
func appendTags(b []byte, flex bool) []byte {
	if flex {
		return append(b, 0)
	}
	return b
}
