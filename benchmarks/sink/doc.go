// Package sink is a Kafka listener that throws away what is produced to it: the
// target that costs nothing, against which the load generator's own cost shows.
// It answers ApiVersions, Metadata, CreateTopics, ListOffsets and Produce; records
// are discarded in the kernel (MSG_TRUNC) and never looked at. It needs Linux.
//
// Goroutines: one that accepts, one per connection; both end with Close. One lock,
// never held over I/O.
package sink
