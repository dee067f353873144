package dumplog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"stet/broker/log/records"
	"stet/zerocopy/batch"
)

// log prints a .log file.
func (p *printer) log(name string) error {
	base, err := baseOf(name)
	if err != nil {
		return err
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	limit := st.Size()
	if p.o.MaxBytes > 0 {
		limit = min(limit, p.o.MaxBytes)
	}
	p.printf("Log starting offset: %d\n", base)
	r := batchReader{f: f, limit: limit}
	last := int64(-1)
	var gaps []string
	for {
		b, err := r.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			if !errors.Is(err, batch.ErrIncomplete) && !errors.Is(err, batch.ErrCorrupt) && !errors.Is(err, batch.ErrMagic) {
				return err
			}
			if rest := st.Size() - r.pos; rest > 0 && p.o.MaxBytes == 0 {
				p.note("%s is bad from position %d on: %v", name, r.pos, err)
				p.printf("Found %d invalid bytes at the end of %s\n", rest, filepath.Base(name))
			}
			break
		}
		p.batch(b, r.pos-int64(len(b)))
		if err := b.Check(); err != nil {
			p.note("%s is bad at position %d, offset %d: %v", name, r.pos-int64(len(b)), b.BaseOffset(), err)
		}
		if !p.o.DeepIteration {
			continue
		}
		it := records.New(b, true)
		for it.Next() {
			rec := it.Record()
			if last >= 0 && rec.Offset != last+1 {
				gaps = append(gaps, fmt.Sprintf("  %d is followed by %d", last, rec.Offset))
			}
			last = rec.Offset
			p.record(b, rec)
		}
		err = it.Err()
		it.Close()
		if err != nil {
			return fmt.Errorf("batch at offset %d: %w", b.BaseOffset(), err)
		}
	}
	if len(gaps) > 0 {
		p.note("Non-consecutive offsets in %s", name)
		for _, g := range gaps {
			p.note("%s", g)
		}
	}
	return nil
}

func timestampType(b batch.Batch) string {
	if b.IsLogAppendTime() {
		return "LogAppendTime"
	}
	return "CreateTime"
}

var codecNames = [...]string{"none", "gzip", "snappy", "lz4", "zstd"}

func codecName(c int) string {
	if c < len(codecNames) {
		return codecNames[c]
	}
	return fmt.Sprintf("unknown(%d)", c)
}

// batch prints the line of one batch.
func (p *printer) batch(b batch.Batch, pos int64) {
	horizon := int64(-1)
	if b.HasDeleteHorizon() {
		horizon = b.FirstTimestamp()
	}
	p.printf("baseOffset: %d lastOffset: %d count: %d baseSequence: %d lastSequence: %d producerId: %d producerEpoch: %d partitionLeaderEpoch: %d isTransactional: %t isControl: %t deleteHorizonMs: %s",
		b.BaseOffset(), b.LastOffset(), b.NumRecords(), b.BaseSequence(), b.LastSequence(), b.ProducerID(), b.ProducerEpoch(),
		b.PartitionLeaderEpoch(), b.IsTransactional(), b.IsControl(), optional(horizon))
	p.printf(" position: %d %s: %d size: %d magic: %d compresscodec: %s crc: %d isvalid: %t\n",
		pos, timestampType(b), b.MaxTimestamp(), len(b), b.Magic(), codecName(b.Compression()), b.CRC(), b.CheckCRC() == nil)
}

// record prints the line of one record.
func (p *printer) record(b batch.Batch, r *records.Record) {
	prefix := "| "
	if !p.o.SkipRecordMetadata {
		keys := make([]string, len(r.Headers))
		for i, h := range r.Headers {
			keys[i] = h.Key
		}
		p.printf("%soffset: %d %s: %d keySize: %d valueSize: %d sequence: %d headerKeys: [%s]",
			prefix, r.Offset, timestampType(b), r.Timestamp, r.KeySize, r.ValueSize, r.Sequence, strings.Join(keys, ","))
		prefix = " "
		if b.IsControl() {
			p.printf("%s", controlText(r.Key, r.Value))
		}
	}
	if p.o.PrintDataLog && !b.IsControl() {
		if p.o.Decoder != nil {
			k, v := p.o.Decoder(r.Key, r.Value)
			if k != "" {
				p.printf("%skey: %s", prefix, k)
			}
			if v != "" {
				p.printf(" payload: %s", v)
			}
		} else {
			if r.Key != nil {
				p.printf("%skey: %s", prefix, text(r.Key))
			}
			if r.Value != nil {
				p.printf(" payload: %s", text(r.Value))
			}
		}
	}
	p.printf("\n")
}

// controlText is what follows the metadata of a control record.
func controlText(key, value []byte) string {
	if len(key) < 4 {
		return fmt.Sprintf(" controlType: INVALID(key of %d bytes)", len(key))
	}
	typ := int16(binary.BigEndian.Uint16(key[2:]))
	switch typ {
	case batch.ControlAbort, batch.ControlCommit:
		name := "ABORT"
		if typ == batch.ControlCommit {
			name = "COMMIT"
		}
		if len(value) < 6 {
			return fmt.Sprintf(" endTxnMarker: %s coordinatorEpoch: INVALID(value of %d bytes)", name, len(value))
		}
		return fmt.Sprintf(" endTxnMarker: %s coordinatorEpoch: %d", name, int32(binary.BigEndian.Uint32(value[2:])))
	}
	return fmt.Sprintf(" controlType: UNKNOWN(%d)", typ)
}

// batchReader reads one whole batch after the other. It never allocates more than the file
// still holds.
type batchReader struct {
	f     io.ReaderAt
	pos   int64
	limit int64
	buf   []byte
}

func (r *batchReader) next() (batch.Batch, error) {
	if r.pos >= r.limit {
		return nil, io.EOF
	}
	var head [batch.HeaderSize]byte
	if r.pos+batch.HeaderSize > r.limit {
		return nil, batch.ErrIncomplete
	}
	if _, err := r.f.ReadAt(head[:], r.pos); err != nil {
		return nil, err
	}
	size := batch.SizeOf(head[:])
	if size < batch.HeaderSize {
		return nil, batch.ErrCorrupt
	}
	if r.pos+size > r.limit {
		return nil, batch.ErrIncomplete
	}
	if int64(cap(r.buf)) < size {
		r.buf = make([]byte, size)
	}
	p := r.buf[:size]
	if _, err := r.f.ReadAt(p, r.pos); err != nil {
		return nil, err
	}
	b, _, err := batch.Next(p)
	if err != nil {
		return nil, err
	}
	r.pos += size
	return b, nil
}
