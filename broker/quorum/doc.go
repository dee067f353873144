// Package quorum keeps the metadata log: records are proposed, made durable by
// raft, applied in order to one image, and handed on as deltas. It is the only
// package that knows the raft library. There is one voter today; everything but
// the in-memory transport and the bootstrap is written for more.
//
// On disk, below Options.Dir: raft.db (bbolt: raft's log, term and vote, each
// change synced before it is acknowledged) and snapshots/ (raft's file
// snapshots with checksum; the state in them is a header and meta.Encode of the
// image's records). A crash at any point leaves either the old or the new state:
// a raft entry is there after its transaction's sync or not at all, and a
// snapshot directory is renamed into place when it is complete.
//
// Damage: raft.db is looked at as a whole before it is used (integrity.go, pages.go), every entry and what raft notes of a snapshot carry a
// checksum (snapshots.go), and entries that build on records that are not there are noticed (fsm.go). What is found is an error
// of Open that names the file. A whole copy of an earlier time is not told here; the broker compares the metadata with its partitions.
//
// Goroutines: raft's own; OnCommit runs on raft's FSM goroutine, one call at a
// time, except for the first call, which Open makes itself before it returns.
// Locks: none beyond raft's; the image is an atomic pointer.
package quorum
