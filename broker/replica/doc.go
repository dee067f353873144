// Package replica owns the partitions that this broker holds: their roles
// (leader or follower, leader epoch), the high watermark, the write gate that
// makes a mirror topic read-only, and the requests that wait for them (long
// polls of Fetch, acknowledgements of Produce).
//
// It starts no goroutines: whoever appends wakes the waiters. Locks, in this
// order: Manager.mu (the table of partitions), Partition.gateMu (read-locked
// during a local append, locked while the role or the gate changes, so that a
// change waits for appends in flight), Partition.waitMu (the set of waiters).
// No lock is held over I/O of another partition.
package replica
