package mirror

import (
	"context"
	"fmt"
	"time"

	"stet/broker/mirror/mirrorstate"
	"stet/broker/mirrormsg"
	"stet/fetcher/source"
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
	retention time.Duration // delete.retention.ms
	lag       *lag
	now       func() time.Time
	kept      time.Time // when the time of being at the source's end was last asked to be stored
}

// keepAfter is how old the stored time of being at the source's end may become: a restart must not look like a long absence.
func (u *unseen) keepAfter() time.Duration { return max(u.retention/4, 30*time.Second) }

// check looks at batches that are about to be appended at end.
func (u *unseen) check(end int64, batches []byte) error {
	caught := u.lag.caughtUp()
	if caught.IsZero() {
		return nil
	}
	away := u.now().Sub(caught)
	if away <= u.retention {
		return nil
	}
	for rest := batches; len(rest) > 0; {
		b, after, err := batch.Next(rest)
		if err != nil {
			return err
		}
		if b.BaseOffset() > end || b.NumRecords() <= b.LastOffsetDelta() {
			return &missedError{fmt.Sprintf("the copy was away from the source's end for %s, longer than delete.retention.ms (%s), and compaction has removed records at offset %d meanwhile: tombstones may be among them",
				away.Round(time.Millisecond), u.retention, end)}
		}
		end, rest = b.NextOffset(), after
	}
	return nil
}

// unended is a transaction that is open here and not at the source.
type unended struct {
	producer, first int64
	token           uint64 // of the assignment that found it
}

// findUnended looks, in a copy that is at the source's high watermark, for a transaction that is still open although the source's last
// stable offset is beyond it: its marker has been compacted away.
func findUnended(part Partition, sourceLSO int64) (unended, bool) {
	for _, t := range part.OpenTransactions() {
		if t.FirstOffset < sourceLSO {
			return unended{producer: t.ProducerID, first: t.FirstOffset}, true
		}
	}
	return unended{}, false
}

// endOf copies the log again on account of such a transaction, once.
func (d *driver) endOf(ctx context.Context, t unended) error {
	t.token = 0
	why := fmt.Sprintf("the transaction of producer %d from offset %d is open here and not at the source, whose high watermark the copy has reached: its marker was compacted away", t.producer, t.first)
	if t == d.copiedFor {
		return operator(fmt.Errorf("%s; a full copy has not changed that: the source has the transaction's records but no marker", why))
	}
	d.copiedFor = t
	return d.fullCopy(ctx, why)
}

// fullCopy empties the log and copies it again from the source's start, or fails, by mirror.on.gap. Until it is
// written down that the copy has begun, the log still shows why it is needed.
func (d *driver) fullCopy(ctx context.Context, why string) error {
	up := d.m.upstream(d.in.mirror)
	if up == nil {
		return errSuperseded
	}
	if up.failOnGap() {
		return operator(fmt.Errorf("%s; mirror.on.gap is fail", why))
	}
	p, err := d.ledPartition(ctx, 0)
	if err != nil {
		return err
	}
	first, err := up.offset(ctx, p, d.topic, source.Earliest)
	if err != nil {
		return err
	}
	start, end := d.part.LogStartOffset(), d.part.LogEndOffset()
	d.log.Warn("mirror partition is copied again from the source's start", "mirror", d.in.mirror, "reason", why)
	if err := d.part.TruncateFullyAndStartAt(first); err != nil {
		return fmt.Errorf("emptying the log to copy it again from offset %d: %w", first, err)
	}
	d.lag.forgetCaughtUp()
	if err := d.write(mirrorstate.Mirroring, func(r *mirrormsg.PartitionState) {
		r.CaughtUpMs = -1
		d.noteEvent(r, EventFullCopy, start, end)
	}); err != nil {
		return err
	}
	if err := d.waitReplicas(ctx, false); err != nil {
		return err
	}
	return d.assign(ctx)
}
