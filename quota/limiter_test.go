package quota

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestLimiterKeepsTheRate drives a fetch loop with responses of any size and delay
// against the limiter and counts bytes per second of its clock (SPEC section 12).
func TestLimiterKeepsTheRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.Int64Range(50_000, 200_000_000).Draw(t, "rate")
		batch := rapid.Int64Range(200, 1<<20).Draw(t, "batch")
		rtt := time.Duration(rapid.Int64Range(0, 40).Draw(t, "rtt ms")) * time.Millisecond
		late := rapid.Int64Range(0, 20).Draw(t, "timers late by ms")
		start := time.Unix(1000, 0)
		now := start
		l := NewLimiter(now, rate)
		perSecond := map[int64]int64{}
		var total int64
		for now.Sub(start) < 12*time.Second {
			granted, retry := l.Reserve(now, min(batch, 64<<10), 10<<20)
			if granted == 0 {
				if retry <= 0 {
					t.Fatal("nothing granted and nothing to wait for")
				}
				now = now.Add(retry + time.Duration(late)*time.Millisecond)
				continue
			}
			now = now.Add(rtt + 50*time.Microsecond)
			used := granted / batch * batch // whole batches
			if used == 0 {
				used = batch // a source sends one batch even if it is larger
			}
			l.Settle(now, granted, used)
			perSecond[int64(now.Sub(start)/time.Second)] += used
			total += used
		}
		// The first second may use the burst that was saved up; ten whole ones follow.
		var ten int64
		for s := int64(1); s <= 10; s++ {
			ten += perSecond[s]
			if over := perSecond[s] - rate*12/10; over > batch {
				t.Fatalf("second %d: %d bytes at a rate of %d and batches of %d", s, perSecond[s], rate, batch)
			}
		}
		off := ten - 10*rate
		if off < 0 {
			off = -off
		}
		if limit := max(10*rate/50, batch); off > limit {
			t.Fatalf("%d bytes in ten seconds at a rate of %d: off by %d, allowed %d", ten, rate, off, limit)
		}
	})
}

// line is a fetch loop with responses of up to size bytes in whole batches that come at once.
type line struct {
	l           *Limiter
	now         time.Time
	batch, size int64
}

// second fetches for a second of the clock and returns the bytes.
func (c *line) second() (bytes int64) {
	end := c.now.Add(time.Second)
	for c.now.Before(end) {
		granted, retry := c.l.Reserve(c.now, 64<<10, c.size)
		if granted == 0 {
			c.now = c.now.Add(min(retry, end.Sub(c.now)))
			continue
		}
		used := max(granted/c.batch, 1) * c.batch
		c.now = c.now.Add(time.Millisecond)
		c.l.Settle(c.now, granted, used)
		bytes += used
	}
	return bytes
}

// TestRateIsChangedLive: 50, 200 and 20 MB/s, ten seconds each (C41): the first full second that begins 1 s after a change obeys the
// new rate, no second is above 1.2 times it beyond a batch, and ten seconds are off by at most 2 %.
func TestRateIsChangedLive(t *testing.T) {
	const batch = 64 << 10
	c := &line{now: time.Unix(1000, 0), batch: batch, size: 10 << 20}
	c.l = NewLimiter(c.now, 1_000_000)
	for _, rate := range []int64{50_000_000, 200_000_000, 20_000_000, 1_000_000} {
		c.l.SetRate(c.now, rate)
		c.second()
		var ten int64
		for s := range 10 {
			n := c.second()
			if n > rate*12/10+batch || n < rate*8/10-batch {
				t.Errorf("rate %d, second %d after the change: %d bytes", rate, s+2, n)
			}
			ten += n
		}
		if off := max(ten-10*rate, 10*rate-ten); off > max(rate/5, batch) {
			t.Errorf("rate %d: %d bytes in ten seconds", rate, ten)
		}
	}
}

// TestLargeResponsesUnderALowRate: responses of 10 MiB under 8 MB/s are cut to what the rate allows, so no second has a whole one (C78).
func TestLargeResponsesUnderALowRate(t *testing.T) {
	const rate, batch = 8_000_000, 1 << 20
	c := &line{now: time.Unix(1000, 0), batch: batch, size: 10 << 20}
	c.l = NewLimiter(c.now, rate)
	var ten int64
	for s := range 10 {
		n := c.second()
		if n > rate*12/10+batch {
			t.Errorf("second %d: %d bytes at a rate of %d", s, n, rate)
		}
		ten += n
	}
	if off := max(ten-10*rate, 10*rate-ten); off > 10*rate/50 {
		t.Errorf("%d bytes in ten seconds at a rate of %d", ten, rate)
	}
}

func TestUnlimited(t *testing.T) {
	now := time.Unix(1000, 0)
	l := NewLimiter(now, 50_000_000)
	l.SetRate(now, Unlimited)
	if granted, _ := l.Reserve(now, 1, 1<<40); granted != 1<<40 || l.Limited() {
		t.Errorf("unlimited grants %d", granted)
	}
	l.Settle(now, 1<<40, 0)
	l.SetRate(now, 1000)
	if granted, retry := l.Reserve(now, 100, 1<<20); granted != 0 || retry <= 0 {
		t.Errorf("a new limit begins with %d saved up", granted)
	}
}

// TestOneLargeBatchMakesADebt: 20 MiB at 5 MB/s are paid off before anything else comes (C78).
func TestOneLargeBatchMakesADebt(t *testing.T) {
	now := time.Unix(1000, 0)
	l := NewLimiter(now, 5_000_000)
	granted, _ := l.Reserve(now, 64<<10, 1<<20)
	l.Settle(now, granted, 20<<20)
	_, retry := l.Reserve(now, 64<<10, 1<<20)
	if retry < 4*time.Second || retry > 4300*time.Millisecond {
		t.Errorf("the debt is paid off after %s", retry)
	}
	now = now.Add(retry)
	if granted, _ := l.Reserve(now, 64<<10, 1<<20); granted < 64<<10-1 {
		t.Errorf("%d granted after the debt", granted)
	}
}

// TestWaitsAreBounded: a debt that a low rate would pay off in centuries is asked about again within a minute, and no number overflows.
func TestWaitsAreBounded(t *testing.T) {
	now := time.Unix(1000, 0)
	l := NewLimiter(now, 1)
	l.Settle(now, 0, 1<<60)
	for range 3 {
		granted, retry := l.Reserve(now, 1, 1<<20)
		if granted != 0 || retry <= 0 || retry > longestWait {
			t.Fatalf("%d granted, again after %s", granted, retry)
		}
		now = now.Add(retry)
	}
	l.SetRate(now, 1<<61)
	if granted, _ := l.Reserve(now.Add(time.Second), 1, 1<<20); granted != 1<<20 {
		t.Errorf("%d granted when the raised rate has paid the debt", granted)
	}
}

// TestRateIsSharedByWeight: several that share the limiter, with any delays between reservation and use, get something like what their weights say, and together
// the rate; one that is told to come back and never does holds nobody up. TestSharesAreFair says how much it is.
func TestRateIsSharedByWeight(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type user struct {
			weight  int
			rtt     time.Duration
			at      time.Time // when it acts next
			granted int64     // outstanding
			got     int64
		}
		rate := rapid.Int64Range(500_000, 20_000_000).Draw(t, "rate")
		start := time.Unix(1000, 0)
		l := NewLimiter(start, rate)
		l.ReserveFor(start, "gone", 100, 1<<30, 1<<30) // takes what was saved up
		l.ReserveFor(start, "gone", 100, 1<<30, 1<<30)
		var users []*user
		weights := int64(0)
		for range rapid.IntRange(2, 6).Draw(t, "users") {
			u := &user{weight: rapid.IntRange(1, 4).Draw(t, "weight"), rtt: time.Duration(rapid.IntRange(0, 20).Draw(t, "rtt ms")) * time.Millisecond, at: start}
			weights += int64(u.weight)
			users = append(users, u)
		}
		for {
			u := slices.MinFunc(users, func(a, b *user) int { return a.at.Compare(b.at) })
			now := u.at
			if now.Sub(start) > 10*time.Second {
				break
			}
			if u.granted > 0 {
				l.SettleFor(now, u, u.granted, u.granted)
				u.got += u.granted
			}
			var retry time.Duration
			if u.granted, retry = l.ReserveFor(now, u, u.weight, 64<<10, 10<<20); u.granted == 0 {
				u.at = now.Add(retry)
			} else {
				u.at = now.Add(u.rtt + time.Microsecond)
			}
		}
		var sum int64
		for _, u := range users {
			sum += u.got
		}
		if off := max(sum-10*rate, 10*rate-sum); off > rate/2 {
			t.Fatalf("%d bytes in 10 seconds at a rate of %d", sum, rate)
		}
		for _, u := range users {
			if want := sum * int64(u.weight) / weights; u.got < want/3 {
				t.Errorf("weight %d of %d got %d of %d bytes", u.weight, weights, u.got, sum)
			}
		}
	})
}
