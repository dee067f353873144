package broker

import (
	"math"
	"strconv"
	"strings"

	"stet/broker/log"
	"stet/broker/meta"
	"stet/broker/meta/configs"
)

// levels are the three levels of this broker's configuration in an image.
func (b *Broker) levels(img *meta.Image) configs.BrokerConfigs {
	return configs.BrokerConfigs{
		Dynamic:        img.Config(meta.ResourceBroker, strconv.Itoa(int(b.node))),
		DynamicDefault: img.Config(meta.ResourceBroker, ""),
		Static:         b.cfg.Static,
	}
}

// logConfig is what a topic's effective configuration means to its logs.
func (b *Broker) logConfig(img *meta.Image, topic string) log.Config {
	v := configs.TopicValues(img.Config(meta.ResourceTopic, topic), b.levels(img))
	i64 := func(key string) int64 { return configs.Int64(v, key) }
	c := log.DefaultConfig()
	c.SegmentBytes = int32(i64("segment.bytes"))
	c.SegmentMs = i64("segment.ms")
	c.SegmentIndexBytes = int32(i64("segment.index.bytes"))
	c.IndexIntervalBytes = int32(i64("index.interval.bytes"))
	c.MaxMessageBytes = int32(i64("max.message.bytes"))
	c.RetentionMs = i64("retention.ms")
	c.RetentionBytes = i64("retention.bytes")
	c.CleanupPolicy = v["cleanup.policy"]
	c.FlushMessages = i64("flush.messages")
	c.FlushMs = i64("flush.ms")
	c.FileDeleteDelayMs = i64("file.delete.delay.ms")
	c.TimestampTypeLogAppend = v["message.timestamp.type"] == "LogAppendTime"
	c.TimestampBeforeMaxMs = i64("message.timestamp.before.max.ms")
	c.TimestampAfterMaxMs = i64("message.timestamp.after.max.ms")
	c.CompressionType = v["compression.type"]
	c.SegmentJitterMs = i64("segment.jitter.ms")
	c.Preallocate = configs.Bool(v, "preallocate")
	c.MinCleanableRatio = configs.Float64(v, "min.cleanable.dirty.ratio")
	c.MinCompactionLagMs = i64("min.compaction.lag.ms")
	c.MaxCompactionLagMs = i64("max.compaction.lag.ms")
	c.DeleteRetentionMs = i64("delete.retention.ms")
	return c
}

// checkRateKey is the rate at which log directories are checked for corrupt batches.
const checkRateKey = "log.check.io.max.bytes.per.second"

// cleanerConfig is how this broker compacts, as its settings say now.
func (b *Broker) cleanerConfig() log.CleanerConfig {
	levels := b.levels(b.quorum.Image())
	value := func(key string) string {
		v, _ := configs.BrokerValue(levels, key)
		return v
	}
	c := log.CleanerConfig{
		Threads: int(number(value, "log.cleaner.threads")), DedupeBytes: int64(number(value, "log.cleaner.dedupe.buffer.size")),
		LoadFactor: number(value, "log.cleaner.io.buffer.load.factor"), IOBufferBytes: max(int64(number(value, "log.cleaner.io.buffer.size")), 1),
		IOBytesPerSec: number(value, "log.cleaner.io.max.bytes.per.second"), BackoffMs: max(int64(number(value, "log.cleaner.backoff.ms")), 1),
	}
	if !(c.IOBytesPerSec > 0) { // kept by an earlier version, which took any number
		c.IOBytesPerSec = math.MaxFloat64
	}
	if c.Threads == 0 || value("log.cleaner.enable") != "true" {
		c.Threads = -1
	}
	return c
}

// number reads a value that was checked when it was set.
func number(value func(key string) string, key string) float64 {
	n, err := strconv.ParseFloat(strings.TrimSpace(value(key)), 64)
	if err != nil {
		panic("BUG: " + key + " was checked and is not a number: " + value(key))
	}
	return n
}

// minISR is min.insync.replicas of a topic.
func (b *Broker) minISR(img *meta.Image, topic string) int {
	own := img.Config(meta.ResourceTopic, topic)
	if s, ok := own["min.insync.replicas"]; ok {
		if n, err := strconv.Atoi(s); err == nil {
			return n
		}
	}
	s, _ := configs.BrokerValue(b.levels(img), "min.insync.replicas")
	n, err := strconv.Atoi(s)
	if err != nil {
		return 1
	}
	return n
}
