// Package batch is a read-only view over Kafka record batches (magic 2, Kafka
// protocol, "Record Batch"). It checks headers and CRC32C without decoding
// records, and it is the one place in Stet that may patch the bytes that lie
// before the CRC (base offset and partition leader epoch).
// It owns no goroutines and no locks.
package batch
