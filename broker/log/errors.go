package log

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
)

// wireError is a sentinel that carries the protocol's error code: errors.As with a
// **kerr.Error finds it.
type wireError struct {
	text string
	code *kerr.Error
}

func (e *wireError) Error() string { return e.text }
func (e *wireError) Unwrap() error { return e.code }

// Errors of a log. All are wrapped with details; test with errors.Is. Each unwraps to
// the *kerr.Error that goes on the wire.
var (
	// ErrCorruptMessage: frame, lengths or CRC32C of a batch do not agree.
	ErrCorruptMessage error = &wireError{"corrupt record batch", kerr.CorruptMessage}
	// ErrUnsupportedFormat: magic 0 or 1.
	ErrUnsupportedFormat error = &wireError{"unsupported message format", kerr.UnsupportedForMessageFormat}
	// ErrUnsupportedCompression: a codec that does not exist.
	ErrUnsupportedCompression error = &wireError{"unsupported compression type", kerr.UnsupportedCompressionType}
	// ErrInvalidRecord: counts, deltas, keys or a control record that a client may not write.
	ErrInvalidRecord error = &wireError{"invalid record", kerr.InvalidRecord}
	// ErrInvalidTimestamp: outside message.timestamp.before/after.max.ms.
	ErrInvalidTimestamp error = &wireError{"timestamp out of bounds", kerr.InvalidTimestamp}
	// ErrMessageTooLarge: above max.message.bytes.
	ErrMessageTooLarge error = &wireError{"record batch too large", kerr.MessageTooLarge}
	// ErrOutOfOrderSequence: a sequence number that does not follow.
	ErrOutOfOrderSequence error = &wireError{"out of order sequence number", kerr.OutOfOrderSequenceNumber}
	// ErrInvalidProducerEpoch: an older epoch than the producer id has.
	ErrInvalidProducerEpoch error = &wireError{"stale producer epoch", kerr.InvalidProducerEpoch}
	// ErrUnknownProducerID: kept for callers that must tell it; Kafka since 2.4 accepts any
	// sequence of an unknown producer, and so does AppendAsLeader.
	ErrUnknownProducerID error = &wireError{"unknown producer id", kerr.UnknownProducerID}
	// ErrInvalidTxnState: a non-transactional write inside a transaction.
	ErrInvalidTxnState error = &wireError{"invalid transaction state", kerr.InvalidTxnState}
	// ErrCoordinatorFenced: a transaction marker of an older coordinator.
	ErrCoordinatorFenced error = &wireError{"transaction coordinator fenced", kerr.TransactionCoordinatorFenced}
	// ErrOffsetOrder: a follower append whose base offset is below the log end.
	ErrOffsetOrder error = &wireError{"offset below the log end", kerr.InvalidRequest}
	// ErrStorage: the disk failed; the partition is offline until the broker restarts.
	ErrStorage error = &wireError{"storage error", kerr.KafkaStorageError}
	// ErrClosed: the log was deleted or the manager closed.
	ErrClosed error = &wireError{"log closed", kerr.NotLeaderForPartition}
)

// OffsetOutOfRangeError says that Offset lies outside [Start, End].
type OffsetOutOfRangeError struct {
	Offset, Start, End int64
}

func (e *OffsetOutOfRangeError) Error() string {
	return fmt.Sprintf("offset %d is outside [%d, %d]", e.Offset, e.Start, e.End)
}

// Unwrap returns the wire code OFFSET_OUT_OF_RANGE.
func (e *OffsetOutOfRangeError) Unwrap() error { return kerr.OffsetOutOfRange }

// InvalidRecordError names the record of a refused client batch (KIP-467). It unwraps to
// ErrInvalidRecord or ErrInvalidTimestamp.
type InvalidRecordError struct {
	Index int32  // of the record within the batch
	Text  string // why
	cause error
}

func (e *InvalidRecordError) Error() string {
	return fmt.Sprintf("%v: record %d: %s", e.cause, e.Index, e.Text)
}

func (e *InvalidRecordError) Unwrap() error { return e.cause }
