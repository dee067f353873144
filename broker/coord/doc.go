// Package coord is the runtime of the coordinators that keep their state in a
// partition of an internal topic (groups, mirrors): one shard per partition that
// is led here, with a state machine that is made from the partition's records.
//
// A shard is one goroutine. It loads the partition, then runs operations one
// after the other: an operation looks at the state, returns records, and sees
// them applied at once; the records of several operations are appended as one
// batch; an answer goes out when everything the operation saw is committed (below
// the high watermark). A failed append leaves the state ahead of the log, so the
// shard then loads again from the log and all parked answers fail. Timers run as
// operations too. So a Machine needs no locks.
//
// Locks: Runtime.mu guards the table of shards, shard.mu its queue; they are never
// held together, nor while calling out.
package coord
