// Package zerocopy owns the bytes on their way through Stet: leased buffers of
// fixed size classes under one byte budget (Pool, Lease), sendfile with an
// explicit offset (Sendfile) and the writer of responses that are made of
// memory pieces and file ranges (Writer).
//
// It owns no goroutines. Pool has one lock, held for a few instructions and
// never while anything blocks. A Lease and a Writer belong to one goroutine at a
// time.
package zerocopy
