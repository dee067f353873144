package log

// SnapshotEntry is one producer of a producer snapshot file, for tools.
type SnapshotEntry struct {
	ProducerID       int64
	ProducerEpoch    int16
	CoordinatorEpoch int32
	TxnFirstOffset   int64 // -1: none
	LastTimestamp    int64
	HasBatch         bool
	FirstSequence    int32
	LastSequence     int32
	LastOffset       int64
	OffsetDelta      int32
}

// DecodeSnapshot reads a .snapshot file, checking its version and CRC32C.
func DecodeSnapshot(p []byte) ([]SnapshotEntry, error) {
	entries, err := decodeSnapshot(p)
	if err != nil {
		return nil, err
	}
	out := make([]SnapshotEntry, 0, len(entries))
	for i := range entries {
		e := &entries[i]
		s := SnapshotEntry{ProducerID: e.id, ProducerEpoch: e.epoch, CoordinatorEpoch: e.coord, TxnFirstOffset: e.txnFirst, LastTimestamp: e.timestamp}
		if e.n > 0 {
			b := e.batches[0]
			s.HasBatch, s.FirstSequence, s.LastSequence, s.LastOffset, s.OffsetDelta = true, b.firstSeq(), b.lastSeq, b.lastOff, b.delta
		}
		out = append(out, s)
	}
	return out, nil
}

// TxnIndexEntry is one aborted transaction of a transaction index file, for tools.
type TxnIndexEntry struct {
	ProducerID, FirstOffset, LastOffset, LastStableOffset int64
}

// DecodeTxnIndex reads a .txnindex file.
func DecodeTxnIndex(p []byte) ([]TxnIndexEntry, error) {
	entries, err := decodeTxnIndex(p)
	if err != nil {
		return nil, err
	}
	out := make([]TxnIndexEntry, 0, len(entries))
	for _, e := range entries {
		out = append(out, TxnIndexEntry{e.producerID, e.firstOffset, e.lastOffset, e.lastStableOffset})
	}
	return out, nil
}
