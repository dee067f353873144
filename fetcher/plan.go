package fetcher

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"stet/zerocopy/batch"
	"stet/zerocopy/frame"
)

// ErrZeroProgress says that a source answered with records but without one whole batch in the whole
// response, which the protocol rules out (KIP-74).
var ErrZeroProgress = errors.New("the source sent records, but not one whole batch")

// nearEpochs is how close to the local leader epoch an appended epoch may come before a bump is asked for (SPEC 4.2).
const nearEpochs = 3

// plan is what one partition of a response amounts to.
type plan struct {
	p       *partition
	records []byte // whole batches with good headers
	first   int64  // the log end before them
	next    int64  // and after them
	obs     Observation
	empty   bool // the log was empty: the first batch may begin below its start
	// stop halts the partition once records are appended.
	stop  Event
	halts bool
}

// plan walks a response, checks all batch headers and moves the partitions' next offsets. Errors are of the
// connection; those of partitions become events.
func (l *loop) plan(body []byte, now time.Time) error {
	defer func() {
		var used int64
		for i := range l.plans {
			used += int64(len(l.plans[i].records))
		}
		l.settle(now, used)
	}()
	clear(l.plans)
	l.plans = l.plans[:0]
	w := &l.walker
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := w.Reset(body, l.req.Version); err != nil {
		return err
	}
	if w.ErrorCode != 0 {
		if sessionError(w.ErrorCode) && l.session.epoch != 0 {
			l.session.reset()
			return nil
		}
		return fmt.Errorf("fetch from broker %d: %w", l.key.broker, kerr.ErrorForCode(w.ErrorCode))
	}
	l.session.answered(w.SessionID)
	l.covered = now
	var fp frame.FetchPartition
	some, whole := false, false
	for w.Next(&fp) {
		if len(fp.Records) > 0 {
			some = true
			whole = whole || len(fp.Records) >= batch.LogOverhead && batch.SizeOf(fp.Records) <= int64(len(fp.Records))
		}
		if p := l.find(&fp); p != nil {
			l.planPartition(p, &fp, now)
		} else {
			l.m.o.Counters.IgnoredBytes.Add(int64(len(fp.Records)))
		}
	}
	if err := w.Err(); err != nil {
		return err
	}
	l.endpoints()
	if some && !whole {
		return fmt.Errorf("broker %d: %w", l.key.broker, ErrZeroProgress)
	}
	return nil
}

// find returns the partition if this response is one to its present request.
func (l *loop) find(fp *frame.FetchPartition) *partition {
	var t *topic
	if l.req.Version >= topicIDsFrom {
		t = l.byID[fp.TopicID]
	} else {
		t = l.byName[string(fp.Topic)]
	}
	if t == nil {
		return nil
	}
	p := t.partitions[fp.Partition]
	if p == nil || !p.inRequest || p.sent != p.next {
		return nil
	}
	return p
}

func (l *loop) planPartition(p *partition, fp *frame.FetchPartition, now time.Time) {
	p.covered = now
	if fp.ErrorCode != 0 {
		l.planError(p, fp, now)
		return
	}
	if fp.DivergingEpoch.EndOffset >= 0 || fp.DivergingEpoch.Epoch >= 0 {
		e := p.event(EventDiverging, l.mirror)
		e.Epoch, e.Offset = fp.DivergingEpoch.Epoch, fp.DivergingEpoch.EndOffset
		e.Err = fmt.Errorf("the source ends epoch %d at offset %d, the local log is at %d with epoch %d", e.Epoch, e.Offset, p.next, p.epoch)
		l.stop(p, e)
		return
	}
	pl := plan{
		p: p, first: p.next, next: p.next,
		obs: Observation{HighWatermark: fp.HighWatermark, LastStableOffset: fp.LastStableOffset, LogStartOffset: fp.LogStartOffset, At: now},
	}
	l.planRecords(&pl, fp.Records)
	l.plans = append(l.plans, pl)
	if pl.halts {
		l.halt(p)
	}
	if pl.next != p.next {
		p.bytes += int64(len(pl.records))
		p.next = pl.next
		l.touch(p)
	}
}

// planRecords checks the headers of all whole batches. The batches before a bad one are good.
func (l *loop) planRecords(pl *plan, records []byte) {
	if len(records) == 0 {
		return
	}
	p := pl.p
	dle := p.sink.LeaderEpoch()
	pl.empty = p.sink.LogStartOffset() == p.sink.LogEndOffset()
	rest := records
	good := 0
	for len(rest) > 0 {
		b, after, err := batch.Next(rest)
		if errors.Is(err, batch.ErrIncomplete) {
			l.m.o.Counters.CutBytes.Add(int64(len(rest)))
			break
		}
		if err == nil {
			err = checkOrder(b, pl.next, pl.empty && good == 0)
		}
		if err != nil {
			e := p.event(EventCorrupt, l.mirror)
			e.Offset, e.Err = pl.next, fmt.Errorf("source broker %d, at offset %d: %w", l.key.broker, pl.next, err)
			pl.stop, pl.halts = e, true
			break
		}
		if epoch := b.PartitionLeaderEpoch(); epoch > dle {
			e := p.event(EventEpochAhead, l.mirror)
			e.Offset, e.Epoch = b.BaseOffset(), epoch
			e.Err = fmt.Errorf("the source's epoch %d at offset %d is above the local leader epoch %d", epoch, e.Offset, dle)
			pl.stop, pl.halts = e, true
			break
		}
		good += len(b)
		pl.next = b.NextOffset()
		p.epoch = max(p.epoch, b.PartitionLeaderEpoch())
		rest = after
	}
	pl.records = records[:good:good]
	if good > 0 && p.epoch > dle-nearEpochs && p.near != dle {
		p.near = dle
		e := p.event(EventEpochNear, l.mirror)
		e.Epoch = p.epoch
		l.events = append(l.events, e)
	}
}

// checkOrder checks a batch's header and its place after next. Gaps are legal (compaction, transactions
// without data); only the first batch of an empty log may begin below the start that lies inside it.
func checkOrder(b batch.Batch, next int64, first bool) error {
	if err := b.CheckHeader(); err != nil {
		return err
	}
	if b.BaseOffset() < next && (!first || b.NextOffset() <= next) {
		return fmt.Errorf("%w: base offset %d is below the log end", batch.ErrCorrupt, b.BaseOffset())
	}
	return nil
}

// stop halts p with an event. The lock is held.
func (l *loop) stop(p *partition, e Event) {
	l.halt(p)
	l.events = append(l.events, e)
}

func (l *loop) planError(p *partition, fp *frame.FetchPartition, now time.Time) {
	err := kerr.ErrorForCode(fp.ErrorCode)
	e := p.event(EventRetry, l.mirror)
	e.Offset = p.next
	e.Err = fmt.Errorf("source broker %d: %w", l.key.broker, err)
	switch fp.ErrorCode {
	case kerr.OffsetOutOfRange.Code:
		e.Kind = EventOutOfRange
	case kerr.NotLeaderForPartition.Code, kerr.FencedLeaderEpoch.Code, kerr.UnknownLeaderEpoch.Code, kerr.LeaderNotAvailable.Code, kerr.ReplicaNotAvailable.Code:
		e.Kind = EventLeader
		e.Leader, e.Epoch = fp.CurrentLeader.ID, fp.CurrentLeader.Epoch
	case kerr.UnknownTopicOrPartition.Code, kerr.UnknownTopicID.Code, kerr.InconsistentTopicID.Code:
		e.Kind = EventTopic
	case kerr.TopicAuthorizationFailed.Code, kerr.ClusterAuthorizationFailed.Code:
		e.Kind = EventUnauthorized
	default:
		l.pause(p, now.Add(jitter(l.config.Backoff)))
		l.events = append(l.events, e)
		return
	}
	l.stop(p, e)
}

// endpoints completes leader events from the list at the end of the response.
func (l *loop) endpoints() {
	for i := range l.events {
		e := &l.events[i]
		if e.Kind != EventLeader || e.Leader < 0 {
			continue
		}
		if ep, ok := l.walker.Endpoint(e.Leader); ok {
			e.Host, e.Port = string(ep.Host), ep.Port
		}
	}
}
