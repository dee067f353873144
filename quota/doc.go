// Package quota holds the rate limiters of Stet: pure state machines to which the
// time is passed in, so that a test can drive them through hours in a moment.
// The mirror throttle (SPEC section 12) uses one Limiter per broker.
//
// It owns no goroutines. A Limiter has one lock, held for a few instructions.
package quota
