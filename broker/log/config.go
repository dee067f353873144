package log

import (
	"math"
	"strings"
)

// Config is what a topic's configuration means to its log. It is a value: it is
// replaced whole, never changed in place. Names and defaults are Kafka's.
type Config struct {
	SegmentBytes           int32 // segment.bytes
	SegmentMs              int64 // segment.ms
	SegmentIndexBytes      int32 // segment.index.bytes
	IndexIntervalBytes     int32 // index.interval.bytes
	MaxMessageBytes        int32 // max.message.bytes, of a batch with its header
	RetentionMs            int64 // retention.ms, -1: no limit
	RetentionBytes         int64 // retention.bytes, -1: no limit
	CleanupPolicy          string
	FlushMessages          int64  // flush.messages
	FlushMs                int64  // flush.ms
	FileDeleteDelayMs      int64  // file.delete.delay.ms
	TimestampTypeLogAppend bool   // message.timestamp.type=LogAppendTime
	TimestampBeforeMaxMs   int64  // message.timestamp.before.max.ms
	TimestampAfterMaxMs    int64  // message.timestamp.after.max.ms
	CompressionType        string // batches stay as the producer sent them, whatever this says
}

// DefaultConfig returns Kafka's defaults.
func DefaultConfig() Config {
	return Config{
		SegmentBytes:         1 << 30,
		SegmentMs:            7 * 24 * 3600 * 1000,
		SegmentIndexBytes:    10 << 20,
		IndexIntervalBytes:   4096,
		MaxMessageBytes:      1048588,
		RetentionMs:          7 * 24 * 3600 * 1000,
		RetentionBytes:       -1,
		CleanupPolicy:        "delete",
		FlushMessages:        math.MaxInt64,
		FlushMs:              math.MaxInt64,
		FileDeleteDelayMs:    60000,
		TimestampBeforeMaxMs: math.MaxInt64,
		TimestampAfterMaxMs:  3600000,
		CompressionType:      "producer",
	}
}

func (c *Config) compacted() bool { return strings.Contains(c.CleanupPolicy, "compact") }
func (c *Config) deletes() bool   { return strings.Contains(c.CleanupPolicy, "delete") }
