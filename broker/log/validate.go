package log

import (
	"errors"
	"fmt"
	"hash/crc32"

	"stet/broker/log/records"
	"stet/zerocopy/batch"
)

// Offsets of the fields after the CRC that a leader may have to rewrite.
const (
	crcOffset          = 17
	attributesOffset   = 21
	maxTimestampOffset = 35
	attrLogAppendTime  = 0x08
)

// checkBatches is what a leader checks of the bytes alone (Kafka's LogValidator).
func checkBatches(p []byte, cfg *Config, origin Origin, nowMs int64) error {
	for n := 0; len(p) > 0; n++ {
		b, rest, err := batch.Next(p)
		switch {
		case errors.Is(err, batch.ErrMagic):
			return fmt.Errorf("%w: %w", ErrUnsupportedFormat, err)
		case err != nil:
			return fmt.Errorf("%w: %w", ErrCorruptMessage, err)
		case origin == OriginClient && n > 0:
			return fmt.Errorf("%w: more than one batch", ErrInvalidRecord)
		}
		if len(b) > int(cfg.MaxMessageBytes) && origin == OriginClient {
			return fmt.Errorf("%w: %d bytes, max.message.bytes is %d", ErrMessageTooLarge, len(b), cfg.MaxMessageBytes)
		}
		if err := b.CheckCRC(); err != nil {
			return fmt.Errorf("%w: %w", ErrCorruptMessage, err)
		}
		if b.LastOffsetDelta() < 0 {
			return fmt.Errorf("%w: last offset delta %d", ErrInvalidRecord, b.LastOffsetDelta())
		}
		if origin == OriginClient {
			if err := checkClientBatch(b, cfg, nowMs); err != nil {
				return err
			}
		}
		p = rest
	}
	return nil
}

func checkClientBatch(b batch.Batch, cfg *Config, nowMs int64) error {
	switch n := int64(b.NumRecords()); {
	case b.BaseOffset() != 0:
		return fmt.Errorf("%w: base offset %d, must be 0", ErrInvalidRecord, b.BaseOffset())
	case n <= 0 || n != int64(b.LastOffsetDelta())+1:
		return fmt.Errorf("%w: %d records with last offset delta %d", ErrInvalidRecord, n, b.LastOffsetDelta())
	case b.IsControl():
		return fmt.Errorf("%w: clients may not write control records", ErrInvalidRecord)
	case b.ProducerID() >= 0 && b.BaseSequence() < 0:
		return fmt.Errorf("%w: producer %d with sequence %d", ErrInvalidRecord, b.ProducerID(), b.BaseSequence())
	case b.ProducerID() >= 0 && b.ProducerEpoch() < 0:
		return fmt.Errorf("%w: producer %d with epoch %d", ErrInvalidRecord, b.ProducerID(), b.ProducerEpoch())
	case b.IsTransactional() && b.ProducerID() < 0:
		return fmt.Errorf("%w: transactional batch without a producer id", ErrInvalidRecord)
	case b.Compression() > batch.Zstd:
		return fmt.Errorf("%w: %d", ErrUnsupportedCompression, b.Compression())
	}
	it := records.New(b, false)
	defer it.Close()
	maxTs := int64(-1)
	for i := int32(0); it.Next(); i++ {
		r := it.Record()
		if r.OffsetDelta != i {
			return &InvalidRecordError{i, fmt.Sprintf("offset delta %d", r.OffsetDelta), ErrInvalidRecord}
		}
		if r.KeySize < 0 && cfg.compacted() {
			return &InvalidRecordError{i, "no key, and the topic is compacted", ErrInvalidRecord}
		}
		ts := r.Timestamp
		if b.IsLogAppendTime() {
			// Only a broker sets it; Kafka refuses it of a producer.
			return &InvalidRecordError{i, "timestamp type LogAppendTime is set by brokers only", ErrInvalidTimestamp}
		}
		if !cfg.TimestampTypeLogAppend && ts >= 0 {
			if nowMs-ts > cfg.TimestampBeforeMaxMs || ts-nowMs > cfg.TimestampAfterMaxMs {
				return &InvalidRecordError{i, fmt.Sprintf("timestamp %d, now %d", ts, nowMs), ErrInvalidTimestamp}
			}
		}
		maxTs = max(maxTs, ts)
	}
	if err := it.Err(); err != nil {
		if errors.Is(err, records.ErrCodec) {
			return fmt.Errorf("%w: %w", ErrUnsupportedCompression, err)
		}
		return &InvalidRecordError{it.Index(), err.Error(), ErrInvalidRecord}
	}
	if !cfg.TimestampTypeLogAppend && maxTs != b.MaxTimestamp() {
		be.PutUint64(b[maxTimestampOffset:], uint64(maxTs))
		sign(b)
	}
	return nil
}

// stampLogAppendTime sets the broker's time as the batch's only timestamp.
func stampLogAppendTime(b batch.Batch, nowMs int64) {
	be.PutUint16(b[attributesOffset:], uint16(b.Attributes())|attrLogAppendTime)
	be.PutUint64(b[maxTimestampOffset:], uint64(nowMs))
	sign(b)
}

func sign(b batch.Batch) {
	be.PutUint32(b[crcOffset:], crc32.Checksum(b[attributesOffset:], castagnoli))
}
