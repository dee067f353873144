package broker

import (
	"fmt"
	"testing"
	"time"

	"stet/broker/mirror"
)

// TestTotalsNeverGoBack: a replaced driver, partitions that come to lie on the other side of the limit, and
// partitions that are deleted never make a counter fall, and nothing is counted twice in a sum.
func TestTotalsNeverGoBack(t *testing.T) {
	totals := newMirrorTotals()
	now := time.Unix(1000, 0)
	see := func(bytes int64, partition int32, beyond bool) int64 {
		p := mirror.PartitionStatus{Mirror: "m", Topic: "t", Partition: partition, InBytes: bytes, Retries: 1}
		totals.update(&p, beyond, now)
		if got := totals.parts[totalsKey{"m", "t", partition}].total[2]; p.Retries != got {
			t.Fatalf("retries %d, kept %d", p.Retries, got)
		}
		return p.InBytes
	}
	other := func() int64 { return totals.other["m"][0] }
	for i, step := range []struct {
		bytes       int64
		beyond      bool
		total, rest int64
	}{
		{100, false, 100, 0},
		{150, false, 150, 0},
		{30, false, 180, 0},   // another driver
		{50, true, 200, 20},   // now beyond the limit: the sum has what came since
		{20, true, 220, 40},   // another driver
		{60, false, 260, 40},  // and back: the sum keeps what it had
		{160, true, 360, 140}, // and again
	} {
		if got := see(step.bytes, 0, step.beyond); got != step.total || other() != step.rest {
			t.Fatalf("step %d: total %d and sum %d, want %d and %d", i, got, other(), step.total, step.rest)
		}
	}
	totals.forget(map[string]bool{"m": true}, now.Add(absent/2))
	if got := see(10, 0, true); got != 370 {
		t.Errorf("after a short absence the total is %d", got)
	}
	totals.forget(map[string]bool{"m": true}, now.Add(2*absent))
	if len(totals.parts) != 0 || other() != 150 {
		t.Errorf("after a long one: %d partitions, sum %d", len(totals.parts), other())
	}
	totals.forget(map[string]bool{}, now)
	if got := fmt.Sprint(totals.other); got != "map[]" {
		t.Errorf("a deleted mirror leaves %s", got)
	}
}
