// Package frame reads what surrounds Kafka messages: length-prefixed frames with
// a size limit, request and response headers, and Fetch responses by a walker that
// allocates nothing and hands out the records as sub-slices of the frame.
// Everything else of the protocol is decoded by franz-go's kmsg, which also is the
// walker's reference in a differential fuzz test.
//
// It owns no goroutines and no locks.
package frame
