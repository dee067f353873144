package dumplog

import (
	"math"

	"stet/zerocopy/batch"
)

// succession checks what a batch's CRC does not cover, base offset and leader epoch, against the batches before it: all that
// a log file says about them by itself. Of a directory that is given as a whole, check does it with what the other files say.
type succession struct {
	p     *printer
	name  string
	base  int64 // of the segment
	next  int64 // lowest offset that may come
	epoch int32
}

func (o *succession) batch(pos int64, b batch.Batch) {
	first, last, e := b.BaseOffset(), b.LastOffset(), b.PartitionLeaderEpoch()
	switch {
	case first < o.next && o.next == o.base:
		o.p.badBatch(o.name, pos, first, "it begins below the segment's first offset, %d", o.base)
	case first < o.next:
		o.p.badBatch(o.name, pos, first, "the log goes back: offset %d must come here, or a later one", o.next)
	case last-o.base > math.MaxInt32 || last < first:
		o.p.badBatch(o.name, pos, first, "it ends with offset %d, which a segment that begins at %d cannot hold", last, o.base)
	}
	if last-o.base <= math.MaxInt32 && last >= first {
		o.next = max(b.NextOffset(), o.base) // one finding, not one for each batch that follows
	}
	if e < -1 || e < o.epoch {
		o.p.badBatch(o.name, pos, first, "leader epoch %d after %d", e, o.epoch)
	}
	o.epoch = e
}
