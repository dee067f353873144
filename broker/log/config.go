package log

import (
	"math"
	"math/rand/v2"
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

	SegmentJitterMs    int64   // segment.jitter.ms: a segment is rolled up to so much earlier
	Preallocate        bool    // preallocate
	MinCleanableRatio  float64 // min.cleanable.dirty.ratio
	MinCompactionLagMs int64   // min.compaction.lag.ms
	MaxCompactionLagMs int64   // max.compaction.lag.ms
	DeleteRetentionMs  int64   // delete.retention.ms: how long tombstones and markers stay
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
		MinCleanableRatio:    0.5,
		MaxCompactionLagMs:   math.MaxInt64,
		DeleteRetentionMs:    24 * 3600 * 1000,
	}
}

func (c *Config) compacted() bool { return strings.Contains(c.CleanupPolicy, "compact") }
func (c *Config) deletes() bool   { return strings.Contains(c.CleanupPolicy, "delete") }

// rollMs is segment.ms, or less where records must not stay out of compaction for so long.
func (c *Config) rollMs() int64 {
	if c.compacted() && c.MaxCompactionLagMs > 0 {
		return min(c.SegmentMs, c.MaxCompactionLagMs)
	}
	return c.SegmentMs
}

// jitter draws how much earlier than segment.ms a segment is rolled, so that segments that
// were begun together do not all end together.
func (c *Config) jitter() int64 {
	if n := min(c.SegmentJitterMs, c.SegmentMs); n > 0 {
		return rand.Int64N(n)
	}
	return 0
}
