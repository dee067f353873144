// Package rawloop is the least work that mirroring can be: the baselines of the
// benchmarks. Receive takes the whole of a topic over one connection: full fetches, a whole
// response in one leased buffer, the CRC of every batch, one positional write per
// partition and response; no log, no index, no sessions, no metadata but where
// the topic is. Variants of it write in other ways, or check and write while the
// response still comes in (stream.go). Send is the way out: file ranges to a socket by
// sendfile.
//
// It owns no goroutines and no locks.
package rawloop
