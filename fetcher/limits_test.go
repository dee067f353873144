package fetcher

import (
	"testing"
	"time"
)

// TestLimitsGrowWithTheWay: over a long line the limits follow round trip time x
// rate, so that one fetch per round trip keeps it full, up to a bound (G5, SPEC section 5).
func TestLimitsGrowWithTheWay(t *testing.T) {
	l, _ := testLoop(1)
	l.limit = 32 << 20
	const rtt = 80 * time.Millisecond
	limit := l.partitionLimit(rtt)
	if limit != l.config.PartitionMaxBytes {
		t.Errorf("before anything is known the limit is %d", limit)
	}
	for range 10 { // each response is as large as was asked for, at line speed
		l.measure(int(limit), rtt+time.Duration(float64(limit)/1e9*float64(time.Second)))
		limit = l.partitionLimit(rtt)
	}
	if limit != l.limit {
		t.Errorf("after ten full responses the limit is %d, want %d", limit, l.limit)
	}
	if near := l.partitionLimit(100 * time.Microsecond); near != l.config.PartitionMaxBytes {
		t.Errorf("on a short way the limit is %d", near)
	}
}
