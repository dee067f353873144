// Package server owns the listeners and the connections of clients. It reads
// length-prefixed requests, admits their memory step by step with what arrives,
// and hands them to a Handler one at a time per connection, so that pipelined
// requests are answered in order, as Kafka's muted channels do.
//
// A usual request costs one read, one write of its answer and no allocation: see
// input.go for the way in. Deadlines are not moved with each request.
//
// Goroutines: one per listener (accept) and one per connection. Locks: one
// around the set of connections, one inside the memory budget; none is held
// over I/O. Shutdown stops accepting, cancels the context that long polls wait
// on, lets requests in flight finish and then closes what is left.
package server
