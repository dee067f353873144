// Package scripted is a source cluster in the process that speaks the Kafka protocol
// over TCP, keeps real record batches and can be told to misbehave in every way that a
// source can (Cluster, Hook). Only external _test packages may import it. It is a
// package of its own so that tests of the fetcher need no broker.
//
// Goroutines: one per listener and per connection, all ended by Cluster.Close.
// Cluster.mu guards everything of a cluster.
package scripted
