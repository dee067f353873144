// Package mirror runs mirrors on a broker (SPEC sections 3 to 8 and 13): it
// decides the next state of every mirror partition that this broker leads, finds the
// common prefix with the source, keeps leader epochs above the source's, follows or refuses
// divergence, runs the stop barrier, keeps metadata in step with the source and
// answers the mirror requests.
//
// What it needs of others it declares as interfaces (interfaces.go); the root wires
// them. Intent comes from the metadata image, durable state from the mirror
// coordinator; decide.go turns both into the next action and nothing else does.
//
// Goroutines: one for the Manager, which follows the metadata; one per mirror
// (upstream), which talks to the source about everything but data; one per partition, only
// while that partition has something to do. Data flows through the goroutines of package fetcher.
//
// Locks: Manager.mu (tables), upstream.mu (what is known about a source), driver.mu
// (mailbox and published view), driver.gateMu (the gate), lag.mu. None is held while calling anything that
// blocks, except that a gate is set under Manager.mu or gateMu, which waits for appends in flight; none while another
// of them is taken, except Manager.mu before driver.mu.
//
// Order of things, everywhere: persist first, act after; every act can be done again.
package mirror
