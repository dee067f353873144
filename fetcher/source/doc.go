// Package source reaches a source cluster over TCP. It implements fetcher.Leader
// (connections that carry nothing but Fetch) and asks the questions that a mirror has:
// metadata, epochs, offsets, configs, cluster id, and what another Stet says
// about its mirrors. Every request is a question; nothing is ever changed at a source.
//
// Both kinds of connection are made by dial: TCP, then ApiVersions. A peer that does not
// speak the Kafka protocol is told by what it answered.
//
// Goroutines: one per batcher while it has questions in flight. Locks: Source.mu
// guards the metadata cache and the table of connections, link.mu one
// control connection while a request is out; the two are never held together.
package source
