// Package invariant holds checks that are compiled in under the build tags
// "invariants" and "race" and cost nothing otherwise. A broken invariant is a
// bug of ours, never bad input, so it panics with a text that begins with BUG.
// It owns no goroutines and no locks.
package invariant
