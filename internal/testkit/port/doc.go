// Package port keeps addresses for tests: a listener that goes and comes back finds its port free, and one that nobody
// listens on stays so, whatever other tests do meanwhile. It has no goroutines and no locks.
package port
