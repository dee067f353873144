package zerocopy

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// TestOneLeaseAtATimeIsExtendedBeyondTheBudget: an extension that fits costs nobody anything, one beyond the budget is taken by one lease at a time,
// and the next one gets its turn at the release; the reservations add up all the while.
func TestOneLeaseAtATimeIsExtendedBeyondTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		p := NewPool(100 << 10)
		lease := func(n int) Lease {
			l, err := p.Lease(ctx, n)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		leased := func(want int64) {
			t.Helper()
			if got := p.Leased(); got != want {
				t.Fatalf("%d bytes leased, want %d", got, want)
			}
		}
		a, b := lease(32<<10), lease(32<<10)
		copy(a.Bytes(), "first")
		if err := p.Extend(ctx, &a, 48<<10); err != nil { // fits
			t.Fatal(err)
		}
		leased(80 << 10)
		for n := 64 << 10; n <= 256<<10; n *= 2 { // beyond, step by step with one turn
			if err := p.Extend(ctx, &a, n); err != nil {
				t.Fatal(err)
			}
			a.Grow(5, n)
		}
		leased((32 + 256) << 10)
		if string(a.Bytes()[:5]) != "first" || len(a.Bytes()) != 256<<10 {
			t.Fatalf("%d bytes, beginning with %q", len(a.Bytes()), a.Bytes()[:5])
		}
		cancelled, cancel := context.WithCancel(ctx)
		cancel()
		if err := p.Extend(cancelled, &b, 64<<10); !errors.Is(err, context.Canceled) {
			t.Fatalf("a second one beyond the budget: %v", err)
		}
		done := make(chan error)
		go func() { done <- p.Extend(ctx, &b, 64<<10) }()
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("two leases are beyond the budget (%v)", err)
		default:
		}
		a.Release()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		leased(64 << 10)
		b.Release()
		leased(0)
		c := lease(100 << 10) // the turn is free again
		if err := p.Extend(ctx, &c, 200<<10); err != nil {
			t.Fatal(err)
		}
		c.Release()
		leased(0)
	})
}
