// Package api answers the requests of the Kafka protocol, one file per API key
// (NN_name.go; the header comment gives versions, behaviour and notes). It
// translates between wire messages and the packages that do the work, and owns
// no state but the fetch sessions (KIP-227).
//
// It starts no goroutines. Handlers run on the goroutine of the connection.
// Locks: the session cache has one, never held over I/O.
package api
