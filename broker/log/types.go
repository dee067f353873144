package log

// Origin says who made the batches of a leader append.
type Origin int8

const (
	// OriginClient: exactly what Kafka's leader checks of a produce request.
	OriginClient Origin = iota
	// OriginCoordinator: records and transaction markers of our coordinators.
	OriginCoordinator
	// OriginInternal: control batches that the broker itself writes (stop barrier).
	OriginInternal
)

// AppendResult tells what an append did.
type AppendResult struct {
	FirstOffset    int64 // of the first batch appended; -1 if there was none
	LastOffset     int64 // of the last batch appended
	LogAppendTime  int64 // ms; -1 unless the topic has LogAppendTime
	LogStartOffset int64
	MaxTimestamp   int64 // ms, of the appended batches; -1 if there was none
	Duplicate      bool  // nothing was stored: the offsets are those of the first time
	Batches        int
}

// EpochEntry is one line of the leader-epoch cache: the epoch and its first offset.
type EpochEntry struct {
	Epoch int32
	Start int64
}

// AbortedTxn is one entry of a fetch response's list.
type AbortedTxn struct {
	ProducerID, FirstOffset int64
}

// OpenTxn is a transaction without a marker yet.
type OpenTxn struct {
	ProducerID       int64
	ProducerEpoch    int16
	CoordinatorEpoch int32 // -1: no marker of this producer id was ever seen
	FirstOffset      int64
}

// ProducerState is what DescribeProducers tells of one producer id.
type ProducerState struct {
	ProducerID            int64
	ProducerEpoch         int16
	LastSequence          int32
	LastOffset            int64
	LastTimestamp         int64
	CoordinatorEpoch      int32
	CurrentTxnFirstOffset int64 // -1: none
}
