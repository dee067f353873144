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
	if !p.o.JSON {
		p.printf("Log starting offset: %d\n", base)
	}
	r := batchReader{f: f, limit: limit}
	order := succession{p: p, name: name, base: base, next: base, epoch: -1}
	last := int64(-1)
	var gaps []string
	for {
		b, err := r.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			if !notABatch(err) {
				return err
			}
			if rest := st.Size() - r.pos; rest > 0 && p.o.MaxBytes == 0 {
				p.badTail(name, r.pos, st.Size(), err)
				p.printf("Found %d invalid bytes at the end of %s\n", rest, filepath.Base(name))
			}
			break
		}
		pos := r.pos - int64(len(b))
		p.batch(b, pos)
		if err := b.Check(); err != nil {
			p.badBatch(name, pos, b.BaseOffset(), "%v", err)
		} else if !p.whole[filepath.Dir(name)] {
			order.batch(pos, b)
		}
		if !p.o.DeepIteration {
			continue
		}
		it := records.New(b, true)
		for it.Next() {
			rec := it.Record()
			if rec.Offset != last+1 { // Kafka's tool begins at -1, too
				gaps = append(gaps, fmt.Sprintf("  %d is followed by %d", last, rec.Offset))
			}
			last = rec.Offset
			p.record(b, rec)
		}
		if err := it.Err(); err != nil && b.CheckCRC() == nil {
			p.badBatch(name, pos, b.BaseOffset(), "%v", err)
		}
		it.Close()
	}
	if len(gaps) > 0 {
		p.note("Non-consecutive offsets in %s", name)
		for _, g := range gaps {
			p.note("%s", g)
		}
	}
	return nil
}

func notABatch(err error) bool {
	return errors.Is(err, batch.ErrIncomplete) || errors.Is(err, batch.ErrCorrupt) || errors.Is(err, batch.ErrMagic)
}

// badTail is the finding for a file that holds no batch from pos on.
func (p *printer) badTail(name string, pos, size int64, err error) {
	p.badBatch(name, pos, -1, "%v: the last %d bytes are no whole batch", err, size-pos)
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
	if p.o.JSON {
		p.line(batchLine{
			"batch", b.BaseOffset(), b.LastOffset(), b.NumRecords(), b.BaseSequence(), b.LastSequence(), b.ProducerID(), b.ProducerEpoch(), b.PartitionLeaderEpoch(),
			b.IsTransactional(), b.IsControl(), place(horizon), pos, timestampType(b), b.MaxTimestamp(), len(b), b.Magic(), codecName(b.Compression()), b.CRC(), b.CheckCRC() == nil,
		})
		return
	}
	p.printf("baseOffset: %d lastOffset: %d count: %d baseSequence: %d lastSequence: %d producerId: %d producerEpoch: %d partitionLeaderEpoch: %d isTransactional: %t isControl: %t deleteHorizonMs: %s",
		b.BaseOffset(), b.LastOffset(), b.NumRecords(), b.BaseSequence(), b.LastSequence(), b.ProducerID(), b.ProducerEpoch(),
		b.PartitionLeaderEpoch(), b.IsTransactional(), b.IsControl(), optional(horizon))
	p.printf(" position: %d %s: %d size: %d magic: %d compresscodec: %s crc: %d isvalid: %t\n",
		pos, timestampType(b), b.MaxTimestamp(), len(b), b.Magic(), codecName(b.Compression()), b.CRC(), b.CheckCRC() == nil)
}

// record prints the line of one record.
func (p *printer) record(b batch.Batch, r *records.Record) {
	if p.o.JSON {
		p.recordJSON(b, r)
		return
	}
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
		k, v := p.texts(r)
		if k != nil {
			p.printf("%skey: %s", prefix, *k)
			prefix = " "
		}
		if v != nil {
			p.printf("%spayload: %s", prefix, *v)
		}
	}
	p.printf("\n")
}

// texts are what is printed of key and value; nil: nothing.
func (p *printer) texts(r *records.Record) (k, v *string) {
	if p.o.Decoder == nil {
		if r.Key != nil {
			s := text(r.Key)
			k = &s
		}
		if r.Value != nil {
			s := text(r.Value)
			v = &s
		}
		return k, v
	}
	dk, dv := p.o.Decoder(r.Offset, r.Key, r.Value)
	if dk != "" {
		k = &dk
	}
	if dv != "" {
		v = &dv
	}
	return k, v
}

func (p *printer) recordJSON(b batch.Batch, r *records.Record) {
	l := recordLine{Type: "record", Offset: r.Offset, Timestamp: r.Timestamp, KeySize: r.KeySize, ValueSize: r.ValueSize, Sequence: r.Sequence, HeaderKeys: make([]string, len(r.Headers))}
	for i, h := range r.Headers {
		l.HeaderKeys[i] = h.Key
	}
	switch {
	case b.IsControl():
		l.Control, l.CoordinatorEpoch = controlType(r.Key, r.Value)
	case p.o.PrintDataLog && p.o.Decoder != nil:
		k, v := p.o.Decoder(r.Offset, r.Key, r.Value)
		l.Key, l.Payload = embedded(k), embedded(v)
	case p.o.PrintDataLog:
		l.Key, l.KeyBase64 = jsonText(r.Key)
		l.Payload, l.PayloadBase64 = jsonText(r.Value)
	}
	p.line(l)
}

// controlType is the name of a control record's type and the coordinator epoch of a marker.
func controlType(key, value []byte) (string, *int32) {
	if len(key) < 4 {
		return fmt.Sprintf("INVALID(key of %d bytes)", len(key)), nil
	}
	names := map[int16]string{batch.ControlAbort: "ABORT", batch.ControlCommit: "COMMIT", batch.ControlMirrorPIDReset: "MIRROR_PID_RESET"}
	typ := int16(binary.BigEndian.Uint16(key[2:]))
	name := names[typ]
	switch {
	case name == "":
		return fmt.Sprintf("UNKNOWN(%d)", typ), nil
	case typ != batch.ControlMirrorPIDReset && len(value) >= 6:
		e := int32(binary.BigEndian.Uint32(value[2:]))
		return name, &e
	}
	return name, nil
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
