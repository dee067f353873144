// Package quota holds the rate limiters of Stet: pure state machines to which the
// time is passed in, so that a test can drive them through hours in a moment; and the
// lists that say which replicas a throttle applies to.
//
// The mirror throttle (SPEC section 12) uses one Limiter per broker. Replication is the leader's
// and the follower's throttle of replication inside a cluster; this release has one
// broker and so no follower, and nothing calls it yet.
//
// It owns no goroutines. A Limiter has one lock, held for some passes over those who share it.
package quota
