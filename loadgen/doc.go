// Package loadgen puts an open-loop load on a Kafka cluster and measures what
// comes of it: response, service and slip times, replication lag against a
// control consumer, fail-over times and the recovery point. It works against any
// Kafka and imports nothing of the broker but its mirror messages.
//
// Open loop means: the intended time of every record comes from a schedule, no
// slot is skipped or moved when the target stalls, and the stall is measured.
//
// Batches are the beginning of streams that were encoded once, sent with a header of their own
// (payload.go), so that the generator costs little itself. At a rate, a connection has 5
// requests under way as with Kafka's producer: what is due meanwhile waits in the response
// time and not in the service time. validity.go holds the rules by which a run counts.
//
// Goroutines: one per producer and per reader, one that reads responses per
// connection, one that prints progress. All end before a scenario returns.
// Locks: one per Recorder and one per connection's queue, none held over I/O.
package loadgen
