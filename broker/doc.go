// Package broker is the composition root: it reads the configuration, starts the
// parts in order (listeners bound, metadata quorum, logs, partitions,
// coordinators, mirrors, server, HTTP), wires them together and stops them in
// the opposite order. It holds no logic of its own beyond translation between
// the parts.
//
// Goroutines: the log manager's maintenance and the HTTP server; the other parts
// own theirs. Locks: none but the one around internal topic creation.
package broker
