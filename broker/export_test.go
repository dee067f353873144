package broker

import (
	"stet/broker/log"
	"stet/fetcher"
	"stet/internal/vfs"
)

// UseLogFS puts the logs on another file system.
func (c *Config) UseLogFS(fs vfs.FS) { c.logFS = fs }

// FetchCounters are what the mirror's fetchers have counted.
func (b *Broker) FetchCounters() *fetcher.Counters { return b.mirrors.counters }

// LeasedBytes is what the mirror's fetch memory holds now.
func (b *Broker) LeasedBytes() int64 { return b.mirrors.pool.Leased() }

// Cleaner is how the broker compacts now.
func (b *Broker) Cleaner() log.CleanerConfig { return b.logs.Cleaner() }

// CheckRate is how many bytes per second of a log directory are checked in the background.
func (b *Broker) CheckRate() int64 { return b.logs.CheckRate() }

// Compacted is the first offset of a partition that no compaction has looked at.
func (b *Broker) Compacted(topic string, partition int32) int64 {
	return b.logs.Get(topic, partition).CleanerCheckpoint()
}

// LogConfig is the configuration in force of a partition's log.
func (b *Broker) LogConfig(topic string, partition int32) log.Config {
	return b.logs.Get(topic, partition).Config()
}

// ApplyRetention runs a round of retention now.
func (b *Broker) ApplyRetention() { b.logs.ApplyRetention() }

// LogStart is the first offset of a partition.
func (b *Broker) LogStart(topic string, partition int32) int64 {
	return b.logs.Get(topic, partition).LogStartOffset()
}
