package dumplog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"stet/broker/log"
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
// preallocated file.
func readEntries(name string, base int64, size int, decode func(p []byte) entry) ([]entry, error) {
	p, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	if len(p)%size != 0 {
		return nil, fmt.Errorf("%d bytes are not a multiple of %d", len(p), size)
	}
	var es []entry
	for i := 0; len(p) > 0; i, p = i+1, p[size:] {
		e := decode(p)
		if e.offset == base && i > 0 {
			break
		}
		es = append(es, e)
	}
	return es, nil
}

func offsetEntries(name string, base int64) ([]entry, error) {
	return readEntries(name, base, offsetEntry, func(p []byte) entry {
		return entry{offset: base + int64(int32(binary.BigEndian.Uint32(p))), pos: int64(int32(binary.BigEndian.Uint32(p[4:])))}
	})
}

func timeEntries(name string, base int64) ([]entry, error) {
	return readEntries(name, base, timeEntry, func(p []byte) entry {
		return entry{ts: int64(binary.BigEndian.Uint64(p)), offset: base + int64(int32(binary.BigEndian.Uint32(p[8:])))}
	})
}

func (p *printer) offsetIndex(name string) error {
	base, err := baseOf(name)
	if err != nil {
		return err
	}
	es, err := offsetEntries(name, base)
	if err != nil {
		return err
	}
	if len(es) == 0 {
		p.printf("%s is empty.\n", name)
		return nil
	}
	if p.o.IndexSanityCheck {
		if es[len(es)-1].offset <= base && len(es) > 1 {
			return fmt.Errorf("index is corrupt: last offset %d with base offset %d", es[len(es)-1].offset, base)
		}
		p.printf("%s passed sanity check.\n", name)
		return nil
	}
	f, err := siblingLog(name)
	if err != nil {
		return err
	}
	defer f.Close()
	mismatch := false
	for _, e := range es {
		var head [batch.HeaderSize]byte
		last := int64(-1)
		if _, err := f.ReadAt(head[:], e.pos); err == nil {
			last = batch.Batch(head[:]).LastOffset()
		}
		if last != e.offset {
			if !mismatch {
				p.note("Mismatches in :%s", name)
				mismatch = true
			}
			p.note("  Index offset: %d, log offset: %d", e.offset, last)
		}
		if !p.o.VerifyIndexOnly {
			p.printf("offset: %d position: %d\n", e.offset, e.pos)
		}
	}
	return nil
}

func (p *printer) timeIndex(name string) error {
	base, err := baseOf(name)
	if err != nil {
		return err
	}
	es, err := timeEntries(name, base)
	if err != nil {
		return err
	}
	if p.o.IndexSanityCheck {
		if n := len(es); n > 0 && es[n-1].ts < es[0].ts {
			return fmt.Errorf("time index is corrupt: last timestamp %d, first %d", es[n-1].ts, es[0].ts)
		}
		p.printf("%s passed sanity check.\n", name)
		return nil
	}
	f, err := siblingLog(name)
	if err != nil {
		return err
	}
	defer f.Close()
	offsets, err := offsetEntries(name[:len(name)-len(".timeindex")]+".index", base)
	if err != nil {
		return err
	}
	prev := int64(-1)
	for _, e := range es {
		if err := p.checkTime(name, f, offsets, e, prev); err != nil {
			return err
		}
		if !p.o.VerifyIndexOnly {
			p.printf("timestamp: %d offset: %d\n", e.ts, e.offset)
		}
		prev = e.ts
	}
	return nil
}

// checkTime compares a time index entry with the batch that it names.
func (p *printer) checkTime(name string, f *os.File, offsets []entry, e entry, prev int64) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	r := batchReader{f: f, limit: st.Size()}
	for _, o := range offsets {
		if o.offset <= e.offset {
			r.pos = o.pos
		}
	}
	for {
		b, err := r.next()
		if errors.Is(err, io.EOF) || errors.Is(err, batch.ErrIncomplete) || errors.Is(err, batch.ErrCorrupt) || errors.Is(err, batch.ErrMagic) {
			p.note("The following indexed offsets are not found in the log.\nIndexed offset: %d, found log offset: %d", e.offset, -1)
			return nil
		}
		if err != nil {
			return err
		}
		if b.LastOffset() < e.offset {
			continue
		}
		if b.LastOffset() != e.offset {
			p.note("The following indexed offsets are not found in the log.\nIndexed offset: %d, found log offset: %d", e.offset, b.LastOffset())
			return nil
		}
		largest := int64(-1)
		it := records.New(b, false)
		for it.Next() {
			largest = max(largest, it.Record().Timestamp)
		}
		err = it.Err()
		it.Close()
		if err != nil {
			return fmt.Errorf("batch at offset %d: %w", b.BaseOffset(), err)
		}
		if largest != e.ts {
			p.note("Found timestamp mismatch in :%s\n  Index timestamp: %d, log timestamp: %d", name, e.ts, largest)
		}
		if prev >= e.ts {
			p.note("Found out of order timestamp in :%s\n  Index timestamp: %d, Previously indexed timestamp: %d", name, e.ts, prev)
		}
		return nil
	}
}

func (p *printer) txnIndex(name string) error {
	b, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	es, err := log.DecodeTxnIndex(b)
	if err != nil {
		return err
	}
	for _, e := range es {
		p.printf("version: 0 producerId: %d firstOffset: %d lastOffset: %d lastStableOffset: %d\n", e.ProducerID, e.FirstOffset, e.LastOffset, e.LastStableOffset)
	}
	return nil
}

func (p *printer) snapshot(name string) error {
	b, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	es, err := log.DecodeSnapshot(b)
	if err != nil {
		return err
	}
	for _, e := range es {
		p.printf("producerId: %d producerEpoch: %d coordinatorEpoch: %d currentTxnFirstOffset: %s lastTimestamp: %d",
			e.ProducerID, e.ProducerEpoch, e.CoordinatorEpoch, optional(e.TxnFirstOffset), e.LastTimestamp)
		if e.HasBatch {
			p.printf(" firstSequence: %d lastSequence: %d lastOffset: %d offsetDelta: %d timestamp: %d",
				e.FirstSequence, e.LastSequence, e.LastOffset, e.OffsetDelta, e.LastTimestamp)
		}
		p.printf("\n")
	}
	return nil
}

// checkpoint prints a file of offsets; Kafka's dump-log leaves these out.
func (p *printer) checkpoint(name string) error {
	b, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if filepath.Base(name) == "leader-epoch-checkpoint" {
		es, err := log.DecodeEpochs(b)
		if err != nil {
			return err
		}
		for _, e := range es {
			p.printf("epoch: %d startOffset: %d\n", e.Epoch, e.Start)
		}
		return nil
	}
	lines, err := log.DecodeCheckpoint(b)
	if err != nil {
		return err
	}
	for _, o := range lines {
		p.printf("topic: %s partition: %d offset: %d\n", o.Topic, o.Partition, o.Offset)
	}
	return nil
}
