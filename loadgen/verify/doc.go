// Package verify compares the stored record batches of two clusters, or of two
// log directories, byte by byte. It speaks only Kafka's protocol and reads only
// Kafka's files, so either side may be any Kafka. It is the proof behind
// `stet verify`, `stet demo` and the tests.
//
// It owns no goroutines beyond those of its clients, and no locks.
package verify
