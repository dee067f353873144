package fetcher

import (
	"testing"

	"pgregory.net/rapid"
)

// TestSpreadIsEven: whatever the loads of the partitions and wherever they are, a few
// rounds leave the busiest fetcher at most 1.3 times the mean, unless one partition is too large for that (C35).
func TestSpreadIsEven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "fetchers")
		sizes := rapid.SliceOfN(rapid.Int64Range(1, 10_000), 1, 60).Draw(t, "bytes")
		at := map[ID]int{}
		var total, largest int64
		for i, b := range sizes {
			at[ID{Topic: "t", Partition: int32(i)}] = rapid.IntRange(0, n-1).Draw(t, "at")
			total += b
			largest = max(largest, b)
		}
		loads := func() []*load {
			out := make([]*load, n)
			for i := range out {
				out[i] = &load{n: i}
			}
			for i, b := range sizes {
				id := ID{Topic: "t", Partition: int32(i)}
				l := out[at[id]]
				l.bytes += b
				l.parts = append(l.parts, partitionLoad{id, b})
			}
			return out
		}
		moved := 0
		for range 10 {
			moves := spread(loads())
			if len(moves) > maxMoves {
				t.Fatalf("%d moves at once", len(moves))
			}
			moved += len(moves)
			for _, mv := range moves {
				at[mv.id] = mv.to
			}
		}
		if again := spread(loads()); len(again) > 0 {
			t.Fatalf("it does not come to rest: %d moves so far, now %v", moved, again)
		}
		mean := float64(total) / float64(n)
		for _, l := range loads() {
			if float64(l.bytes) > max(1.3*mean, mean+float64(largest)) {
				t.Fatalf("fetcher %d carries %d, the mean is %.0f, the largest partition %d", l.n, l.bytes, mean, largest)
			}
		}
	})
}
