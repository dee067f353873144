package batch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// Layout of a record batch header, offsets in bytes.
const (
	// LogOverhead is the size of base offset and batch length, which precede what Length counts.
	LogOverhead = 12
	// HeaderSize is the size of a batch without records.
	HeaderSize = 61

	offBaseOffset      = 0
	offLength          = 8
	offLeaderEpoch     = 12
	offMagic           = 16
	offCRC             = 17
	offAttributes      = 21
	offLastOffsetDelta = 23
	offFirstTimestamp  = 27
	offMaxTimestamp    = 35
	offProducerID      = 43
	offProducerEpoch   = 51
	offBaseSequence    = 53
	offNumRecords      = 57
)

// Attribute bits.
const (
	attrCompression   = 0x07
	attrLogAppendTime = 0x08
	attrTransactional = 0x10
	attrControl       = 0x20
	attrDeleteHorizon = 0x40
)

// Compression codecs, as in the attributes.
const (
	None   = 0
	Gzip   = 1
	Snappy = 2
	LZ4    = 3
	Zstd   = 4
)

// Control record types: KIP-98, KIP-1279 (MIRROR_PID_RESET, SPEC section 9).
const (
	ControlAbort          = 0
	ControlCommit         = 1
	ControlMirrorPIDReset = 7
)

// Errors of Next and Check. They are wrapped with the offset and the numbers.
var (
	// ErrIncomplete says that the bytes end inside a batch.
	ErrIncomplete = errors.New("incomplete batch")
	// ErrMagic says that the batch is of an old message format (0 or 1) or an unknown one.
	ErrMagic = errors.New("unsupported message format")
	// ErrCorrupt says that lengths, counts or the CRC32C do not agree.
	ErrCorrupt = errors.New("corrupt batch")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Batch is the bytes of exactly one batch, header included.
type Batch []byte

// Next cuts the first batch off b. It checks the frame (lengths, magic), not the CRC.
// An error wraps ErrIncomplete when b ends before the batch does, ErrMagic or ErrCorrupt
// when it cannot be a batch.
func Next(b []byte) (first Batch, rest []byte, err error) {
	if len(b) < LogOverhead {
		return nil, b, ErrIncomplete
	}
	n := int32(binary.BigEndian.Uint32(b[offLength:]))
	if n < 0 {
		return nil, b, fmt.Errorf("%w: offset %d: length %d", ErrCorrupt, BaseOffsetOf(b), n)
	}
	if len(b) > offMagic && b[offMagic] != 2 {
		return nil, b, fmt.Errorf("%w: offset %d: magic %d", ErrMagic, BaseOffsetOf(b), int8(b[offMagic]))
	}
	if n < HeaderSize-LogOverhead {
		return nil, b, fmt.Errorf("%w: offset %d: length %d is below the header's %d", ErrCorrupt, BaseOffsetOf(b), n, HeaderSize-LogOverhead)
	}
	total := LogOverhead + int(n)
	if len(b) < total {
		return nil, b, ErrIncomplete
	}
	return Batch(b[:total:total]), b[total:], nil
}

// BaseOffsetOf reads the base offset from the first eight bytes of b.
func BaseOffsetOf(b []byte) int64 { return int64(binary.BigEndian.Uint64(b)) }

// SizeOf reads the whole size of the batch, LogOverhead included, from its first twelve bytes.
// The result is not checked and may be anything, also negative.
func SizeOf(b []byte) int64 {
	return LogOverhead + int64(int32(binary.BigEndian.Uint32(b[offLength:])))
}

// Check verifies what a header says about itself and the CRC32C.
func (b Batch) Check() error {
	if err := b.CheckHeader(); err != nil {
		return err
	}
	return b.CheckCRC()
}

// CheckHeader verifies magic, length, last offset delta and record count without reading the records.
// A batch that compaction emptied has count 0 and keeps its last offset delta.
func (b Batch) CheckHeader() error {
	if len(b) < HeaderSize || int64(len(b)) != SizeOf(b) {
		return fmt.Errorf("%w: size %d", ErrCorrupt, len(b))
	}
	if b.Magic() != 2 {
		return fmt.Errorf("%w: offset %d: magic %d", ErrMagic, b.BaseOffset(), b.Magic())
	}
	if b.BaseOffset() < 0 || b.LastOffsetDelta() < 0 || b.BaseOffset() > maxInt64-int64(b.LastOffsetDelta())-1 {
		return fmt.Errorf("%w: offset %d: last offset delta %d", ErrCorrupt, b.BaseOffset(), b.LastOffsetDelta())
	}
	if n := b.NumRecords(); n < 0 || int64(n) > int64(b.LastOffsetDelta())+1 {
		return fmt.Errorf("%w: offset %d: %d records with last offset delta %d", ErrCorrupt, b.BaseOffset(), n, b.LastOffsetDelta())
	}
	return nil
}

const maxInt64 = 1<<63 - 1

// CheckCRC verifies the CRC32C, which covers everything from the attributes on.
func (b Batch) CheckCRC() error {
	if got := crc32.Checksum(b[offAttributes:], castagnoli); got != b.CRC() {
		return fmt.Errorf("%w: offset %d: crc %08x, computed %08x", ErrCorrupt, b.BaseOffset(), b.CRC(), got)
	}
	return nil
}

// BaseOffset is the offset of the first record.
func (b Batch) BaseOffset() int64 { return int64(binary.BigEndian.Uint64(b[offBaseOffset:])) }

// LastOffset is the offset of the last record, also when compaction removed it.
func (b Batch) LastOffset() int64 { return b.BaseOffset() + int64(b.LastOffsetDelta()) }

// NextOffset is the offset that follows the batch.
func (b Batch) NextOffset() int64 { return b.LastOffset() + 1 }

// PartitionLeaderEpoch is the epoch of the leader that appended the batch; not covered by the CRC.
func (b Batch) PartitionLeaderEpoch() int32 {
	return int32(binary.BigEndian.Uint32(b[offLeaderEpoch:]))
}

// Magic is the message format, 2.
func (b Batch) Magic() int8 { return int8(b[offMagic]) }

// CRC is the stored CRC32C.
func (b Batch) CRC() uint32 { return binary.BigEndian.Uint32(b[offCRC:]) }

// Attributes are the raw attribute bits.
func (b Batch) Attributes() int16 { return int16(binary.BigEndian.Uint16(b[offAttributes:])) }

// Compression is the codec of the records.
func (b Batch) Compression() int { return int(b.Attributes() & attrCompression) }

// IsLogAppendTime says that the timestamps were set by the broker.
func (b Batch) IsLogAppendTime() bool { return b.Attributes()&attrLogAppendTime != 0 }

// IsTransactional says that the batch is part of a transaction.
func (b Batch) IsTransactional() bool { return b.Attributes()&attrTransactional != 0 }

// IsControl says that the batch holds a control record.
func (b Batch) IsControl() bool { return b.Attributes()&attrControl != 0 }

// HasDeleteHorizon says that the first timestamp is a delete horizon (compaction, KIP-534).
func (b Batch) HasDeleteHorizon() bool { return b.Attributes()&attrDeleteHorizon != 0 }

// LastOffsetDelta is the last offset minus the base offset.
func (b Batch) LastOffsetDelta() int32 { return int32(binary.BigEndian.Uint32(b[offLastOffsetDelta:])) }

// FirstTimestamp is the base timestamp in milliseconds.
func (b Batch) FirstTimestamp() int64 { return int64(binary.BigEndian.Uint64(b[offFirstTimestamp:])) }

// MaxTimestamp is the largest timestamp in milliseconds.
func (b Batch) MaxTimestamp() int64 { return int64(binary.BigEndian.Uint64(b[offMaxTimestamp:])) }

// ProducerID is -1 for a batch of a non-idempotent producer.
func (b Batch) ProducerID() int64 { return int64(binary.BigEndian.Uint64(b[offProducerID:])) }

// ProducerEpoch belongs to the producer id.
func (b Batch) ProducerEpoch() int16 { return int16(binary.BigEndian.Uint16(b[offProducerEpoch:])) }

// BaseSequence is the sequence number of the first record, -1 without a producer id.
func (b Batch) BaseSequence() int32 { return int32(binary.BigEndian.Uint32(b[offBaseSequence:])) }

// LastSequence is the sequence number of the last record; it wraps from the largest int32 to 0.
func (b Batch) LastSequence() int32 {
	if b.BaseSequence() < 0 {
		return b.BaseSequence()
	}
	return int32((int64(b.BaseSequence()) + int64(b.LastOffsetDelta())) & 0x7fffffff)
}

// NumRecords is the count of records that are left in the batch.
func (b Batch) NumRecords() int32 { return int32(binary.BigEndian.Uint32(b[offNumRecords:])) }

// Records are the bytes after the header, compressed if Compression says so.
func (b Batch) Records() []byte { return b[HeaderSize:] }

// SetBaseOffset patches the base offset, which the CRC does not cover.
func (b Batch) SetBaseOffset(o int64) { binary.BigEndian.PutUint64(b[offBaseOffset:], uint64(o)) }

// SetPartitionLeaderEpoch patches the leader epoch, which the CRC does not cover.
func (b Batch) SetPartitionLeaderEpoch(e int32) {
	binary.BigEndian.PutUint32(b[offLeaderEpoch:], uint32(e))
}

// ControlType is the type in the key of the first record of a control batch.
// Control batches are never compressed.
func (b Batch) ControlType() (int16, error) {
	key, _, err := b.FirstRecord()
	if err != nil {
		return 0, err
	}
	if len(key) < 4 {
		return 0, fmt.Errorf("%w: offset %d: control key of %d bytes", ErrCorrupt, b.BaseOffset(), len(key))
	}
	return int16(binary.BigEndian.Uint16(key[2:])), nil
}

// FirstRecord returns key and value of the first record of an uncompressed batch, nil for null.
func (b Batch) FirstRecord() (key, value []byte, err error) {
	bad := func(what string) ([]byte, []byte, error) {
		return nil, nil, fmt.Errorf("%w: offset %d: first record: %s", ErrCorrupt, b.BaseOffset(), what)
	}
	if b.Compression() != None {
		return bad("compressed")
	}
	r := b.Records()
	size, n := binary.Varint(r)
	if n <= 0 || size < 0 || size > int64(len(r)-n) {
		return bad("length")
	}
	r = r[n : n+int(size)]
	if len(r) < 1 {
		return bad("attributes")
	}
	r = r[1:]
	for range 2 { // timestamp delta, offset delta
		if _, n = binary.Varint(r); n <= 0 {
			return bad("deltas")
		}
		r = r[n:]
	}
	field := func() ([]byte, bool) {
		size, n := binary.Varint(r)
		if n <= 0 || size > int64(len(r)-n) {
			return nil, false
		}
		r = r[n:]
		if size < 0 {
			return nil, true
		}
		f := r[:size]
		r = r[size:]
		return f, true
	}
	var ok bool
	if key, ok = field(); !ok {
		return bad("key")
	}
	if value, ok = field(); !ok {
		return bad("value")
	}
	return key, value, nil
}
