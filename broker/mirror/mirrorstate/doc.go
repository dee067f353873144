// Package mirrorstate holds the states of a mirror partition and the table of
// the transitions between them (SPEC section 3). It is pure and owns no
// goroutines and no locks.
package mirrorstate
