// Package records iterates over the records inside a batch (Kafka protocol,
// "Record"), decompressing as it goes. Memory is bounded by bytes really present,
// never by a length that the data claims: a record is only gathered while its
// bytes arrive, and skipping gathers nothing.
//
// It is used where a decode is unavoidable: a leader's validation of client
// batches, lookups by timestamp, and dump-log. The mirror's path never calls it.
// It owns no goroutines; its pools are safe for concurrent use.
package records
