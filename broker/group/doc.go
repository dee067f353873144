// Package group is the group coordinator: classic consumer groups (members,
// rebalances, generations; KIP-62, 134, 345, 394, 814) and the committed offsets
// of all groups, kept in __consumer_offsets in Kafka's own record formats.
//
// A group lives on the shard of broker/coord that its id is placed on. All of its
// state is touched by that shard's goroutine only; there are no locks here. Join
// and Sync answers are parked in the member and completed by a later operation or
// timer. Members are soft state: they are written when an assignment is made, and
// a new coordinator expects their heartbeats.
package group
