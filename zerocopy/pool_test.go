package zerocopy

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"stet/internal/invariant"
)

func TestClassesHoldWhatTheyMust(t *testing.T) {
	last := int64(0)
	for n := 1; n <= 70<<20; n += 1 + n/97 {
		size := classSize(n)
		if size < int64(n) || size < last {
			t.Fatalf("class of %d bytes has %d, the one before %d", n, size, last)
		}
		if n > 4096 && n <= 64<<20 && float64(size) > float64(n)*1.51 {
			t.Fatalf("class of %d bytes has %d", n, size)
		}
		if c := classOf(n); c < numClasses && classOf(int(size)) != c {
			t.Fatalf("the buffer of class %d returns to class %d", c, classOf(int(size)))
		}
		last = size
	}
}

func TestLeaseIsReusedWithoutAllocation(t *testing.T) {
	p := NewPool(1 << 20)
	ctx := context.Background()
	n := testing.AllocsPerRun(100, func() {
		l, err := p.Lease(ctx, 100_000)
		if err != nil || len(l.Bytes()) != 100_000 {
			t.Fatal(err)
		}
		l.Release()
	})
	if n != 0 {
		t.Fatalf("%v allocations per lease", n)
	}
	if p.Leased() != 0 {
		t.Fatalf("%d bytes leased", p.Leased())
	}
}

func mustPanic(t *testing.T, what string, f func()) {
	t.Helper()
	defer func() {
		if s, _ := recover().(string); !strings.HasPrefix(s, "BUG") {
			t.Fatalf("%s: no BUG panic but %q", what, s)
		}
	}()
	f()
}

func TestDoubleReleaseIsABug(t *testing.T) {
	p := NewPool(1 << 20)
	l, _ := p.Lease(context.Background(), 10)
	same := l
	l.Release()
	mustPanic(t, "second release", l.Release)
	mustPanic(t, "release of a copy", same.Release)
	again, _ := p.Lease(context.Background(), 10) // takes the same buffer
	mustPanic(t, "release of an old copy", same.Release)
	again.Release()
	if invariant.Enabled {
		mustPanic(t, "use after release", func() { same.Bytes() })
	}
}

func TestReleasedBytesAreMangled(t *testing.T) {
	if !invariant.Enabled {
		t.Skip("needs -tags invariants or -race")
	}
	p := NewPool(1 << 20)
	l, _ := p.Lease(context.Background(), 10)
	b := l.Bytes()
	b[3] = 7
	l.Release()
	if b[3] != 0xDD {
		t.Fatalf("a reader of a released buffer sees %x", b[3])
	}
}

func TestBudgetIsWaitedForInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(64 << 10)
		ctx := context.Background()
		a, _ := p.Lease(ctx, 48<<10)
		order := make(chan string, 2)
		go func() {
			l, _ := p.Lease(ctx, 64<<10)
			order <- "large"
			l.Release()
		}()
		synctest.Wait()
		go func() { // would fit at once, but must not overtake for ever
			l, _ := p.Lease(ctx, 4<<10)
			order <- "small"
			l.Release()
		}()
		synctest.Wait()
		if _, ok := p.TryLease(4 << 10); ok {
			t.Error("TryLease overtook the waiters")
		}
		select {
		case who := <-order:
			t.Errorf("%s did not wait", who)
		default:
		}
		a.Release()
		synctest.Wait()
		if first := <-order; first != "large" {
			t.Errorf("%s was first", first)
		}
		<-order
		if p.Leased() != 0 {
			t.Errorf("%d bytes leased", p.Leased())
		}
	})
}

func TestCancelledWaitGivesTheBudgetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(8 << 10)
		a, _ := p.Lease(context.Background(), 8<<10)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error)
		go func() { _, err := p.Lease(ctx, 8<<10); done <- err }()
		synctest.Wait()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		a.Release()
		if l, ok := p.TryLease(8 << 10); !ok {
			t.Error("the budget is lost")
		} else {
			l.Release()
		}
	})
}

func TestLeaseAboveTheBudgetRunsAlone(t *testing.T) {
	p := NewPool(8 << 10)
	l, err := p.Lease(context.Background(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := p.TryLease(1); ok {
		t.Fatal("a second lease beside one that is above the budget")
	}
	l.Release()
	if p.kept > p.budget {
		t.Fatalf("%d bytes kept with a budget of %d", p.kept, p.budget)
	}
}

func TestGrowKeepsBytesAndBudget(t *testing.T) {
	p := NewPool(1 << 20)
	l, _ := p.LeaseGrowing(context.Background(), 200_000, 4096)
	before := p.Leased()
	copy(l.Bytes(), "hello")
	if n := l.Grow(5, 100_000); n != 5 || string(l.Bytes()[:5]) != "hello" || len(l.Bytes()) != 100_000 {
		t.Fatalf("copied %d: %q", n, l.Bytes()[:5])
	}
	if p.Leased() != before {
		t.Fatalf("growing changed the lease from %d to %d", before, p.Leased())
	}
	mustPanic(t, "beyond the reservation", func() { l.Grow(5, 1<<20) })
	l.Release()
	if p.Leased() != 0 {
		t.Fatal("leak")
	}
}

// TestSetBudget: a larger budget serves who waits, a smaller one counts for the leases to come.
func TestSetBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(8 << 10)
		first, ok := p.TryLease(8 << 10)
		if !ok {
			t.Fatal("the first lease was refused")
		}
		var second Lease
		done := make(chan error, 1)
		go func() {
			var err error
			second, err = p.Lease(context.Background(), 8<<10)
			done <- err
		}()
		synctest.Wait()
		p.SetBudget(16 << 10)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		p.SetBudget(4 << 10)
		if _, ok := p.TryLease(4 << 10); ok {
			t.Error("a lease beyond the smaller budget")
		}
		first.Release()
		second.Release()
		if p.kept > 0 {
			t.Errorf("%d bytes are kept beyond the budget", p.kept)
		}
		third, ok := p.TryLease(4 << 10)
		if !ok || p.Budget() != 4<<10 {
			t.Error("no lease within the smaller budget")
		}
		third.Release()
	})
}
