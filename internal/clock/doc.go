// Package clock is the seam through which the rest of Stet reads the time, so
// that pure parts can be driven by a test. Waiting is not part of it: code that
// waits uses the time package and is tested inside testing/synctest.
// It owns no goroutines and no locks.
package clock
