package broker

import (
	"sync"
	"time"

	"stet/broker/mirror"
)

// counts are the counters of a partition, in the order of counted.
type counts [6]int64

func counted(p *mirror.PartitionStatus) counts {
	return counts{p.InBytes, p.InBatches, p.Retries, p.GapRecords, p.CutRecords, p.EpochBumps}
}

func (c counts) into(p *mirror.PartitionStatus) {
	p.InBytes, p.InBatches, p.Retries, p.GapRecords, p.CutRecords, p.EpochBumps = c[0], c[1], c[2], c[3], c[4], c[5]
}

// mirrorTotals makes counters that never go back (SPEC section 13) of those that drivers keep: a driver that is
// replaced begins at zero, and what partitions beyond the limit have counted stays in the sum of their mirror
// when they are gone, or have series of their own.
type mirrorTotals struct {
	mu    sync.Mutex
	parts map[totalsKey]*partitionTotal
	other map[string]counts // by mirror
}

type totalsKey struct {
	mirror, topic string
	partition     int32
}

type partitionTotal struct {
	last, total counts
	seen        time.Time
}

// absent is how long the total of a partition that is gone is kept: its driver may be on the way to a new one.
const absent = 10 * time.Minute

func newMirrorTotals() *mirrorTotals {
	return &mirrorTotals{parts: map[totalsKey]*partitionTotal{}, other: map[string]counts{}}
}

// update replaces the counters of p by totals; beyond says that they belong to the sum of the mirror. The lock is held.
func (t *mirrorTotals) update(p *mirror.PartitionStatus, beyond bool, now time.Time) {
	key := totalsKey{p.Mirror, p.Topic, p.Partition}
	x := t.parts[key]
	if x == nil {
		x = &partitionTotal{}
		t.parts[key] = x
	}
	x.seen = now
	current, sum := counted(p), t.other[p.Mirror]
	for i, v := range current {
		d := v - x.last[i]
		if d < 0 { // another driver
			d = v
		}
		x.total[i] += d
		sum[i] += d
	}
	x.last = current
	if beyond {
		t.other[p.Mirror] = sum
	}
	x.total.into(p)
}

// forget drops partitions that are gone for good, and mirrors that are not in the list. The lock is held.
func (t *mirrorTotals) forget(mirrors map[string]bool, now time.Time) {
	for key, x := range t.parts {
		if now.Sub(x.seen) > absent {
			delete(t.parts, key)
		}
	}
	for name := range t.other {
		if !mirrors[name] {
			delete(t.other, name)
		}
	}
}
