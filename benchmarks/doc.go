// Command benchmarks runs the named scenarios end to end: real processes, the CPU
// time of each from /proc, every figure beside a baseline of the same run, the two
// interleaved. `make bench`, `make bench-peers`, `make profile` and
// `make profile-compare` call it; it needs Linux.
//
// Files: main.go (commands), process.go, stet.go and kafka.go (what is started), fill.go
// (sources), scenario_*.go, profile.go (recording), table.go (results). Packages beside it: rawloop
// (baselines), sink (a listener that discards), wan (a long line), growth (comparison of profiles), gate (exact counts
// of the mirror path).
//
// Goroutines belong to the scenario that starts them and end with it; no locks but
// in fill.go.
package main
