package log

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"stet/zerocopy/batch"
)

// TestCrashBehindDamage: corrupt batches in the active segment are found by a reader, before or behind appends of a leader or a mirror.
// A crash after that costs no more than what was not synced: the scan begins behind the damage.
func TestCrashBehindDamage(t *testing.T) {
	for _, power := range []bool{false, true} {
		for _, appended := range []int{0, 3} { // before the damage is found
			for _, leader := range []bool{false, true} {
				for _, flush := range []bool{false, true} {
					from, stored := stopped(t, 100)
					name, _ := flipIn(t, from.mem, stored, 24, 70)
					if err := syncPath(from.mem, name); err != nil {
						t.Fatal(err)
					}
					e, l := openClone(t, from, from.mem)
					add := func(n int) {
						for range n {
							b := batch.Batch(at(l.LogEndOffset(), 10, 2))
							if leader {
								b.SetBaseOffset(0) // of clients
								e.lead(l, b, 10, OriginClient)
							} else {
								e.follow(l, b)
							}
							stored = append(stored, b)
						}
					}
					add(appended)
					l.SetHighWatermark(l.LogEndOffset())
					if missing, _, err := serve(l, stored, 300, false); err != nil || !slices.Equal(missing, []int64{24, 25}) {
						t.Fatal(missing, err)
					}
					if flush { // as is done in the background when damage was found
						e.m.FlushSealed()
					}
					found := l.LogEndOffset()
					if !flush || appended > 0 {
						add(4)
						found = l.LogEndOffset() - 8
					}
					if n := len(l.segs); n != 2 || l.segs[1].base != found {
						t.Fatalf("%d segments", n)
					}
					mem := e.mem.Clone()
					want := l.LogEndOffset()
					if power {
						mem, want = e.mem.CrashClone(nil), found
					}
					e2, l2 := openClone(t, from, mem)
					if l2.Err() != nil || l2.LogEndOffset() != want {
						t.Fatalf("power %v, appended %d, flush %v: ends at %d, not %d: %v; %s", power, appended, flush, l2.LogEndOffset(), want, l2.Err(), e2.logs.String())
					}
					l2.SetHighWatermark(want)
					i := slices.IndexFunc(stored, func(b batch.Batch) bool { return b.BaseOffset() >= want })
					if i < 0 {
						i = len(stored)
					}
					if missing, _, err := serve(l2, stored[:i], 300, false); err != nil || !slices.Equal(missing, []int64{24, 25}) {
						t.Error(missing, err)
					}
				}
			}
		}
	}
}

// TestDamageIsLeftWithoutAppends: the background check finds the damage of an active segment, and rolls it.
func TestDamageIsLeftWithoutAppends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, stored := stopped(t, 100)
		flipIn(t, from.mem, stored, 24, 70)
		e, l := openClone(t, from, from.mem)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); e.m.Run(ctx) }()
		e.m.SetCheckRate(1 << 62)
		time.Sleep(time.Minute)
		synctest.Wait()
		mem := e.mem.CrashClone(nil)
		cancel()
		<-done
		if len(l.segs) != 2 || e.m.CorruptBatches() != 1 {
			t.Fatalf("%d segments: %s", len(l.segs), e.logs.String())
		}
		e2, l2 := openClone(t, from, mem)
		if l2.Err() != nil || l2.LogEndOffset() != 200 {
			t.Fatal(l2.LogEndOffset(), e2.logs.String())
		}
	})
}
