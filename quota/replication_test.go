package quota

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// follower is a model of a partition's replication: a log of batches of one size that never ends.
type follower struct {
	part  Part
	batch int64
	last  int64 // bytes in the last response
	got   int64
	left  int // times that it was left out
}

// answer is what a leader reads: whole batches up to the limit of each part, and, so that there is progress at all, one
// larger batch if it is the first of the response (KIP-74).
func answer(fs []*follower) (held, inSync int64) {
	empty := true
	for _, f := range fs {
		if f.last = 0; f.part.Limit == 0 {
			f.left++
			continue
		}
		n := f.part.Limit / f.batch * f.batch
		if n == 0 && empty {
			n = f.batch
		}
		empty = empty && n == 0
		f.last = n
		f.got += n
		switch {
		case f.part.held():
			held += n
		case f.part.Listed:
			inSync += n
		}
	}
	return held, inSync
}

// replicate fetches for the partitions from one leader until the clock says end, and counts what listed partitions got per
// second of it. rtt is between Admit and Done on the follower's side, 0 on the leader's, which reads at once.
func replicate(t *rapid.T, r *Replication, fs []*follower, start time.Time, d, rtt, pause time.Duration) []int64 {
	perSecond := make([]int64, int(d/time.Second)+2)
	now := start
	for now.Sub(start) < d {
		parts := make([]Part, len(fs))
		for i, f := range fs {
			parts[i] = f.part
		}
		granted, retry := r.Admit(now, parts)
		some := false
		var sum int64
		for i, f := range fs {
			f.part.Limit = parts[i].Limit
			some = some || f.part.Limit > 0
			if f.part.held() {
				sum += f.part.Limit
			} else if f.part.Limit != f.part.Max {
				t.Fatalf("a partition that is not to be held back may carry %d of %d bytes", f.part.Limit, f.part.Max)
			}
		}
		if sum != granted {
			t.Fatalf("%d bytes granted, %d allotted", granted, sum)
		}
		if !some {
			if retry <= 0 {
				t.Fatal("everything is left out, and there is nothing to wait for")
			}
			now = now.Add(retry)
			continue
		}
		now = now.Add(rtt)
		held, inSync := answer(fs)
		r.Done(now, granted, held, inSync)
		if s := int(now.Sub(start) / time.Second); s < len(perSecond) {
			perSecond[s] += held + inSync
		}
		now = now.Add(pause)
		slices.SortStableFunc(fs, func(a, b *follower) int { // who was served goes to the end, as in a fetch session
			return cmp.Compare(min(a.last, 1), min(b.last, 1))
		})
	}
	return perSecond
}

// TestReplicationThrottleKeepsTheRate: on either side, whatever the batches, partitions and delays, the listed partitions that are not in
// sync get the rate over ten seconds (at most 2 % or one batch off), no second above 1.2 times beyond one batch, each of them
// something, and everybody else is never held back.
func TestReplicationThrottleKeepsTheRate(t *testing.T) {
	for _, side := range []string{"leader", "follower"} {
		t.Run(side, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				rate := rapid.Int64Range(100_000, 25_000_000).Draw(t, "rate") // half of what one fetch of 1 MiB per 20 ms carries
				rtt := time.Duration(0)
				if side == "follower" {
					rtt = time.Duration(rapid.Int64Range(0, 20).Draw(t, "rtt ms")) * time.Millisecond
				}
				var largest int64
				var fs []*follower
				for range rapid.IntRange(1, 6).Draw(t, "held back") {
					f := &follower{part: Part{Listed: true, Max: 1 << 20}, batch: rapid.Int64Range(200, 1<<20).Draw(t, "batch")}
					largest = max(largest, f.batch)
					fs = append(fs, f)
				}
				free := &follower{part: Part{Max: 1 << 20}, batch: 1000}
				if rapid.Bool().Draw(t, "a free one") {
					fs = append(fs, free)
				}
				start := time.Unix(1000, 0)
				r := NewReplication(start, rate)
				perSecond := replicate(t, r, append([]*follower(nil), fs...), start, 12*time.Second, rtt, time.Millisecond)
				var ten int64
				for s := 1; s <= 10; s++ { // the first one has the burst that was saved up
					ten += perSecond[s]
					if perSecond[s]-rate*12/10 > largest {
						t.Fatalf("second %d: %d bytes at a rate of %d, batches up to %d", s, perSecond[s], rate, largest)
					}
				}
				off := max(ten-10*rate, 10*rate-ten)
				if limit := max(rate/5, largest); off > limit {
					t.Fatalf("%d bytes in ten seconds at a rate of %d: %d off, allowed %d", ten, rate, off, limit)
				}
				for _, f := range fs {
					if f.got == 0 && 10*rate > 4*largest*int64(len(fs)) {
						t.Fatalf("a partition with batches of %d got nothing", f.batch)
					}
				}
				if free.left > 0 {
					t.Fatalf("the free partition was left out %d times", free.left)
				}
			})
		})
	}
}

// TestInSyncReplicasCountAndAreNeverHeldBack is Apache Kafka's rule: a listed replica that is in sync goes through, and what it
// takes the others do not get; but not for ever, once it is quiet.
func TestInSyncReplicasCountAndAreNeverHeldBack(t *testing.T) {
	start := time.Unix(1000, 0)
	const rate = 1_000_000
	r := NewReplication(start, rate)
	now := start
	var held int64
	parts := []Part{{Listed: true, Max: 1 << 20}, {Listed: true, InSync: true, Max: 1 << 20}}
	for now.Sub(start) < 60*time.Second { // twice the rate, in sync
		granted, _ := r.Admit(now, parts)
		if parts[1].Limit != 1<<20 {
			t.Fatalf("a replica in sync may carry %d bytes", parts[1].Limit)
		}
		if now.Sub(start) > time.Second {
			held += granted
		}
		now = now.Add(10 * time.Millisecond)
		r.Done(now, granted, granted, 2*rate/100)
	}
	if held > rate/10 {
		t.Errorf("%d bytes of a replica that is not in sync beside twice the rate of one that is", held)
	}
	_, retry := r.Admit(now, parts[:1])
	if retry <= 0 || retry > (longestDebt+1)*time.Second {
		t.Errorf("the debt is paid off after %s", retry)
	}
}

// TestReplicationRates: unlimited, changed while it runs, and 0, which Apache Kafka allows and which stops what is held back.
func TestReplicationRates(t *testing.T) {
	now := time.Unix(1000, 0)
	r := NewReplication(now, Unlimited)
	parts := []Part{{Listed: true, Max: 1 << 20}, {Max: 5}}
	if granted, retry := r.Admit(now, parts); granted != 1<<20 || retry != 0 || parts[0].Limit != 1<<20 || parts[1].Limit != 5 {
		t.Errorf("unlimited: %d, %s, %+v", granted, retry, parts)
	}
	r.Done(now, 1<<20, 1<<20, 1<<40)
	r.SetRate(now, 0)
	for range 3 {
		now = now.Add(time.Hour)
		if granted, retry := r.Admit(now, parts[:1]); granted != 0 || retry <= 0 || parts[0].Limit != 0 {
			t.Errorf("rate 0: %d, %s, %+v", granted, retry, parts)
		}
		if _, retry := r.Admit(now, parts); retry != 0 || parts[1].Limit != 5 {
			t.Errorf("rate 0 holds a free partition back: %+v", parts)
		}
	}
	r.SetRate(now, 1000)
	now = now.Add(time.Second)
	if granted, _ := r.Admit(now, parts[:1]); granted < 99 || granted > 100 {
		t.Errorf("%d bytes after a second of 1000 bytes/s: a burst is a tenth of it", granted)
	}
	if granted, retry := r.Admit(now, nil); granted != 0 || retry != 0 {
		t.Errorf("nothing asked for: %d, %s", granted, retry)
	}
}
