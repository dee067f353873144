package batch

import (
	"encoding/binary"
	"hash/crc32"
)

// Header is what a new batch is built from. Stet builds only control batches and
// records of its internal topics; client and mirror data is never rebuilt.
type Header struct {
	BaseOffset           int64
	PartitionLeaderEpoch int32
	Attributes           int16
	Timestamp            int64 // ms, of all records
	ProducerID           int64 // -1: none
	ProducerEpoch        int16 // -1: none
	BaseSequence         int32 // -1: none
}

// KV is a record to build. A nil slice is written as null.
type KV struct{ Key, Value []byte }

// Build appends an uncompressed batch to dst.
func Build(dst []byte, h Header, records ...KV) []byte {
	start := len(dst)
	dst = append(dst, make([]byte, HeaderSize)...)
	for i, kv := range records {
		dst = appendRecord(dst, i, kv)
	}
	b := Batch(dst[start:])
	be := binary.BigEndian
	be.PutUint64(b[offBaseOffset:], uint64(h.BaseOffset))
	be.PutUint32(b[offLength:], uint32(len(b)-LogOverhead))
	be.PutUint32(b[offLeaderEpoch:], uint32(h.PartitionLeaderEpoch))
	b[offMagic] = 2
	be.PutUint16(b[offAttributes:], uint16(h.Attributes))
	be.PutUint32(b[offLastOffsetDelta:], uint32(max(len(records), 1)-1))
	be.PutUint64(b[offFirstTimestamp:], uint64(h.Timestamp))
	be.PutUint64(b[offMaxTimestamp:], uint64(h.Timestamp))
	be.PutUint64(b[offProducerID:], uint64(h.ProducerID))
	be.PutUint16(b[offProducerEpoch:], uint16(h.ProducerEpoch))
	be.PutUint32(b[offBaseSequence:], uint32(h.BaseSequence))
	be.PutUint32(b[offNumRecords:], uint32(len(records)))
	be.PutUint32(b[offCRC:], crc32.Checksum(b[offAttributes:], castagnoli))
	return dst
}

// Control attribute sets for Build.
const (
	AttrControl       = attrControl
	AttrTransactional = attrTransactional
)

// BuildEndTxn appends an ABORT or COMMIT marker (KIP-98: control key version 0, value version 0 and coordinator epoch).
func BuildEndTxn(dst []byte, h Header, commit bool, coordinatorEpoch int32) []byte {
	typ := uint16(ControlAbort)
	if commit {
		typ = ControlCommit
	}
	h.Attributes = attrControl | attrTransactional
	h.BaseSequence = -1
	key := binary.BigEndian.AppendUint16([]byte{0, 0}, typ)
	value := binary.BigEndian.AppendUint32([]byte{0, 0}, uint32(coordinatorEpoch))
	return Build(dst, h, KV{key, value})
}

func appendRecord(dst []byte, index int, kv KV) []byte {
	body := make([]byte, 0, 16+len(kv.Key)+len(kv.Value))
	body = append(body, 0) // attributes
	body = binary.AppendVarint(body, 0)
	body = binary.AppendVarint(body, int64(index))
	for _, f := range [][]byte{kv.Key, kv.Value} {
		if f == nil {
			body = binary.AppendVarint(body, -1)
			continue
		}
		body = binary.AppendVarint(body, int64(len(f)))
		body = append(body, f...)
	}
	body = binary.AppendVarint(body, 0) // headers
	dst = binary.AppendVarint(dst, int64(len(body)))
	return append(dst, body...)
}
