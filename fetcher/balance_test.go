package fetcher

import (
	"testing"

	"pgregory.net/rapid"
)

// TestSpreadIsEven: whatever the loads of the partitions and wherever they are, a few
// rounds leave the busiest fetcher at most 1.3 times the mean, unless one partition is too large for that (C35), and so the busiest
// lane of each fetcher.
func TestSpreadIsEven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fetchers := rapid.IntRange(1, 6).Draw(t, "fetchers")
		n := fetchers * rapid.IntRange(1, 4).Draw(t, "lanes")
		sizes := rapid.SliceOfN(rapid.Int64Range(1, 10_000), 1, 60).Draw(t, "bytes")
		at := map[ID]int{}
		var largest int64
		for i, b := range sizes {
			at[ID{Topic: "t", Partition: int32(i)}] = rapid.IntRange(0, n-1).Draw(t, "at")
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
		for range 20 {
			moves := spreadLanes(loads(), fetchers)
			if len(moves) > maxMoves {
				t.Fatalf("%d moves at once", len(moves))
			}
			moved += len(moves)
			for _, mv := range moves {
				at[mv.id] = mv.to
			}
		}
		if again := spreadLanes(loads(), fetchers); len(again) > 0 {
			t.Fatalf("it does not come to rest: %d moves so far, now %v", moved, again)
		}
		even := func(what string, loads []int64) {
			var sum, busiest int64
			for _, b := range loads {
				sum += b
				busiest = max(busiest, b)
			}
			mean := float64(sum) / float64(len(loads))
			if float64(busiest) > max(1.3*mean, mean+float64(largest)) {
				t.Fatalf("the busiest %s carries %d, the mean is %.0f, the largest partition %d", what, busiest, mean, largest)
			}
		}
		per, lanes := make([]int64, fetchers), make([][]int64, fetchers)
		for _, l := range loads() {
			per[l.n%fetchers] += l.bytes
			lanes[l.n%fetchers] = append(lanes[l.n%fetchers], l.bytes)
		}
		even("fetcher", per)
		for _, l := range lanes {
			even("lane", l)
		}
	})
}
