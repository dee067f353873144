// Package log stores partitions on disk in Apache Kafka's own layout: segments
// with offset, time and transaction index, producer snapshots, the leader-epoch
// checkpoint, partition.metadata, meta.properties and the offset checkpoints.
//
// A Manager owns the log directories of a broker, a Log one partition.
//
// Locks. Log.mu serialises everything that changes a log: append, truncation,
// roll, retention, flush bookkeeping. Log.pub is a short lock around the
// published view (segment list, end offset, size); readers take only that one,
// and never wait for the disk under it. segment.imu guards a segment's indexes
// and latest batches in memory; it is taken inside Log.mu and never inside
// Log.pub (a rebuild takes that under it), and held over reads and writes of
// index files. Manager.mu guards the partition table and is taken before a Log's
// locks, never inside them. readahead.mu and writeBacks.mu are innermost and
// held for arithmetic only.
//
// Goroutines. None of its own: Manager.Run is the one loop, started by the owner,
// with one more for flushes of rolled segments, one for readahead, for each
// directory one for write-back and one for the check of what is on disk, and
// log.cleaner.threads more for compaction.
//
// Files. An index is kept in memory while its segment is active and is written
// out at roll, flush, checkpoint and close; the files of a crash are never
// trusted but rebuilt from the batches. The crash cases are written down at Log.open.
package log
