package log

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// Sizes of the entries of .index, .timeindex and .txnindex.
const (
	offsetEntrySize = 8
	timeEntrySize   = 12
	txnEntrySize    = 34
)

// offsetEntry maps the last offset of a batch to the batch's position.
type offsetEntry struct {
	rel int32 // offset minus the segment's base
	pos int32
}

// timeEntry says that no batch up to rel has a timestamp above ts.
type timeEntry struct {
	ts  int64
	rel int32 // last offset of the batch that has ts, minus the base
}

// abortedTxn is one entry of the transaction index.
type abortedTxn struct {
	producerID       int64
	firstOffset      int64
	lastOffset       int64 // of the ABORT marker
	lastStableOffset int64 // after the marker
}

// index is the offset and time index of one segment. Entries are only ever appended, so
// that a slice header taken under the segment's lock stays valid without it.
type index struct {
	offsets []offsetEntry
	times   []timeEntry
}

// floor is the position from which a search for the offset base+rel must begin.
func (x *index) floor(rel int64) int64 {
	pos, _ := x.floorEntry(rel)
	return pos
}

// floorEntry is floor with the offset that the batch there ends with, -1: none is claimed.
func (x *index) floorEntry(rel int64) (pos, last int64) {
	i, found := slices.BinarySearchFunc(x.offsets, rel, func(e offsetEntry, rel int64) int {
		return int(max(min(int64(e.rel)-rel, 1), -1))
	})
	if !found {
		i--
	}
	if i < 0 {
		return 0, -1
	}
	return int64(x.offsets[i].pos), int64(x.offsets[i].rel)
}

// floorTime is the last time entry with a timestamp of at most ts.
func (x *index) floorTime(ts int64) (timeEntry, bool) {
	i, found := slices.BinarySearchFunc(x.times, ts, func(e timeEntry, ts int64) int {
		switch {
		case e.ts < ts:
			return -1
		case e.ts > ts:
			return 1
		}
		return 0
	})
	if !found {
		i--
	}
	if i < 0 {
		return timeEntry{}, false
	}
	return x.times[i], true
}

// addTime appends a time entry unless it would say nothing new.
func (x *index) addTime(ts int64, rel int32) {
	if n := len(x.times); n > 0 && (x.times[n-1].ts >= ts || x.times[n-1].rel > rel) {
		return
	}
	if ts < 0 {
		return
	}
	x.times = append(x.times, timeEntry{ts, rel})
}

// cut drops the entries of offsets from base+rel on. The slices are copied when they are
// appended to again, because readers may hold them.
func (x *index) cut(rel int64) {
	n, _ := slices.BinarySearchFunc(x.offsets, rel, func(e offsetEntry, rel int64) int {
		return int(max(min(int64(e.rel)-rel, 1), -1))
	})
	x.offsets = slices.Clip(x.offsets[:n])
	n = len(x.times)
	for n > 0 && int64(x.times[n-1].rel) >= rel {
		n--
	}
	x.times = slices.Clip(x.times[:n])
}

func appendOffsetEntries(dst []byte, es []offsetEntry) []byte {
	for _, e := range es {
		dst = binary.BigEndian.AppendUint32(dst, uint32(e.rel))
		dst = binary.BigEndian.AppendUint32(dst, uint32(e.pos))
	}
	return dst
}

func appendTimeEntries(dst []byte, es []timeEntry) []byte {
	for _, e := range es {
		dst = binary.BigEndian.AppendUint64(dst, uint64(e.ts))
		dst = binary.BigEndian.AppendUint32(dst, uint32(e.rel))
	}
	return dst
}

func appendTxnEntries(dst []byte, es []abortedTxn) []byte {
	for _, e := range es {
		dst = binary.BigEndian.AppendUint16(dst, 0) // version
		for _, v := range []int64{e.producerID, e.firstOffset, e.lastOffset, e.lastStableOffset} {
			dst = binary.BigEndian.AppendUint64(dst, uint64(v))
		}
	}
	return dst
}

// decodeOffsetIndex reads an .index file and checks it: whole entries, offsets rising,
// positions rising and inside a log file of logSize bytes. Trailing zero entries of a
// preallocated file are dropped.
func decodeOffsetIndex(p []byte, logSize int64) ([]offsetEntry, error) {
	if len(p)%offsetEntrySize != 0 {
		return nil, fmt.Errorf("offset index of %d bytes", len(p))
	}
	es := make([]offsetEntry, 0, len(p)/offsetEntrySize)
	last := offsetEntry{-1, -1}
	for i := 0; len(p) > 0; i, p = i+1, p[offsetEntrySize:] {
		e := offsetEntry{int32(binary.BigEndian.Uint32(p)), int32(binary.BigEndian.Uint32(p[4:]))}
		if e == (offsetEntry{}) && i > 0 && allZero(p) {
			break
		}
		if e.rel <= last.rel || e.pos <= last.pos || int64(e.pos) >= logSize {
			return nil, fmt.Errorf("offset index entry %d (%d, %d) after (%d, %d) with a log of %d bytes", i, e.rel, e.pos, last.rel, last.pos, logSize)
		}
		es = append(es, e)
		last = e
	}
	return es, nil
}

// decodeTimeIndex reads a .timeindex file and checks it as decodeOffsetIndex does.
func decodeTimeIndex(p []byte) ([]timeEntry, error) {
	if len(p)%timeEntrySize != 0 {
		return nil, fmt.Errorf("time index of %d bytes", len(p))
	}
	es := make([]timeEntry, 0, len(p)/timeEntrySize)
	last := timeEntry{math.MinInt64, 0}
	for i := 0; len(p) > 0; i, p = i+1, p[timeEntrySize:] {
		e := timeEntry{int64(binary.BigEndian.Uint64(p)), int32(binary.BigEndian.Uint32(p[8:]))}
		if e == (timeEntry{}) && i > 0 && allZero(p) {
			break
		}
		if e.ts <= last.ts || e.rel < last.rel {
			return nil, fmt.Errorf("time index entry %d (%d, %d) after (%d, %d)", i, e.ts, e.rel, last.ts, last.rel)
		}
		es = append(es, e)
		last = e
	}
	return es, nil
}

// decodeTxnIndex reads a .txnindex file.
func decodeTxnIndex(p []byte) ([]abortedTxn, error) {
	if len(p)%txnEntrySize != 0 {
		return nil, fmt.Errorf("transaction index of %d bytes", len(p))
	}
	var es []abortedTxn
	for i := 0; len(p) > 0; i, p = i+1, p[txnEntrySize:] {
		if v := binary.BigEndian.Uint16(p); v != 0 {
			return nil, fmt.Errorf("transaction index entry %d: version %d", i, v)
		}
		at := func(i int) int64 { return int64(binary.BigEndian.Uint64(p[2+8*i:])) }
		e := abortedTxn{at(0), at(1), at(2), at(3)}
		if e.firstOffset > e.lastOffset || (len(es) > 0 && e.lastOffset <= es[len(es)-1].lastOffset) {
			return nil, fmt.Errorf("transaction index entry %d: offsets %d to %d", i, e.firstOffset, e.lastOffset)
		}
		es = append(es, e)
	}
	return es, nil
}

func allZero(p []byte) bool {
	for _, b := range p {
		if b != 0 {
			return false
		}
	}
	return true
}
