package mirror

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestLag(t *testing.T) {
	t0 := time.Unix(1000, 0)
	at := func(s int) time.Time { return t0.Add(time.Duration(s) * time.Second) }
	l := newLag()
	if n := l.now(5, at(0)); n.records != -1 || n.time != -1 || n.sourceEnd != -1 {
		t.Errorf("never fetched: %+v", n)
	}
	l.observe(10, 10, 10, at(1))
	if n := l.now(10, at(9)); n.records != 0 || n.time != 0 || !n.seenAt.Equal(at(1)) {
		t.Errorf("caught up: %+v", n)
	}
	l.observe(20, 20, 10, at(10))
	l.observe(30, 30, 10, at(12))
	if n := l.now(10, at(15)); n.records != 20 || n.time != 5*time.Second {
		t.Errorf("behind: %+v", n)
	}
	if n := l.now(20, at(15)); n.records != 10 || n.time != 3*time.Second {
		t.Errorf("half way: %+v", n)
	}
	l.observe(15, 15, 12, at(20)) // the source was cut
	if n := l.now(12, at(21)); n.records != 3 || n.time > 11*time.Second {
		t.Errorf("after a cut: %+v", n)
	}
}

// TestLagIsNeverUnderReported compares with a tracker that forgets nothing.
func TestLagIsNeverUnderReported(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLag()
		var all []sight
		now, hw, leo := time.Unix(0, 0), int64(0), int64(0)
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(1, 1000).Draw(t, "ms")) * time.Millisecond)
			hw += rapid.Int64Range(0, 10).Draw(t, "produced")
			leo = min(hw, leo+rapid.Int64Range(0, 8).Draw(t, "copied"))
			l.observe(hw, hw, leo, now)
			if n := len(all); n == 0 || all[n-1].hw < hw {
				all = append(all, sight{hw, now})
			}
			want := time.Duration(0)
			for _, s := range all {
				if s.hw > leo {
					want = now.Sub(s.at)
					break
				}
			}
			got := l.now(leo, now)
			if got.time < want || got.records != hw-leo {
				t.Fatalf("lag %v and %d, truly %v and %d", got.time, got.records, want, hw-leo)
			}
			if len(l.sights) > maxSights {
				t.Fatalf("%d sights", len(l.sights))
			}
		}
	})
}
