package dumplog

import (
	"cmp"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"

	"stet/broker/log"
	"stet/zerocopy/batch"
)

// indexes are the three indexes of one segment while its batches go by.
type indexes struct {
	c       *check
	base    int64
	sealed  bool // the files are complete
	stopped bool // the log cannot be read to its end

	offsetName, timeName, txnName string

	offsets   []entry
	byPos     []int // entries in the order of their positions
	at        int
	times     []entry
	byOffset  []int
	timeAt    int
	maxTs     int64
	maxOffset int64 // last offset of the first batch with maxTs

	txns   []log.TxnIndexEntry
	txnsOK bool
	wanted []log.TxnIndexEntry
	aborts map[int64]int64 // last offset to producer id of the ABORT markers
}

// openIndexes reads them; a file that cannot be decoded was named when it was printed, and what can be read of
// it is compared all the same, to find the entry.
func (c *check) openIndexes(base int64, sealed bool, have map[string]bool) *indexes {
	x := &indexes{c: c, base: base, sealed: sealed, maxTs: -1, offsetName: c.path(base, ".index"), timeName: c.path(base, ".timeindex"), txnName: c.path(base, ".txnindex"), aborts: map[int64]int64{}}
	x.offsets, _, _ = offsetEntries(x.offsetName, base)
	x.times, _, _ = timeEntries(x.timeName, base)
	x.byPos = order(x.offsets, func(e entry) int64 { return e.pos })
	x.byOffset = order(x.times, func(e entry) int64 { return e.offset })
	for i := 1; i < len(x.offsets); i++ {
		if a, b := x.offsets[i-1], x.offsets[i]; b.offset <= a.offset || b.pos <= a.pos {
			c.p.badEntry(x.offsetName, i, 0, offsetEntry, "offset %d at position %d after offset %d at position %d", b.offset, b.pos, a.offset, a.pos)
		}
	}
	for i := 1; i < len(x.times); i++ {
		if a, b := x.times[i-1], x.times[i]; b.ts <= a.ts || b.offset <= a.offset {
			c.p.badEntry(x.timeName, i, 0, timeEntry, "timestamp %d at offset %d after timestamp %d at offset %d", b.ts, b.offset, a.ts, a.offset)
		}
	}
	b, err := os.ReadFile(x.txnName)
	x.txnsOK = (err == nil && len(b)%txnEntry == 0) || (os.IsNotExist(err) && sealed)
	for ; x.txnsOK && len(b) > 0; b = b[txnEntry:] {
		at := func(i int) int64 { return int64(binary.BigEndian.Uint64(b[2+8*i:])) }
		x.txns = append(x.txns, log.TxnIndexEntry{ProducerID: at(0), FirstOffset: at(1), LastOffset: at(2), LastStableOffset: at(3)})
	}
	for _, ext := range []string{".index", ".timeindex"} {
		if name := c.path(base, ext); sealed && !have[filepath.Base(name)] {
			c.p.badFile(name, "it is missing; the broker makes it again when it starts")
		}
	}
	return x
}

func order(es []entry, key func(entry) int64) []int {
	idx := make([]int, len(es))
	for i := range idx {
		idx[i] = i
	}
	slices.SortStableFunc(idx, func(a, b int) int { return cmp.Compare(key(es[a]), key(es[b])) })
	return idx
}

// expect is an aborted transaction that the replay found.
func (x *indexes) expect(e log.TxnIndexEntry) { x.wanted = append(x.wanted, e) }

// batch lets one batch go by.
func (x *indexes) batch(pos int64, b batch.Batch, good bool) {
	p := x.c.p
	for ; x.at < len(x.byPos) && x.offsets[x.byPos[x.at]].pos <= pos; x.at++ {
		i := x.byPos[x.at]
		switch e := x.offsets[i]; {
		case e.pos < pos:
			x.noBatch(i, e)
		case e.offset != b.LastOffset():
			p.badEntry(x.offsetName, i, 0, offsetEntry, "it says that the batch at position %d of the log ends with offset %d, there is %d (-1: none)", e.pos, e.offset, b.LastOffset())
		}
	}
	if ts := b.MaxTimestamp(); ts > x.maxTs {
		x.maxTs, x.maxOffset = ts, b.LastOffset()
	}
	for ; x.timeAt < len(x.byOffset) && x.times[x.byOffset[x.timeAt]].offset <= b.LastOffset(); x.timeAt++ {
		i := x.byOffset[x.timeAt]
		switch e := x.times[i]; {
		case e.offset < b.LastOffset():
			p.badEntry(x.timeName, i, 0, timeEntry, "no batch of the log ends with its offset %d", e.offset)
		case !good:
		case e.ts != b.MaxTimestamp():
			p.badEntry(x.timeName, i, 0, timeEntry, "it says timestamp %d for the batch that ends with offset %d, which has %d", e.ts, e.offset, b.MaxTimestamp())
		case x.maxTs > e.ts || x.maxOffset < e.offset:
			p.badEntry(x.timeName, i, 0, timeEntry, "the largest timestamp up to offset %d is %d, of the batch that ends with offset %d", e.offset, x.maxTs, x.maxOffset)
		}
	}
	if b.IsControl() && b.NumRecords() > 0 {
		if typ, err := b.ControlType(); err == nil && typ == batch.ControlAbort {
			x.aborts[b.LastOffset()] = b.ProducerID()
		}
	}
}

func (x *indexes) noBatch(i int, e entry) {
	x.c.p.badEntry(x.offsetName, i, 0, offsetEntry, "it says that a batch begins at position %d of the log (offset %d), there is none", e.pos, e.offset)
}

// finish compares what is left when the log of size bytes has ended.
func (x *indexes) finish(size, bound int64) {
	p := x.c.p
	if x.stopped {
		return
	}
	for ; x.at < len(x.byPos); x.at++ {
		x.noBatch(x.byPos[x.at], x.offsets[x.byPos[x.at]])
	}
	for ; x.timeAt < len(x.byOffset); x.timeAt++ {
		i := x.byOffset[x.timeAt]
		if e := x.times[i]; size > 0 || e.ts != 0 || e.offset != x.base {
			p.badEntry(x.timeName, i, 0, timeEntry, "the segment ends before its offset %d", e.offset)
		}
	}
	if n := len(x.times); n > 0 && x.sealed && !x.c.damaged && x.maxTs > x.times[n-1].ts {
		p.badEntry(x.timeName, n-1, 0, timeEntry, "it is the last one, with timestamp %d; the segment has %d at offset %d", x.times[n-1].ts, x.maxTs, x.maxOffset)
	}
	x.finishTxns()
}

// finishTxns compares the transaction index with the aborted transactions that the replay found. Of a
// segment that was cleaned only the markers are left.
func (x *indexes) finishTxns() {
	p := x.c.p
	if !x.txnsOK || x.c.damaged {
		return
	}
	if x.c.replay == nil || x.base < x.c.cleaned || x.c.loose {
		for i, e := range x.txns {
			if id, ok := x.aborts[e.LastOffset]; !ok || id != e.ProducerID {
				p.badEntry(x.txnName, i, 0, txnEntry, "the log has no ABORT marker of producer %d at offset %d", e.ProducerID, e.LastOffset)
			}
		}
		return
	}
	for i := range max(len(x.txns), len(x.wanted)) {
		switch {
		case i >= len(x.txns):
			p.badEntry(x.txnName, i, 0, txnEntry, "it is missing; the log says %+v", x.wanted[i])
		case i >= len(x.wanted):
			p.badEntry(x.txnName, i, 0, txnEntry, "%+v; the log has no such aborted transaction", x.txns[i])
		case x.txns[i] != x.wanted[i]:
			p.badEntry(x.txnName, i, 0, txnEntry, "%+v, the log says %+v", x.txns[i], x.wanted[i])
		default:
			continue
		}
		return // what follows is shifted
	}
}
