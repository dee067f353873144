// Package growth compares recorded runs: what grew per GiB, function by function,
// and whether budgets hold (CLI.md, "Profiles"). A record is a folder with run.json
// (what was run, how much was copied, exact counts) and cpu, allocs, mutex and block
// profiles, any of which may be missing; or one profile file.
//
// It owns no goroutines and no locks.
package growth
