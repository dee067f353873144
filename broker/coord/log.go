package coord

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/zerocopy/batch"
)

// Log is the partition of a shard, led here. Errors that wrap a *kerr.Error are
// passed on as that code.
type Log interface {
	LogStartOffset() int64
	LogEndOffset() int64
	// Read returns whole batches beginning with the one that holds offset: at least
	// one if offset is below the log end, none at the log end. maxBytes is a wish.
	Read(offset int64, maxBytes int) ([]byte, error)
	// AppendBatch appends one uncompressed batch as the leader, which assigns its
	// offsets, and returns the offset after it.
	AppendBatch(b []byte) (end int64, err error)
	// WaitCommitted returns nil when the high watermark is at or above end.
	WaitCommitted(ctx context.Context, end int64) error
	// Sync makes what was appended durable.
	Sync() error
}

// Record is a record of the partition. Key and Value must not be kept.
type Record struct {
	Offset    int64
	Timestamp int64 // ms
	Key       []byte
	Value     []byte // nil: tombstone
}

const readBytes = 1 << 20

// readAll calls f for every record from the log start to the log end, in order.
// Control batches and batches of transactions are passed over.
func readAll(log Log, f func(Record) error) error {
	offset := log.LogStartOffset()
	for offset < log.LogEndOffset() {
		data, err := log.Read(offset, readBytes)
		if err != nil {
			return err
		}
		before := offset
		for len(data) > 0 {
			b, rest, err := batch.Next(data)
			if err != nil {
				return fmt.Errorf("at offset %d: %w", offset, err)
			}
			data = rest
			if b.LastOffset() < offset {
				continue
			}
			if err := eachRecord(b, offset, f); err != nil {
				return err
			}
			offset = b.NextOffset()
		}
		if offset == before {
			return fmt.Errorf("nothing is readable at offset %d, below the log end %d", offset, log.LogEndOffset())
		}
	}
	return nil
}

func eachRecord(b batch.Batch, from int64, f func(Record) error) error {
	if b.IsControl() || b.IsTransactional() || b.NumRecords() == 0 {
		return nil
	}
	data := b.Records()
	if codec := b.Compression(); codec != batch.None {
		var err error
		if data, err = kgo.DefaultDecompressor().Decompress(data, kgo.CompressionCodecType(codec)); err != nil {
			return fmt.Errorf("batch at offset %d: %w", b.BaseOffset(), err)
		}
	}
	for range b.NumRecords() {
		size, n := binary.Varint(data)
		if n <= 0 || size < 0 || size > int64(len(data)-n) {
			return fmt.Errorf("batch at offset %d: %w", b.BaseOffset(), batch.ErrCorrupt)
		}
		var r kmsg.Record
		if err := r.ReadFrom(data[:n+int(size)]); err != nil {
			return fmt.Errorf("batch at offset %d: %w", b.BaseOffset(), err)
		}
		data = data[n+int(size):]
		offset := b.BaseOffset() + int64(r.OffsetDelta)
		if offset < from {
			continue
		}
		rec := Record{Offset: offset, Timestamp: b.FirstTimestamp() + r.TimestampDelta64, Key: r.Key, Value: r.Value}
		if err := f(rec); err != nil {
			return fmt.Errorf("record at offset %d: %w", offset, err)
		}
	}
	return nil
}
