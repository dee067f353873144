// Package mirrorcoord is the mirror coordinator: the durable states of mirror
// partitions and the last mirror epochs, kept in __mirror_state (SPEC sections 2,
// 3, 9, 10). It fences stale writers and forgets what belonged to deleted mirrors
// and topics.
//
// The state of a partition lives on the shard of broker/coord that its key is
// placed on and is touched by that shard's goroutine only; there are no locks
// here. Apply starts a goroutine for each deletion, which ends with Close.
package mirrorcoord
