package log

import (
	"context"
	"math/bits"
	"sync"
	"sync/atomic"

	"stet/internal/vfs"
)

// Readahead for readers far behind the tail. What such a reader needs next is brought into
// memory before it asks, and what it has passed is dropped again, so that it does not push
// the tail, which many read, out of the page cache. The rule:
//
//   - A reader is a run of reads of which each begins where the one before ended. One read
//     alone gives no advice; who jumps about gives none.
//   - Within aheadRule.tail bytes of the log end nothing is advised: it is hot, or will be.
//   - Ahead of a reader whole blocks are looked at once, before it gets there. A block of which half is in
//     memory is somebody's: it is left alone, also later. Others are read ahead and marked.
//   - A marked block is dropped when the reader asks for what follows it: then it has received
//     the block. Another reader close behind takes the mark over instead, and drops it later.
//
// State per log is one readahead, made by the first read far behind; the work is done on one
// goroutine of Manager.Run. Where its queue is full, or the files are no vfs.PageCacher,
// reads go on as without it.

// aheadRule are the sizes of the rule, in bytes.
type aheadRule struct {
	block  int64 // what is looked at, read and dropped at once
	window int64 // how far ahead of a reader; at most 64 blocks
	tail   int64 // how near the log end nothing is done
}

var defaultAhead = aheadRule{block: 1 << 20, window: 4 << 20, tail: 16 << 20}

// aheadReaders is how many readers of one log are followed; more take turns.
const aheadReaders = 8

// readahead is what is known of the readers of a log that are far behind.
type readahead struct {
	mu      sync.Mutex
	readers [aheadReaders]aheadReader
	clock   uint64 // counts reads
}

// aheadReader is one of them. base and marked are in blocks: bit i of marked stands for block base+i.
type aheadReader struct {
	id       uint64 // another reader in the same place has another one; 0: free
	seg      *segment
	pos, end int64 // the last read
	next     int64 // what readable.next was then, noOffset unless that read reached the segment's end
	reads    int   // in sequence
	last     uint64
	looked   int64 // everything below was looked at, or passed
	base     int64
	marked   uint64
}

// aheadJob is work for the goroutine. It holds a reference to its segment.
type aheadJob struct {
	a        *readahead
	slot     int
	id       uint64
	seg      *segment
	dropFrom int64 // block of bit 0 of drop
	drop     uint64
	from, to int64 // to be looked at and read, multiples of the block but for the end of a file
}

// aheadQueue carries the jobs.
type aheadQueue struct {
	rule aheadRule
	jobs chan aheadJob
	off  atomic.Bool // files cannot be advised
}

func (q *aheadQueue) init() { q.rule, q.jobs = defaultAhead, make(chan aheadJob, 64) }

// follow notes a read of [pos, pos+n) of a segment.
func (l *Log) follow(r *readable, pos int64, n int) {
	q := &l.m.ahead
	behind := r.limit - (pos + int64(n)) + r.after
	a := l.ahead.Load()
	if q.off.Load() || (a == nil && behind <= q.rule.tail) {
		return
	}
	if a == nil {
		a = &readahead{}
		if !l.ahead.CompareAndSwap(nil, a) {
			a = l.ahead.Load()
		}
	}
	a.note(q, r, pos, pos+int64(n), behind-q.rule.tail)
}

// note follows the reader of [pos, end). room is how far from end the tail begins.
func (a *readahead) note(q *aheadQueue, r *readable, pos, end, room int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.clock++
	i := a.find(r.seg, pos)
	if i < 0 {
		if room > 0 {
			a.begin(r, pos, end)
		}
		return
	}
	d := &a.readers[i]
	if d.seg != r.seg {
		// It goes on in the next segment: it has passed all of the old one.
		if drop := a.pass(i, q.rule.block, d.base+64); drop != 0 && d.seg.tryRetain() {
			q.send(aheadJob{a: a, slot: i, id: d.id, seg: d.seg, dropFrom: d.base, drop: drop})
		}
		*d = aheadReader{id: d.id, seg: r.seg, reads: d.reads}
	}
	if pos > d.pos || end > d.end {
		d.reads++
	}
	d.pos, d.end, d.next, d.last = pos, end, r.nextAfter(end), a.clock
	job := aheadJob{a: a, slot: i, id: d.id, seg: r.seg, dropFrom: d.base}
	passed := pos / q.rule.block
	if job.drop = a.pass(i, q.rule.block, passed); passed > d.base {
		d.marked >>= passed - d.base
		d.base = passed
	}
	if room > 0 && d.reads >= 2 {
		job.from, job.to = d.ahead(q.rule, r.limit, room)
	}
	if job.drop == 0 && job.from == job.to {
		return
	}
	r.seg.retain() // the caller holds it
	if q.send(job) && job.from < job.to {
		d.looked = job.to
	}
}

// find is the reader that a read at pos continues, -1: none.
func (a *readahead) find(seg *segment, pos int64) int {
	best, gap := -1, int64(0)
	for i := range a.readers {
		d := &a.readers[i]
		if d.id == 0 {
			continue
		}
		// A read may have ended inside a batch; the next one begins with it.
		g := int64(-1)
		if d.seg == seg && d.pos <= pos && pos <= d.end {
			g = d.end - pos
		} else if pos == 0 && d.seg != seg && d.next == seg.base {
			g = 0
		}
		if g >= 0 && (best < 0 || g < gap) {
			best, gap = i, g
		}
	}
	return best
}

// begin takes the place of the reader that is missed least: one that read once, else the one
// that was not seen for longest.
func (a *readahead) begin(r *readable, pos, end int64) {
	victim := &a.readers[0]
	for i := range a.readers {
		d := &a.readers[i]
		if d.id == 0 {
			victim = d
			break
		}
		if once, best := d.reads < 2, victim.reads < 2; once != best {
			if once {
				victim = d
			}
		} else if d.last < victim.last {
			victim = d
		}
	}
	*victim = aheadReader{id: a.clock, seg: r.seg, pos: pos, end: end, next: r.nextAfter(end), reads: 1, last: a.clock}
}

// nextAfter is the base of the segment that a reader goes on with after position end.
func (r *readable) nextAfter(end int64) int64 {
	if end < r.limit {
		return noOffset
	}
	return r.next
}

// pass takes the marked blocks below block number upTo from reader i. It returns those that
// nobody behind it takes over.
func (a *readahead) pass(i int, block, upTo int64) uint64 {
	d := &a.readers[i]
	n := min(max(upTo-d.base, 0), 64)
	drop := d.marked
	if n < 64 {
		drop &= 1<<n - 1
	}
	for rest := drop; rest != 0; rest &= rest - 1 {
		bit := bits.TrailingZeros64(rest)
		k := d.base + int64(bit)
		for j := range a.readers {
			o := &a.readers[j]
			if j != i && o.id != 0 && o.reads >= 2 && o.seg == d.seg && o.pos < (k+1)*block && k >= o.base && k-o.base < 64 {
				o.marked |= 1 << (k - o.base)
				drop &^= 1 << bit
				break
			}
		}
	}
	return drop
}

// ahead is what is to be looked at now: whole blocks up to the window's end, or nothing while
// half of the window is still to come.
func (d *aheadReader) ahead(rule aheadRule, limit, room int64) (from, to int64) {
	up := func(n int64) int64 { return (n + rule.block - 1) / rule.block * rule.block }
	if d.looked < d.end {
		d.looked = up(d.end) // the reader was faster, or has just begun
	}
	to = min(d.end+min(rule.window, room), limit)
	if to < limit {
		to = to / rule.block * rule.block
	}
	if to <= d.looked || (to < limit && to-d.looked < rule.window/2 && d.looked > up(d.end)) {
		return 0, 0
	}
	return d.looked, to
}

// send gives a job to the goroutine, with the reference that the caller has taken.
func (q *aheadQueue) send(j aheadJob) bool {
	select {
	case q.jobs <- j:
		return true
	default:
		j.seg.release()
		return false
	}
}

// runReadahead does the jobs until ctx ends.
func (m *Manager) runReadahead(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case j := <-m.ahead.jobs:
			m.ahead.do(j)
		}
	}
}

// drain does what is in the queue, or with drop only gives up its references.
func (q *aheadQueue) drain(drop bool) {
	for {
		select {
		case j := <-q.jobs:
			if drop {
				j.seg.release()
			} else {
				q.do(j)
			}
		default:
			return
		}
	}
}

// do gives the advice. Errors are those of hints that were not taken: whether the disk works
// is for the reads to find out.
func (q *aheadQueue) do(j aheadJob) {
	defer j.seg.release()
	f, err := j.seg.file.pin()
	if err != nil {
		return
	}
	defer j.seg.file.unpin()
	c, ok := f.(vfs.PageCacher)
	if !ok {
		q.off.Store(true)
		return
	}
	b := q.rule.block
	for rest := j.drop; rest != 0; {
		first := bits.TrailingZeros64(rest)
		n := bits.TrailingZeros64(^(rest >> first))
		_ = c.DontNeed((j.dropFrom+int64(first))*b, int64(n)*b)
		if first+n >= 64 {
			break
		}
		rest &^= 1<<(first+n) - 1
	}
	for from := j.from; from < j.to; from += b {
		n := min(b, j.to-from)
		if in, err := c.Resident(from, n); err == nil && 2*in < n && c.WillNeed(from, n) == nil {
			j.a.mark(j, from/b)
		}
	}
}

// mark notes that a block was brought for a reader.
func (a *readahead) mark(j aheadJob, k int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if d := &a.readers[j.slot]; d.id == j.id && d.seg == j.seg && k >= d.base && k-d.base < 64 {
		d.marked |= 1 << (k - d.base)
	}
}
