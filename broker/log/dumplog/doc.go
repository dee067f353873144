// Package dumplog prints segment, index and snapshot files in the lines of Apache
// Kafka's kafka-dump-log, as of Kafka 4.3. It reads files only and writes nothing
// to the directory. It owns no goroutines and no locks.
package dumplog
