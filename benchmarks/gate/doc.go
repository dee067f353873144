// Package gate counts, without a clock, what the mirror path does to a byte: the
// fetcher, a source connection and a real log in this process, between a connection and
// a file system that watch memory. Bytes that a file is given must lie where a
// connection put them, or they were copied on the way.
//
// One goroutine feeds Measure; the watch has one lock, held for a search in a short list.
package gate
