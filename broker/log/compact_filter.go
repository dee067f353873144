package log

import (
	"encoding/binary"
	"fmt"

	"stet/broker/log/records"
	"stet/zerocopy/batch"
)

// Header fields that a rewritten batch gets.
const (
	lengthOffset         = 8
	firstTimestampOffset = 27
	numRecordsOffset     = 57
	attrCodecMask        = 0x07
	attrDeleteHorizon    = 0x40
)

// lastOfProducer is what must stay of a live producer.
type lastOfProducer struct {
	offset int64 // of its last data batch, -1: only a marker is known
	epoch  int16
}

// filter decides what of each batch is kept, as Kafka's cleaner does (KIP-98, KIP-534).
type filter struct {
	m         *offsetMap
	txns      *cleanedTxns
	producers map[int64]lastOfProducer
	nowMs     int64
	retention int64 // delete.retention.ms

	kept    []bool
	plain   []byte // records of a rewritten batch, before compression
	emptied int    // batches of which only the header was kept
	rewrote int
	dropped int64 // records
}

// isLast says that a batch carries the last sequence number of a live producer, or its last
// epoch.
func (f *filter) isLast(b batch.Batch) bool {
	if b.ProducerID() < 0 {
		return false
	}
	p, ok := f.producers[b.ProducerID()]
	if !ok {
		return false
	}
	if p.offset >= 0 {
		return b.LastOffset() == p.offset
	}
	return b.IsControl() && b.ProducerEpoch() == p.epoch
}

// batch appends to dst what is left of b: b itself if it loses nothing, a new batch, a header
// without records, or nothing. With mustStay at least the header is kept.
func (f *filter) batch(dst []byte, b batch.Batch, mustStay bool) (out []byte, keep abortedTxn, hasKeep bool, err error) {
	var drop, marker bool
	if b.IsControl() {
		var useless bool
		useless, keep, hasKeep = f.txns.control(b)
		drop = useless && b.HasDeleteHorizon() && b.FirstTimestamp() <= f.nowMs
		marker = useless
	} else {
		drop = f.txns.data(b)
	}
	mustStay = mustStay || f.isLast(b)
	var s survivors
	if !drop {
		if s, err = f.choose(b); err != nil {
			return dst, keep, hasKeep, err
		}
	}
	total := int(b.NumRecords())
	f.dropped += int64(total - s.n)
	if s.n == 0 {
		if !mustStay {
			return dst, keep, hasKeep, nil
		}
		if total == 0 {
			return append(dst, b...), keep, hasKeep, nil
		}
		f.emptied++
		return appendEmpty(dst, b), keep, hasKeep, nil
	}
	setHorizon := (s.tombstones || marker) && !b.HasDeleteHorizon()
	if s.n == total && !setHorizon {
		return append(dst, b...), keep, hasKeep, nil
	}
	f.rewrote++
	base := s.firstTs
	switch {
	case setHorizon:
		base = f.nowMs + f.retention
		if base < f.nowMs {
			base = noOffset // overflow: never
		}
	case b.HasDeleteHorizon():
		base = b.FirstTimestamp()
	}
	out, err = f.rewrite(dst, b, s, base, setHorizon)
	return out, keep, hasKeep, err
}

// survivors sums up the records of a batch that are kept; which they are is in filter.kept.
type survivors struct {
	n              int
	tombstones     bool
	firstTs, maxTs int64
}

func (f *filter) choose(b batch.Batch) (s survivors, err error) {
	f.kept = f.kept[:0]
	s.maxTs = -1
	it := records.Raw(b)
	defer it.Close()
	for it.Next() {
		r := it.Record()
		keep := b.IsControl() || f.keep(b, r)
		f.kept = append(f.kept, keep)
		if !keep {
			continue
		}
		if s.n == 0 {
			s.firstTs = r.Timestamp
		}
		s.n++
		s.maxTs = max(s.maxTs, r.Timestamp)
		s.tombstones = s.tombstones || r.ValueSize < 0
	}
	if err := it.Err(); err != nil {
		return s, fmt.Errorf("%w: offset %d: %w", batch.ErrCorrupt, b.BaseOffset(), err)
	}
	return s, nil
}

// keep says whether a data record stays.
func (f *filter) keep(b batch.Batch, r *records.Record) bool {
	if r.Offset > f.m.latest {
		return true // the map knows nothing of what follows
	}
	if r.KeySize < 0 {
		return false // it could never be replaced
	}
	if r.Offset < f.m.get(r.Key) {
		return false
	}
	return r.ValueSize >= 0 || !b.HasDeleteHorizon() || f.nowMs < b.FirstTimestamp()
}

// rewrite appends b with the kept records only. Offsets, the range of sequence numbers, the
// epochs and the codec stay; base is the new base timestamp.
func (f *filter) rewrite(dst []byte, b batch.Batch, s survivors, base int64, setHorizon bool) ([]byte, error) {
	f.plain = f.plain[:0]
	it := records.Raw(b)
	defer it.Close()
	for i := 0; it.Next(); i++ {
		if !f.kept[i] {
			continue
		}
		r := it.Record()
		f.plain = appendRecord(f.plain, r.Timestamp-base, int64(r.OffsetDelta), r.Body)
	}
	if err := it.Err(); err != nil {
		return dst, fmt.Errorf("%w: offset %d: %w", batch.ErrCorrupt, b.BaseOffset(), err)
	}
	start := len(dst)
	dst = append(dst, b[:batch.HeaderSize]...)
	dst, err := records.Compress(dst, b.Compression(), f.plain)
	if err != nil {
		return dst[:start], err
	}
	n := batch.Batch(dst[start:])
	if setHorizon {
		be.PutUint16(n[attributesOffset:], uint16(b.Attributes())|attrDeleteHorizon)
	}
	be.PutUint64(n[firstTimestampOffset:], uint64(base))
	be.PutUint64(n[maxTimestampOffset:], uint64(s.maxTs))
	be.PutUint32(n[numRecordsOffset:], uint32(s.n))
	be.PutUint32(n[lengthOffset:], uint32(len(n)-batch.LogOverhead))
	sign(n)
	return dst, nil
}

// appendEmpty appends the header that keeps a batch's offsets and sequence numbers alive
// without its records.
func appendEmpty(dst []byte, b batch.Batch) []byte {
	start := len(dst)
	dst = append(dst, b[:batch.HeaderSize]...)
	n := batch.Batch(dst[start:])
	be.PutUint16(n[attributesOffset:], uint16(b.Attributes())&^(attrCodecMask|attrDeleteHorizon))
	be.PutUint64(n[firstTimestampOffset:], uint64(1<<64-1))
	be.PutUint32(n[numRecordsOffset:], 0)
	be.PutUint32(n[lengthOffset:], batch.HeaderSize-batch.LogOverhead)
	sign(n)
	return dst
}

// appendRecord appends one record; body begins with the length of the key.
func appendRecord(dst []byte, tsDelta, offsetDelta int64, body []byte) []byte {
	size := 1 + varintLen(tsDelta) + varintLen(offsetDelta) + len(body)
	dst = binary.AppendVarint(dst, int64(size))
	dst = append(dst, 0) // attributes
	dst = binary.AppendVarint(dst, tsDelta)
	dst = binary.AppendVarint(dst, offsetDelta)
	return append(dst, body...)
}

func varintLen(v int64) int {
	u := uint64(v)<<1 ^ uint64(v>>63)
	n := 1
	for u >= 0x80 {
		u >>= 7
		n++
	}
	return n
}
