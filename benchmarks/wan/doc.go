// Package wan is a long line on one machine: a TCP proxy that delays every byte
// by a fixed time and bounds the bandwidth, for benchmarks and tests that must not
// depend on the kernel's traffic shaping.
//
// Goroutines: one per listener, three per connection and direction (read, line,
// write). All end with Close. No locks but the one around the set of connections.
package wan
