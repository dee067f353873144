package configs

import (
	"strconv"
	"strings"
)

const maxLong = "9223372036854775807"

// Topic are the topic keys.
var Topic = newTable("topic", []Def{
	{
		Name: "cleanup.policy", Type: List, Default: "delete", Synonyms: same("log.cleanup.policy"), check: listOf("delete", "compact"),
		Doc: "What is done with old segments: delete them by time and size, or keep the last value of each key; empty: neither.",
	},
	{Name: "compression.gzip.level", Type: Int, Default: "-1", Synonyms: same("compression.gzip.level"), check: or("-1", between(Int, 1, 9)), Doc: "The gzip level when the topic is compressed by the broker."},
	{Name: "compression.lz4.level", Type: Int, Default: "9", Synonyms: same("compression.lz4.level"), check: between(Int, 1, 17), Doc: "The lz4 level when the topic is compressed by the broker."},
	{
		Name: "compression.type", Type: String, Default: "producer", Synonyms: same("compression.type"), check: oneOf("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
		Doc: "The codec of the stored batches; producer keeps the producer's.",
	},
	{Name: "compression.zstd.level", Type: Int, Default: "3", Synonyms: same("compression.zstd.level"), check: between(Int, -131072, 22), Doc: "The zstd level when the topic is compressed by the broker."},
	{Name: "delete.retention.ms", Type: Long, Default: "86400000", Synonyms: same("log.cleaner.delete.retention.ms"), check: atLeast(Long, 0), Doc: "How long tombstones of a compacted topic are kept."},
	{Name: "file.delete.delay.ms", Type: Long, Default: "60000", Synonyms: same("log.segment.delete.delay.ms"), check: atLeast(Long, 0), Doc: "How long a deleted segment's file is kept."},
	{Name: "flush.messages", Type: Long, Default: maxLong, Synonyms: same("log.flush.interval.messages"), check: atLeast(Long, 1), Doc: "After how many records the log is synced to disk."},
	{Name: "flush.ms", Type: Long, Default: maxLong, Synonyms: same("log.flush.interval.ms", "log.flush.scheduler.interval.ms"), check: atLeast(Long, 0), Doc: "After how many milliseconds the log is synced to disk."},
	{Name: "follower.replication.throttled.replicas", Type: List, Unused: true, check: throttledReplicas(), Doc: "Replicas whose replication is throttled on the follower's side (PARTITION:BROKER,... or *); without a meaning while there is one broker."},
	{Name: "index.interval.bytes", Type: Int, Default: "4096", Synonyms: same("log.index.interval.bytes"), check: atLeast(Int, 0), Doc: "About how many bytes lie between two entries of the offset index."},
	{Name: "leader.replication.throttled.replicas", Type: List, Unused: true, check: throttledReplicas(), Doc: "Replicas whose replication is throttled on the leader's side (PARTITION:BROKER,... or *); without a meaning while there is one broker."},
	{Name: "local.retention.bytes", Type: Long, Default: "-2", Unused: true, check: atLeast(Long, -2), Synonyms: same("log.local.retention.bytes"), Doc: "Tiered storage; without a meaning here."},
	{Name: "local.retention.ms", Type: Long, Default: "-2", Unused: true, check: atLeast(Long, -2), Synonyms: same("log.local.retention.ms"), Doc: "Tiered storage; without a meaning here."},
	{Name: "max.compaction.lag.ms", Type: Long, Default: maxLong, Synonyms: same("log.cleaner.max.compaction.lag.ms"), check: atLeast(Long, 1), Doc: "The longest time that a record stays out of compaction."},
	{Name: "max.message.bytes", Type: Int, Default: "1048588", Synonyms: same("message.max.bytes"), check: atLeast(Int, 0), Doc: "The largest record batch that is accepted, after compression."},
	{Name: "message.timestamp.after.max.ms", Type: Long, Default: "3600000", Synonyms: same("log.message.timestamp.after.max.ms"), check: atLeast(Long, 0), Doc: "How far a record's timestamp may lie ahead of the broker's."},
	{Name: "message.timestamp.before.max.ms", Type: Long, Default: maxLong, Synonyms: same("log.message.timestamp.before.max.ms"), check: atLeast(Long, 0), Doc: "How far a record's timestamp may lie behind the broker's."},
	{Name: "message.timestamp.type", Type: String, Default: "CreateTime", Synonyms: same("log.message.timestamp.type"), check: oneOf("CreateTime", "LogAppendTime"), Doc: "Whose timestamp a record has, the producer's or the broker's."},
	{Name: "min.cleanable.dirty.ratio", Type: Double, Default: "0.5", Synonyms: same("log.cleaner.min.cleanable.ratio"), check: ratio(), Doc: "How much of a log must be uncompacted before it is compacted."},
	{Name: "min.compaction.lag.ms", Type: Long, Default: "0", Synonyms: same("log.cleaner.min.compaction.lag.ms"), check: atLeast(Long, 0), Doc: "The shortest time that a record stays out of compaction."},
	{Name: "min.insync.replicas", Type: Int, Default: "1", Synonyms: same("min.insync.replicas"), check: atLeast(Int, 1), Doc: "How many replicas must have a record before it is acknowledged with acks=all."},
	{Name: "mirror.replication.throttled.replicas", Type: List, Synonyms: same("mirror.replication.throttled.replicas"), check: throttledReplicas(), Doc: "Replicas whose mirroring is throttled (PARTITION:BROKER,... or *)."},
	{Name: "mirror.support.unclean.leader.election", Type: Boolean, Default: "false", Synonyms: same("mirror.support.unclean.leader.election"), Doc: "Whether a mirror topic follows an unclean leader election at the source by cutting its log."},
	{Name: "preallocate", Type: Boolean, Default: "false", Synonyms: same("log.preallocate"), Doc: "Whether a new segment's file is allocated in advance."},
	{Name: "remote.log.copy.disable", Type: Boolean, Default: "false", Unused: true, Doc: "Tiered storage; without a meaning here."},
	{Name: "remote.log.delete.on.disable", Type: Boolean, Default: "false", Unused: true, Doc: "Tiered storage; without a meaning here."},
	{Name: "remote.storage.enable", Type: Boolean, Default: "false", Unused: true, Doc: "Tiered storage; without a meaning here."},
	{Name: "retention.bytes", Type: Long, Default: "-1", Synonyms: same("log.retention.bytes"), Doc: "The size beyond which old segments of a partition are deleted; negative: no limit."},
	{
		Name: "retention.ms", Type: Long, Default: "604800000", check: atLeast(Long, -1), Doc: "The age beyond which segments are deleted; -1: no limit.",
		Synonyms: []Synonym{{"log.retention.ms", 1}, {"log.retention.minutes", 60_000}, {"log.retention.hours", 3_600_000}},
	},
	// Kafka before 4.0 allows 14; a mirror takes over what its source has.
	{Name: "segment.bytes", Type: Int, Default: "1073741824", Synonyms: same("log.segment.bytes"), check: atLeast(Int, 14), Doc: "The size at which a new segment is begun."},
	{Name: "segment.index.bytes", Type: Int, Default: "10485760", Synonyms: same("log.index.size.max.bytes"), check: atLeast(Int, 4), Doc: "The largest size of a segment's index."},
	{
		Name: "segment.jitter.ms", Type: Long, Default: "0", check: atLeast(Long, 0), Doc: "How much earlier than segment.ms a segment may be rolled.",
		Synonyms: []Synonym{{"log.roll.jitter.ms", 1}, {"log.roll.jitter.hours", 3_600_000}},
	},
	{
		Name: "segment.ms", Type: Long, Default: "604800000", check: atLeast(Long, 1), Doc: "The age at which a new segment is begun.",
		Synonyms: []Synonym{{"log.roll.ms", 1}, {"log.roll.hours", 3_600_000}},
	},
	{Name: "unclean.leader.election.enable", Type: Boolean, Default: "false", Synonyms: same("unclean.leader.election.enable"), Doc: "Whether a replica that is not in sync may become the leader."},
	{Name: "mirror.name", Type: String, NoDefault: true, Hidden: true, Doc: "The mirror the topic belongs to and its state there."},
	{Name: "mirror.start", Type: String, NoDefault: true, Hidden: true, Doc: "The metadata offset of the topic's last start."},
})

func same(names ...string) []Synonym {
	var s []Synonym
	for _, n := range names {
		s = append(s, Synonym{n, 1})
	}
	return s
}

// checkTopic checks what must hold between the keys that are set.
func checkTopic(set map[string]string) error {
	num := func(key string) int64 {
		v, ok := set[key]
		if !ok {
			v = Topic.defs[key].Default
		}
		n, _ := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
		return n
	}
	if lo, hi := num("min.compaction.lag.ms"), num("max.compaction.lag.ms"); lo > hi {
		return &ValueError{"min.compaction.lag.ms", strconv.FormatInt(lo, 10), "at most max.compaction.lag.ms, which is " + strconv.FormatInt(hi, 10)}
	}
	return nil
}
