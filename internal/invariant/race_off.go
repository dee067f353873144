//go:build !race

package invariant

// Race reports whether the race detector is in this build. Tests that go through thousands of
// states take a part of them then; scripts/test runs all of them under the tag "invariants".
const Race = false
