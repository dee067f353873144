// Package testkit is what tests of several packages share: a source cluster in
// the process that speaks the Kafka protocol over TCP, keeps real record batches and
// can be told to misbehave in every way that a source can (Cluster, Hook).
// Only external _test packages may import it.
//
// Goroutines: one per listener and per connection, all ended by Cluster.Close.
// Cluster.mu guards everything of a cluster.
package testkit
