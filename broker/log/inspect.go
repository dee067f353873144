package log

import (
	"math"
	"slices"
	"strings"

	"stet/zerocopy/batch"
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
	return snapshotEntries(entries), nil
}

// SmallFiles are the files of a partition's directory that have neither offsets nor batches: who it belongs to, and where a
// cleaner came to.
var SmallFiles = []string{metadataFile, incarnationFile, compactedFile}

// CheckSmallFile says what is wrong with the content of one of SmallFiles.
func CheckSmallFile(name string, p []byte) (err error) {
	switch name {
	case metadataFile:
		_, err = decodeMetadata(p)
	case incarnationFile:
		_, _, err = decodeIncarnation(p)
	case compactedFile:
		_, err = decodeCompacted(p)
	}
	return err
}

// ParseSnapshot is DecodeSnapshot of a file whose CRC32C is known to be wrong, to find the
// entry that is.
func ParseSnapshot(p []byte) ([]SnapshotEntry, error) {
	entries, err := parseSnapshot(p)
	if err != nil {
		return nil, err
	}
	return snapshotEntries(entries), nil
}

func snapshotEntries(entries []producer) []SnapshotEntry {
	out := make([]SnapshotEntry, 0, len(entries))
	for i := range entries {
		e := &entries[i]
		s := SnapshotEntry{ProducerID: e.id, ProducerEpoch: e.epoch, CoordinatorEpoch: e.coord, TxnFirstOffset: e.txnFirst, LastTimestamp: e.timestamp}
		if e.n > 0 {
			b := e.batches[e.n-1]
			s.HasBatch, s.FirstSequence, s.LastSequence, s.LastOffset, s.OffsetDelta = true, b.firstSeq(), b.lastSeq, b.lastOff, b.delta
		}
		out = append(out, s)
	}
	return out
}

// Replay follows the batches of a partition as the log does when it recovers, for tools that
// compare snapshots and transaction indexes with the log. It keeps at most five batches per producer id.
type Replay struct{ s *producers }

// NewReplay begins with the producers of a snapshot, taken at offset end; none is the state of an empty log.
func NewReplay(snapshot []byte, end int64) (*Replay, error) {
	r := &Replay{newProducers()}
	if snapshot == nil {
		return r, nil
	}
	entries, err := decodeSnapshot(snapshot)
	if err != nil {
		return nil, err
	}
	r.s.load(entries, end, 0, math.MaxInt64)
	return r, nil
}

// Apply follows one whole batch. It returns the entry of the transaction index if the batch
// aborted a transaction.
func (r *Replay) Apply(b batch.Batch) (TxnIndexEntry, bool) {
	e, ok := r.s.apply(b)
	r.s.finished = r.s.finished[:0] // which need a high watermark
	return TxnIndexEntry{e.producerID, e.firstOffset, e.lastOffset, e.lastStableOffset}, ok
}

// Producer is the state of a producer id as a snapshot would have it.
func (r *Replay) Producer(id int64) (SnapshotEntry, bool) {
	p := r.s.m[id]
	if p == nil {
		return SnapshotEntry{}, false
	}
	return snapshotEntries([]producer{*p})[0], true
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
