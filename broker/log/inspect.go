package log

import (
	"slices"
	"strings"
)

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

// DecodeEpochs reads a leader-epoch-checkpoint file.
func DecodeEpochs(p []byte) ([]EpochEntry, error) { return decodeEpochs(p) }

// PartitionOffset is a line of a checkpoint of a log directory, for tools.
type PartitionOffset struct {
	Topic     string
	Partition int32
	Offset    int64
}

// DecodeCheckpoint reads a checkpoint file of a log directory: recovery points, log starts,
// high watermarks or the cleaner's offsets, by topic and partition.
func DecodeCheckpoint(p []byte) ([]PartitionOffset, error) {
	m, err := decodeOffsets(p)
	if err != nil {
		return nil, err
	}
	out := make([]PartitionOffset, 0, len(m))
	for tp, o := range m {
		out = append(out, PartitionOffset{tp.topic, tp.partition, o})
	}
	slices.SortFunc(out, func(a, b PartitionOffset) int {
		if c := strings.Compare(a.Topic, b.Topic); c != 0 {
			return c
		}
		return int(a.Partition - b.Partition)
	})
	return out, nil
}
