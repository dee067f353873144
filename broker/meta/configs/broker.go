package configs

import (
	_ "embed"
	"slices"
	"strings"
)

// Broker are the broker keys that have a meaning here, followed by Kafka's other
// broker keys, which are accepted without one (Def.Unused).
var Broker = withRefusal(newTable("broker", append(brokerDefs, unusedBrokerDefs()...)), refuseNotBuilt)

// DefaultListener is where a broker without a configuration listens.
const DefaultListener = "PLAINTEXT://127.0.0.1:9092"

var brokerDefs = []Def{
	// identity, places
	{Name: "node.id", Type: Int, Default: "1", check: atLeast(Int, 0), Doc: "The node's id."},
	{Name: "broker.id", Type: Int, NoDefault: true, check: atLeast(Int, 0), Doc: "The older name of node.id."},
	{Name: "broker.rack", Type: String, NoDefault: true, Doc: "The rack of the broker."},
	{Name: "process.roles", Type: List, Default: "broker,controller", check: listOf("broker", "controller"), Doc: "What the node does; every node is both today."},
	{Name: "listeners", Type: List, Default: DefaultListener, check: notEmpty(), Doc: "Where the broker listens: NAME://HOST:PORT,..."},
	{Name: "advertised.listeners", Type: List, NoDefault: true, Doc: "What clients are told; unset: the listeners."},
	{Name: "controller.listener.names", Type: List, Default: "", Doc: "Listeners that are not for clients."},
	{Name: "controller.quorum.voters", Type: List, Default: "", Doc: "The voters of the metadata quorum, ID@HOST:PORT,..."},
	{Name: "controller.quorum.bootstrap.servers", Type: List, Default: "", Doc: "Where to find the metadata quorum."},
	{Name: "listener.security.protocol.map", Type: String, Default: "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT", Doc: "The security protocol of each listener name."},
	{Name: "log.dirs", Type: List, NoDefault: true, Doc: "Where data is kept."},
	{Name: "log.dir", Type: List, Default: "./stet-data", check: notEmpty(), Doc: "Where data is kept when log.dirs is not set."},
	{Name: "http.listener", Type: String, Default: "127.0.0.1:9404", Doc: "Where metrics, health and profiles are served over HTTP; empty: off."},
	// connections and requests
	{Name: "socket.request.max.bytes", Type: Int, Default: "104857600", check: atLeast(Int, 1), Doc: "The largest request."},
	{Name: "socket.send.buffer.bytes", Type: Int, Default: "102400", check: atLeast(Int, -1), Doc: "SO_SNDBUF of client connections; -1: the system's."},
	{Name: "socket.receive.buffer.bytes", Type: Int, Default: "102400", check: atLeast(Int, -1), Doc: "SO_RCVBUF of client connections; -1: the system's."},
	{Name: "connections.max.idle.ms", Type: Long, Default: "600000", Doc: "When an idle client connection is closed; negative: never."},
	{Name: "max.connections", Type: Int, Default: "2147483647", Dynamic: true, check: atLeast(Int, 0), Doc: "The most client connections."},
	{Name: "max.connections.per.ip", Type: Int, Default: "2147483647", Dynamic: true, check: atLeast(Int, 0), Doc: "The most client connections from one address."},
	{Name: "queued.max.request.bytes", Type: Long, Default: "-1", Doc: "The most bytes of requests that are held at once; -1: the broker's own bound."},
	{Name: "fetch.max.bytes", Type: Int, Default: "57671680", check: atLeast(Int, 1024), Doc: "The largest fetch response."},
	{Name: "max.incremental.fetch.session.cache.slots", Type: Int, Default: "1000", check: atLeast(Int, 0), Doc: "The most incremental fetch sessions."},
	{Name: "request.timeout.ms", Type: Int, Default: "30000", check: atLeast(Int, 1), Doc: "How long brokers wait for each other's answers."},
	// topics
	{Name: "auto.create.topics.enable", Type: Boolean, Default: "true", Doc: "Whether a request for a topic that does not exist creates it."},
	{Name: "delete.topic.enable", Type: Boolean, Default: "true", Doc: "Whether topics can be deleted."},
	{Name: "num.partitions", Type: Int, Default: "1", check: atLeast(Int, 1), Doc: "The partitions of a topic that is created without a number."},
	{Name: "default.replication.factor", Type: Int, Default: "1", check: atLeast(Int, 1), Doc: "The replicas of a topic that is created without a number."},
	// logs: the broker-wide defaults of topic keys
	{Name: "compression.type", Type: String, Default: "producer", Dynamic: true, check: oneOf("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"), Doc: "Default of the topic key compression.type."},
	{Name: "compression.gzip.level", Type: Int, Default: "-1", Dynamic: true, check: or("-1", between(Int, 1, 9)), Doc: "Default of the topic key compression.gzip.level."},
	{Name: "compression.lz4.level", Type: Int, Default: "9", Dynamic: true, check: between(Int, 1, 17), Doc: "Default of the topic key compression.lz4.level."},
	{Name: "compression.zstd.level", Type: Int, Default: "3", Dynamic: true, check: between(Int, -131072, 22), Doc: "Default of the topic key compression.zstd.level."},
	{Name: "log.cleanup.policy", Type: List, Default: "delete", Dynamic: true, check: listOf("delete", "compact"), Doc: "Default of the topic key cleanup.policy."},
	{Name: "log.cleaner.delete.retention.ms", Type: Long, Default: "86400000", Dynamic: true, check: atLeast(Long, 0), Doc: "Default of the topic key delete.retention.ms."},
	{Name: "log.cleaner.max.compaction.lag.ms", Type: Long, Default: maxLong, Dynamic: true, check: atLeast(Long, 1), Doc: "Default of the topic key max.compaction.lag.ms."},
	{Name: "log.cleaner.min.compaction.lag.ms", Type: Long, Default: "0", Dynamic: true, check: atLeast(Long, 0), Doc: "Default of the topic key min.compaction.lag.ms."},
	{Name: "log.cleaner.min.cleanable.ratio", Type: Double, Default: "0.5", Dynamic: true, check: ratio(), Doc: "Default of the topic key min.cleanable.dirty.ratio."},
	{Name: "log.flush.interval.messages", Type: Long, Default: maxLong, Dynamic: true, check: atLeast(Long, 1), Doc: "Default of the topic key flush.messages."},
	{Name: "log.flush.interval.ms", Type: Long, NoDefault: true, Dynamic: true, check: atLeast(Long, 0), Doc: "Default of the topic key flush.ms."},
	{Name: "log.flush.scheduler.interval.ms", Type: Long, Default: maxLong, check: atLeast(Long, 0), Doc: "Default of the topic key flush.ms when log.flush.interval.ms is not set."},
	{Name: "log.index.interval.bytes", Type: Int, Default: "4096", Dynamic: true, check: atLeast(Int, 0), Doc: "Default of the topic key index.interval.bytes."},
	{Name: "log.index.size.max.bytes", Type: Int, Default: "10485760", Dynamic: true, check: atLeast(Int, 4), Doc: "Default of the topic key segment.index.bytes."},
	{Name: "log.local.retention.bytes", Type: Long, Default: "-2", Dynamic: true, Unused: true, check: atLeast(Long, -2), Doc: "Tiered storage; without a meaning here."},
	{Name: "log.local.retention.ms", Type: Long, Default: "-2", Dynamic: true, Unused: true, check: atLeast(Long, -2), Doc: "Tiered storage; without a meaning here."},
	{Name: "log.message.timestamp.after.max.ms", Type: Long, Default: "3600000", Dynamic: true, check: atLeast(Long, 0), Doc: "Default of the topic key message.timestamp.after.max.ms."},
	{Name: "log.message.timestamp.before.max.ms", Type: Long, Default: maxLong, Dynamic: true, check: atLeast(Long, 0), Doc: "Default of the topic key message.timestamp.before.max.ms."},
	{Name: "log.message.timestamp.type", Type: String, Default: "CreateTime", Dynamic: true, check: oneOf("CreateTime", "LogAppendTime"), Doc: "Default of the topic key message.timestamp.type."},
	{Name: "log.preallocate", Type: Boolean, Default: "false", Dynamic: true, Doc: "Default of the topic key preallocate."},
	{Name: "log.retention.bytes", Type: Long, Default: "-1", Dynamic: true, Doc: "Default of the topic key retention.bytes."},
	{Name: "log.retention.ms", Type: Long, NoDefault: true, Dynamic: true, check: atLeast(Long, -1), Doc: "Default of the topic key retention.ms."},
	{Name: "log.retention.minutes", Type: Int, NoDefault: true, check: atLeast(Int, -1), Doc: "The same in minutes, when log.retention.ms is not set."},
	{Name: "log.retention.hours", Type: Int, Default: "168", check: atLeast(Int, -1), Doc: "The same in hours, when neither of the above is set."},
	{Name: "log.roll.ms", Type: Long, NoDefault: true, Dynamic: true, check: atLeast(Long, 1), Doc: "Default of the topic key segment.ms."},
	{Name: "log.roll.hours", Type: Int, Default: "168", check: atLeast(Int, 1), Doc: "The same in hours, when log.roll.ms is not set."},
	{Name: "log.roll.jitter.ms", Type: Long, NoDefault: true, Dynamic: true, check: atLeast(Long, 0), Doc: "Default of the topic key segment.jitter.ms."},
	{Name: "log.roll.jitter.hours", Type: Int, Default: "0", check: atLeast(Int, 0), Doc: "The same in hours, when log.roll.jitter.ms is not set."},
	{Name: "log.segment.bytes", Type: Int, Default: "1073741824", Dynamic: true, check: atLeast(Int, 14), Doc: "Default of the topic key segment.bytes."},
	{Name: "log.segment.delete.delay.ms", Type: Long, Default: "60000", Dynamic: true, check: atLeast(Long, 0), Doc: "Default of the topic key file.delete.delay.ms."},
	{Name: "message.max.bytes", Type: Int, Default: "1048588", Dynamic: true, check: atLeast(Int, 0), Doc: "Default of the topic key max.message.bytes."},
	{Name: "min.insync.replicas", Type: Int, Default: "1", Dynamic: true, check: atLeast(Int, 1), Doc: "Default of the topic key min.insync.replicas."},
	{Name: "unclean.leader.election.enable", Type: Boolean, Default: "false", Dynamic: true, Doc: "Default of the topic key unclean.leader.election.enable."},
	{Name: "mirror.support.unclean.leader.election", Type: Boolean, Default: "false", Dynamic: true, Doc: "Default of the topic key mirror.support.unclean.leader.election."},
	{Name: "mirror.replication.throttled.replicas", Type: List, Default: "", Dynamic: true, check: throttledReplicas(), Doc: "Default of the topic key mirror.replication.throttled.replicas."},
	// log housekeeping
	{Name: "log.retention.check.interval.ms", Type: Long, Default: "300000", check: atLeast(Long, 1), Doc: "How often retention is looked at."},
	{Name: "log.flush.offset.checkpoint.interval.ms", Type: Int, Default: "60000", check: atLeast(Int, 0), Doc: "How often the recovery point is written."},
	{Name: "log.flush.start.offset.checkpoint.interval.ms", Type: Int, Default: "60000", Unused: true, check: atLeast(Int, 0), Doc: "How often the log start is written."},
	{Name: "replica.high.watermark.checkpoint.interval.ms", Type: Long, Default: "5000", Doc: "How often the high watermark is written."},
	{Name: "log.cleaner.enable", Type: Boolean, Default: "true", Doc: "Whether compaction runs at all."},
	{Name: "log.cleaner.threads", Type: Int, Default: "1", Dynamic: true, check: atLeast(Int, 0), Doc: "How many logs are compacted at once."},
	{Name: "log.cleaner.backoff.ms", Type: Long, Default: "15000", Dynamic: true, check: atLeast(Long, 0), Doc: "How long the cleaner pauses when no log needs it."},
	{Name: "log.cleaner.dedupe.buffer.size", Type: Long, Default: "134217728", Dynamic: true, check: atLeast(Long, 1<<20), Doc: "The memory for the keys of logs that are compacted, for all threads."},
	{Name: "log.cleaner.io.buffer.load.factor", Type: Double, Default: "0.9", Dynamic: true, check: ratio(), Doc: "How full that memory may get; above 0.95, and 0, count as 0.9."},
	{Name: "log.cleaner.io.buffer.size", Type: Int, Default: "524288", Dynamic: true, check: atLeast(Int, 0), Doc: "What all cleaner threads together read and write at once; half of it is for reading."},
	{Name: "log.cleaner.io.max.bytes.per.second", Type: Double, Default: "1.7976931348623157E308", Dynamic: true, check: aboveZero(), Doc: "The rate at which all cleaner threads together read and write."},
	{Name: "log.check.io.max.bytes.per.second", Type: Long, Default: "4194304", Dynamic: true, check: atLeast(Long, 0), Doc: "The rate at which each log directory is checked for corrupt batches after a start, beside what is checked because it is read; 0: off."},
	{Name: "num.recovery.threads.per.data.dir", Type: Int, Default: "2", Dynamic: true, check: atLeast(Int, 1), Doc: "How many logs of a directory are opened, or recovered after a crash, at once; read at start."},
	{Name: "producer.id.expiration.ms", Type: Int, Default: "86400000", Dynamic: true, check: atLeast(Int, 1), Doc: "When the state of an idle producer id is dropped."},
	// replication
	{Name: "num.replica.fetchers", Type: Int, Default: "1", Unused: true, Dynamic: true, check: atLeast(Int, 1), Doc: "Fetchers per leader."},
	{Name: "replica.fetch.max.bytes", Type: Int, Default: "1048576", Unused: true, check: atLeast(Int, 0), Doc: "Limit per partition of a follower's fetch."},
	{Name: "replica.fetch.response.max.bytes", Type: Int, Default: "10485760", Unused: true, check: atLeast(Int, 0), Doc: "Limit of a follower's fetch."},
	{Name: "replica.fetch.wait.max.ms", Type: Int, Default: "500", Unused: true, Doc: "How long a follower's fetch waits for data."},
	{Name: "replica.fetch.min.bytes", Type: Int, Default: "1", Unused: true, Doc: "How many bytes a follower's fetch waits for."},
	{Name: "replica.lag.time.max.ms", Type: Long, Default: "30000", Unused: true, Doc: "When a follower that does not keep up leaves the ISR."},
	// groups
	{Name: "offsets.topic.num.partitions", Type: Int, Default: "50", check: atLeast(Int, 1), Doc: "The partitions of __consumer_offsets."},
	{Name: "offsets.topic.replication.factor", Type: Short, Default: "3", check: atLeast(Short, 1), Doc: "The replicas of __consumer_offsets; as many as there are voters if that is fewer."},
	{Name: "offsets.topic.segment.bytes", Type: Int, Default: "104857600", check: atLeast(Int, 14), Doc: "The segment size of __consumer_offsets."},
	{Name: "offsets.retention.minutes", Type: Int, Default: "10080", check: atLeast(Int, 1), Doc: "How long the offsets of an empty group are kept."},
	{Name: "offsets.retention.check.interval.ms", Type: Long, Default: "600000", check: atLeast(Long, 1), Doc: "How often expired offsets are looked for."},
	{Name: "offset.metadata.max.bytes", Type: Int, Default: "4096", Doc: "The largest metadata text of a committed offset."},
	{Name: "offsets.commit.timeout.ms", Type: Int, Default: "5000", check: atLeast(Int, 1), Doc: "How long a commit waits for the replicas."},
	{Name: "group.initial.rebalance.delay.ms", Type: Int, Default: "3000", Doc: "How long the first rebalance of a group waits for more members."},
	{Name: "group.min.session.timeout.ms", Type: Int, Default: "6000", Doc: "The shortest session timeout a member may ask for."},
	{Name: "group.max.session.timeout.ms", Type: Int, Default: "1800000", Doc: "The longest session timeout a member may ask for."},
	{Name: "group.max.size", Type: Int, Default: "2147483647", check: atLeast(Int, 1), Doc: "The most members of a group."},
	// mirroring (SPEC section 11)
	{Name: "mirror.num.replica.fetchers", Type: Int, Default: "1", Dynamic: true, check: between(Int, 1, 256), Doc: "Fetchers per mirror and source broker."},
	{Name: "mirror.metadata.refresh.interval.ms", Type: Long, Default: "30000", Dynamic: true, check: atLeast(Long, 1), Doc: "How often the source's metadata are synced."},
	{Name: "mirror.failed.retry.initial.backoff.ms", Type: Long, Default: "100", Dynamic: true, check: atLeast(Long, 1), Doc: "The first pause before a FAILED partition is tried again."},
	{Name: "mirror.failed.retry.max.backoff.ms", Type: Long, Default: "300000", Dynamic: true, check: atLeast(Long, 1), Doc: "The longest such pause."},
	{Name: "mirror.failed.retry.max.attempts", Type: Int, Default: "20", Dynamic: true, check: between(Int, 0, 32767), Doc: "How often a FAILED partition is tried again; 0: never."},
	{Name: "mirror.state.topic.num.partitions", Type: Int, Default: "50", check: atLeast(Int, 1), Doc: "The partitions of __mirror_state."},
	{Name: "mirror.state.topic.replication.factor", Type: Short, Default: "3", check: atLeast(Short, 1), Doc: "The replicas of __mirror_state; unset: 3, or the number of voters if that is lower."},
	{Name: "mirror.coordinator.append.linger.ms", Type: Int, Default: "10", Dynamic: true, check: atLeast(Int, 0), Doc: "How long writes of the mirror coordinator are gathered."},
	{Name: "mirror.coordinator.write.timeout.ms", Type: Int, Default: "5000", Dynamic: true, check: atLeast(Int, 1), Doc: "How long a write of the mirror coordinator may take."},
	{Name: "mirror.replication.throttled.rate", Type: Long, Default: maxLong, Dynamic: true, check: atLeast(Long, 1), Doc: "Bytes per second for throttled mirror replicas of this broker."},
	{Name: "mirror.fetch.memory.bytes", Type: Long, Default: "134217728", Dynamic: true, check: atLeast(Long, 1<<20), Doc: "The memory for fetched data of all mirrors."},
	{Name: "mirror.metrics.max.partitions", Type: Int, Default: "2000", Dynamic: true, check: atLeast(Int, 0), Doc: "The most partitions with metrics of their own."},
	// replication quotas: dynamic only in Kafka
	{Name: "leader.replication.throttled.rate", Type: Long, NoDefault: true, Dynamic: true, Unused: true, check: atLeast(Long, 0), Doc: "Bytes per second for replicas throttled on the leader's side, unlimited unless set; without a meaning while there is one broker."},
	{Name: "follower.replication.throttled.rate", Type: Long, NoDefault: true, Dynamic: true, Unused: true, check: atLeast(Long, 0), Doc: "Bytes per second for replicas throttled on the follower's side, unlimited unless set; without a meaning while there is one broker."},
	{Name: "replica.alter.log.dirs.io.max.bytes.per.second", Type: Long, Default: maxLong, Dynamic: true, Unused: true, check: atLeast(Long, 0), Doc: "Throttle of moves between directories; without a meaning yet."},
}

// unusedkeys.txt: names of Apache Kafka 4.3's broker keys, "name dynamic|static".
//
//go:embed unusedkeys.txt
var unusedKeys string

func unusedBrokerDefs() []Def {
	used := map[string]bool{}
	for _, d := range brokerDefs {
		used[d.Name] = true
	}
	var defs []Def
	for line := range strings.Lines(unusedKeys) {
		name, how, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == "" || used[name] {
			continue
		}
		typ := String
		if strings.HasSuffix(name, ".password") || strings.HasSuffix(name, "secret.key") || strings.HasSuffix(name, "passphrase") ||
			strings.HasSuffix(name, "client.secret") || strings.HasSuffix(name, "jaas.config") || strings.HasSuffix(name, "keystore.key") {
			typ = Password
		}
		defs = append(defs, Def{Name: name, Type: typ, NoDefault: true, Unused: true, Dynamic: how == "dynamic", Doc: "A key of Apache Kafka; without a meaning here."})
	}
	return defs
}

// refuseNotBuilt names settings that are not built yet and must not be accepted
// without effect: security would leave a broker open that its owner believes closed.
func refuseNotBuilt(key, value string) error {
	notBuilt := func(what string) error {
		return &NotBuiltError{key, "", "this version of Stet does not have " + what + " yet"}
	}
	upper := strings.ToUpper(value)
	switch {
	case key == "security.inter.broker.protocol" && upper != "PLAINTEXT":
		return &NotBuiltError{key, value, "this version of Stet speaks PLAINTEXT only"}
	case key == "authorizer.class.name" && value != "", key == "super.users" && value != "", key == "allow.everyone.if.no.acl.found":
		return notBuilt("an authorizer")
	case key == "controller.quorum.voters" && len(SplitList(value)) > 1:
		return &NotBuiltError{key, value, "this version of Stet runs as one broker; several voters come later"}
	case key == "process.roles" && (!slices.Contains(SplitList(value), "controller") || !slices.Contains(SplitList(value), "broker")):
		return &NotBuiltError{key, value, "this version of Stet runs as one broker, which is its own controller (broker,controller)"}
	case strings.HasPrefix(key, "sasl."), strings.HasPrefix(key, "listener.name.") && strings.Contains(key, ".sasl."):
		return notBuilt("SASL")
	case strings.HasPrefix(key, "ssl."), strings.HasPrefix(key, "listener.name.") && strings.Contains(key, ".ssl."):
		return notBuilt("TLS")
	}
	return nil
}

// Group are the keys of consumer groups (KIP-848); they have no meaning until
// the new protocol is served.
var Group = newTable("group", []Def{
	{Name: "consumer.heartbeat.interval.ms", Type: Int, Default: "5000", Unused: true, check: atLeast(Int, 1), Doc: "The heartbeat interval of members."},
	{Name: "consumer.session.timeout.ms", Type: Int, Default: "45000", Unused: true, check: atLeast(Int, 1), Doc: "The session timeout of members."},
	{Name: "consumer.assignment.interval.ms", Type: Int, Default: "1000", Unused: true, check: atLeast(Int, 0), Doc: "The least time between two assignments."},
})
