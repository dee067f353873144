package mirror

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"stet/broker/mirrormsg"
	"stet/zerocopy/batch"
)

// missedError says that the source's cleaner may have removed, before they were copied, tombstones or markers that the copy
// needs: something that they end lives on here (SPEC section 5, C69).
type missedError struct{ what string }

func (e *missedError) Error() string { return e.what }

// unseen finds that out for the copy of a compacted topic. Away from the source's end for longer than delete.retention.ms
// is no harm by itself: only where records are gone from what was written meanwhile may a tombstone have been among them.
// What is gone is seen before it is appended, so a crash does not hide it. A copy that was never at the end is in
// the place of a consumer that begins at offset 0, for which Kafka promises no more.
type unseen struct {
	retention func() time.Duration // delete.retention.ms as it is now
	known     atomic.Int64         // its value a while ago: most appends do not need to know it exactly
	lag       *lag
	now       func() time.Time
	keep      bool      // no time of being at the source's end was ever stored
	kept      time.Time // of the Manager's goroutine: what was last asked to be stored
}

// check looks at batches that are about to be appended at end.
func (u *unseen) check(end int64, batches []byte) error {
	caught := u.lag.caughtUp()
	if caught.IsZero() {
		return nil
	}
	away := u.now().Sub(caught)
	if away <= time.Duration(u.known.Load()) {
		return nil
	}
	for rest := batches; len(rest) > 0; {
		b, after, err := batch.Next(rest)
		if err != nil {
			return err
		}
		if b.BaseOffset() > end || b.NumRecords() <= b.LastOffsetDelta() {
			retention := u.retention()
			if away <= retention {
				return nil
			}
			return &missedError{fmt.Sprintf("the copy was away from the source's end for %s, longer than delete.retention.ms (%s), and compaction has removed records at offset %d meanwhile: tombstones may be among them",
				away.Round(time.Millisecond), retention, end)}
		}
		end, rest = b.NextOffset(), after
	}
	return nil
}

// unended is a transaction that is open here and not at the source.
type unended struct{ producer, first int64 }

// findUnended looks, in a copy that is at the source's high watermark, for a transaction that is still open although the source's last
// stable offset is beyond it: its marker has been compacted away.
func findUnended(part Partition, sourceLSO int64) (unended, bool) {
	for _, t := range part.OpenTransactions() {
		if t.FirstOffset < sourceLSO {
			return unended{t.ProducerID, t.FirstOffset}, true
		}
	}
	return unended{}, false
}

// suspected asks the source a second time: a broker that takes its high watermark and its last stable offset one after the
// other may see a marker in between, and then one answer is no proof. If a second one, of another assignment, which covers such a
// marker, says the same, the log is copied again, once.
func (d *driver) suspected(ctx context.Context, t unended) error {
	if t != d.suspect {
		d.suspect = t
		return d.assign(ctx)
	}
	why := fmt.Sprintf("the transaction of producer %d from offset %d is open here and not at the source, whose high watermark the copy has reached: its marker was compacted away", t.producer, t.first)
	if t == d.copiedFor {
		return operator(fmt.Errorf("%s; a full copy has not changed that: the source has the transaction's records but no marker", why))
	}
	d.copiedFor = t
	return d.fullCopy(why)
}

// fullCopy empties the log and copies it again from the source's start, or fails, by mirror.on.gap. It is a cut to the log's start
// that ULE_RECOVERY makes, so a crash does not end it half-way, consumers check their positions, and mirrors of this copy follow.
func (d *driver) fullCopy(why string) error {
	up := d.m.upstream(d.in.mirror)
	if up == nil {
		return errSuperseded
	}
	if up.failOnGap() {
		return operator(fmt.Errorf("%s; mirror.on.gap is fail", why))
	}
	d.log.Warn("mirror partition is copied again from the source's start", "mirror", d.in.mirror, "reason", why)
	start, end := d.part.LogStartOffset(), d.part.LogEndOffset()
	return d.followWith(start, end, func(r *mirrormsg.PartitionState) { d.noteEvent(r, EventFullCopy, start, end) })
}

// keepEvery is how often Manager.keepCaughtUp looks.
const keepEvery = 30 * time.Second

// keepCaughtUp notes that idle copies of compacted topics are at the source's end, of which a fetch session says nothing, and stores
// the time now and then, so that a restart does not look like a long absence.
func (m *Manager) keepCaughtUp() {
	now := m.o.Clock.Now()
	for _, d := range m.selectDrivers(func(d *driver) bool { return d.unseen.Load() != nil }) {
		seen := d.lag.now(d.part.LogEndOffset(), now)
		u := d.unseen.Load()
		if u == nil {
			continue
		}
		u.known.Store(int64(u.retention()))
		if seen.records != 0 {
			continue
		}
		at := m.covered(d, seen)
		d.lag.wasCaughtUp(at)
		if at.Sub(u.kept) > max(u.retention()/4, keepEvery) {
			u.kept = at
			d.post(func(b *mailbox) { b.keep = true })
		}
	}
}
