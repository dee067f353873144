// Package dumplog prints segment, index, snapshot and checkpoint files in the lines of
// Apache Kafka's kafka-dump-log, as of Kafka 4.3, or as one JSON object per line, and says
// where a file is bad. A partition's directory is checked as a whole: indexes, snapshots and
// checkpoints against the batches of the log. It reads files only and writes nothing to the
// directory. It owns no goroutines and no locks.
package dumplog
