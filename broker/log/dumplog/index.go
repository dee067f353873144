package dumplog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sort"

	"stet/broker/log/records"
	"stet/zerocopy/batch"
)

const (
	offsetEntry = 8
	timeEntry   = 12
)

// entry is one index entry; pos is not used by the time index, ts not by the offset index.
type entry struct {
	offset, pos, ts int64
}

// readEntries reads an index file. Like Kafka it stops at the zero entries of a
// preallocated file; zeros says whether nothing else follows. Unlike Kafka's tool, which ends with an
// exception or reports a mismatch, it takes a preallocated file without any entry as empty.
func readEntries(name string, base int64, size int, decode func(p []byte) entry) (es []entry, zeros bool, err error) {
	p, err := os.ReadFile(name)
	if err != nil {
		return nil, true, err
	}
	if len(p)%size != 0 {
		return nil, true, fmt.Errorf("%d bytes are not a multiple of %d", len(p), size)
	}
	for i := 0; len(p) > 0; i, p = i+1, p[size:] {
		e := decode(p)
		if len(p) > size && allZero(p) {
			break
		}
		if e.offset == base && i > 0 {
			return es, allZero(p), nil
		}
		es = append(es, e)
	}
	return es, true, nil
}

func allZero(p []byte) bool {
	for _, b := range p {
		if b != 0 {
			return false
		}
	}
	return true
}

func offsetEntries(name string, base int64) ([]entry, bool, error) {
	return readEntries(name, base, offsetEntry, func(p []byte) entry {
		return entry{offset: base + int64(int32(binary.BigEndian.Uint32(p))), pos: int64(int32(binary.BigEndian.Uint32(p[4:])))}
	})
}

func timeEntries(name string, base int64) ([]entry, bool, error) {
	return readEntries(name, base, timeEntry, func(p []byte) entry {
		return entry{ts: int64(binary.BigEndian.Uint64(p)), offset: base + int64(int32(binary.BigEndian.Uint32(p[8:])))}
	})
}

// sane says, as Kafka does, that an index passed the check that the broker makes when it opens it.
func (p *printer) sane(name string) {
	if p.o.JSON {
		p.line(checkLine{"sane", name})
	}
	p.printf("%s passed sanity check.\n", name)
}

func (p *printer) offsetIndex(name string) error {
	base, err := baseOf(name)
	if err != nil {
		return err
	}
	es, zeros, err := offsetEntries(name, base)
	if err != nil {
		return err
	}
	if len(es) == 0 {
		if p.o.JSON {
			p.line(checkLine{"empty", name})
		}
		p.printf("%s is empty.\n", name)
		return nil
	}
	p.onlyZeros(name, len(es), offsetEntry, zeros)
	if p.o.IndexSanityCheck {
		if last := es[len(es)-1].offset; last < base {
			return fmt.Errorf("index is corrupt: last offset %d with base offset %d", last, base)
		}
		p.sane(name)
		return nil
	}
	f, err := siblingLog(name)
	if err != nil {
		return err
	}
	defer f.Close()
	mismatch := false
	for i, e := range es {
		var head [batch.HeaderSize]byte
		last := int64(-1)
		if e.pos >= 0 {
			if _, err := f.ReadAt(head[:], e.pos); err == nil {
				last = batch.Batch(head[:]).LastOffset()
			}
		}
		if last != e.offset {
			if !mismatch {
				p.note("Mismatches in :%s", name)
				mismatch = true
			}
			p.note("  Index offset: %d, log offset: %d", e.offset, last)
			p.badEntry(name, i, 0, offsetEntry, "it says that the batch at position %d of the log ends with offset %d, there is %d (-1: none)", e.pos, e.offset, last)
		}
		if p.o.VerifyIndexOnly {
			continue
		}
		if p.o.JSON {
			p.line(indexLine{"offsetIndexEntry", e.offset, e.pos})
		}
		p.printf("offset: %d position: %d\n", e.offset, e.pos)
	}
	return nil
}

func (p *printer) onlyZeros(name string, n int, size int64, zeros bool) {
	if !zeros {
		p.badEntry(name, n, 0, size, "an entry of the base offset follows others, and not only zeros (unused room) after it")
	}
}

func (p *printer) timeIndex(name string) error {
	base, err := baseOf(name)
	if err != nil {
		return err
	}
	es, zeros, err := timeEntries(name, base)
	if err != nil {
		return err
	}
	p.onlyZeros(name, len(es), timeEntry, zeros)
	if p.o.IndexSanityCheck {
		if n := len(es); n > 0 && (es[n-1].ts < es[0].ts || es[n-1].offset < base) {
			return fmt.Errorf("time index is corrupt: last entry %d at offset %d, first %d, base offset %d", es[n-1].ts, es[n-1].offset, es[0].ts, base)
		}
		p.sane(name)
		return nil
	}
	f, err := siblingLog(name)
	if err != nil {
		return err
	}
	defer f.Close()
	offsets, _, err := offsetEntries(name[:len(name)-len(".timeindex")]+".index", base)
	if err != nil {
		return err
	}
	prev := int64(-1)
	for i, e := range es {
		if err := p.checkTime(name, f, offsets, i, e, prev); err != nil {
			return err
		}
		prev = e.ts
		if p.o.VerifyIndexOnly {
			continue
		}
		if p.o.JSON {
			p.line(timeLine{"timeIndexEntry", e.ts, e.offset})
		}
		p.printf("timestamp: %d offset: %d\n", e.ts, e.offset)
	}
	return nil
}

// checkTime compares a time index entry with the batch that it names.
func (p *printer) checkTime(name string, f *os.File, offsets []entry, i int, e entry, prev int64) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	notFound := func(found int64) {
		p.note("The following indexed offsets are not found in the log.\nIndexed offset: %d, found log offset: %d", e.offset, found)
		p.badEntry(name, i, 0, timeEntry, "no batch of the log ends with its offset %d", e.offset)
	}
	r := batchReader{f: f, limit: st.Size()}
	if n := sort.Search(len(offsets), func(i int) bool { return offsets[i].offset > e.offset }); n > 0 && offsets[n-1].pos >= 0 {
		r.pos = offsets[n-1].pos
	}
	for {
		b, err := r.next()
		if errors.Is(err, io.EOF) || (err != nil && notABatch(err)) {
			notFound(-1)
			return nil
		}
		if err != nil {
			return err
		}
		if b.LastOffset() < e.offset {
			continue
		}
		if b.LastOffset() != e.offset {
			notFound(b.LastOffset())
			return nil
		}
		largest, err := largestTimestamp(b)
		if err != nil {
			p.badBatch(f.Name(), r.pos-int64(len(b)), b.BaseOffset(), "%v", err)
			return nil
		}
		if largest != e.ts {
			p.note("Found timestamp mismatch in :%s\n  Index timestamp: %d, log timestamp: %d", name, e.ts, largest)
			if b.NumRecords() > 0 || e.ts != b.MaxTimestamp() { // one that the cleaner emptied keeps its timestamp
				p.badEntry(name, i, 0, timeEntry, "it says timestamp %d for the batch that ends with offset %d, which has %d", e.ts, e.offset, max(largest, b.MaxTimestamp()))
			}
		}
		if prev >= e.ts {
			p.note("Found out of order timestamp in :%s\n  Index timestamp: %d, Previously indexed timestamp: %d", name, e.ts, prev)
			p.badEntry(name, i, 0, timeEntry, "its timestamp %d is not above that of the entry before, %d", e.ts, prev)
		}
		return nil
	}
}

func largestTimestamp(b batch.Batch) (int64, error) {
	largest := int64(-1)
	it := records.New(b, false)
	defer it.Close()
	for it.Next() {
		largest = max(largest, it.Record().Timestamp)
	}
	return largest, it.Err()
}
