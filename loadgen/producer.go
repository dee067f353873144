package loadgen

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// producer owns the partitions i, i+n, i+2n, ... or, with more producers than
// partitions, shares one. It has connections of its own.
type producer struct {
	l     *load
	links map[string]*link
	parts []int32
	seq   int // batches so far, the seed's share of this producer added
	count int // records of the batch that waits

	first time.Time // intended time of the first record of the batch
	due   time.Time // when the batch should go
	free  time.Time // when the last one was written

	next  int
	share float64
	head  []byte // of the request and of the batch, reused
	body  [2][]byte
}

// link is a connection with its unanswered requests, and what became of those before it.
type link struct {
	*conn
	slots  chan struct{}
	broken atomic.Int32 // connections lost since the last acknowledgement
}

// brokenPatience is how many connections in a row may be lost before the target counts as gone.
const brokenPatience = 3

func newProducer(l *load, i int) *producer {
	p := &producer{l: l, links: map[string]*link{}, share: 1 / float64(l.o.Producers), seq: i * 7}
	n := len(l.layout.leaders)
	for k := i % n; k < n; k += l.o.Producers {
		p.parts = append(p.parts, int32(k))
	}
	return p
}

func (p *producer) run(ctx context.Context, end time.Time) {
	rate := p.l.o.Rate.Records(p.l.o.RecordSize) * p.share
	if rate <= 0 {
		p.flatOut(ctx, end)
		return
	}
	linger, limit := p.l.o.Linger, p.l.payload.limit
	s := NewSchedule(p.l.start, rate)
	total := s.Due(end.Add(-1)) // records with an intended time before the end
	var k int64
	for !p.l.over(ctx) {
		now := time.Now()
		for due := min(s.Due(now), total); k < due; k++ {
			at := s.At(k)
			if p.count == 0 {
				p.first, p.due = at, at.Add(linger)
			}
			if p.count++; p.count < limit {
				continue
			}
			if p.due.After(at) {
				p.due = at // full before its time
			}
			if p.send(s.Step()); p.l.over(ctx) {
				k++
				break
			}
		}
		if p.count > 0 && (!time.Now().Before(p.due) || k >= total) {
			p.send(s.Step())
		}
		if k >= total && p.count == 0 {
			break
		}
		wait := time.Until(s.At(k))
		if p.count > 0 {
			wait = min(wait, time.Until(p.due))
		}
		if wait > 0 { // pacing against the schedule, the one legitimate use of a sleep
			time.Sleep(min(wait, 50*time.Millisecond))
		}
	}
	select {
	case <-p.l.ended:
		p.l.unsent.Add(total - k + int64(p.count))
	default: // done, or cancelled, and then what follows was not wanted
		if p.count > 0 {
			p.send(s.Step())
		}
	}
	p.l.inFlight.waitEmpty()
}

// flatOut keeps the in-flight budget full; intended is when it was sent.
func (p *producer) flatOut(ctx context.Context, end time.Time) {
	time.Sleep(time.Until(p.l.start)) // as long as the other producers need to get there
	for !p.l.over(ctx) {
		p.first = time.Now()
		if !p.first.Before(end) {
			break
		}
		p.count = p.l.payload.limit
		p.due = p.first
		p.send(0)
	}
	p.l.inFlight.waitEmpty()
}

// link is the connection to a leader. A lost one is replaced; a target that cannot be reached again ends the run.
func (p *producer) link(addr string) (*link, error) {
	k := p.links[addr]
	if k != nil && k.conn.broken() == nil {
		return k, nil
	}
	if k == nil {
		k = &link{}
		p.links[addr] = k
		limit := p.l.o.InFlight
		if limit == 0 && p.l.o.Rate.PerSecond > 0 {
			limit = pacedInFlight
		}
		if limit > 0 {
			k.slots = make(chan struct{}, limit)
		}
	} else if k.broken.Add(1) > brokenPatience {
		return nil, fmt.Errorf("the leader %s was lost %s into the run and loses every new connection: %w", addr, p.l.since(), k.conn.broken())
	}
	c, err := p.l.open(addr)
	switch {
	case err != nil && k.conn == nil:
		return nil, fmt.Errorf("cannot reach the leader %s: %w", addr, err)
	case err != nil:
		return nil, fmt.Errorf("the leader %s was lost %s into the run: %w; connecting again: %w", addr, p.l.since(), k.conn.broken(), err)
	}
	k.conn = c
	return k, nil
}

// send writes the batch that waits. Slips, late batches and refusals are counted, a lost target ends the run.
func (p *producer) send(step time.Duration) {
	l := p.l
	asked := time.Now()
	if late := asked.Sub(later(p.due, p.free)); !p.first.Before(l.from) {
		l.late.Record(max(0, late), 1)
	}
	part := p.parts[p.next%len(p.parts)]
	p.next++
	count, first := p.count, p.first
	p.count = 0
	k, err := p.link(l.layout.leaders[part])
	if err != nil {
		l.unsent.Add(int64(count))
		l.fail(err)
		return
	}
	p.seq++
	header, records, err := l.payload.batch(p.head[:0], p.seq, count, asked.UnixMilli())
	if err != nil {
		l.unsent.Add(int64(count))
		l.fail(err)
		return
	}
	size := len(header) + len(records)
	l.inFlight.take(int64(size))
	slots := k.slots
	if slots != nil {
		select {
		case slots <- struct{}{}:
		case <-l.halted:
			slots = nil
		}
	}
	header = appendProduceHead(header, l.layout.topic, part, l.o.Acks, size)
	p.head = header
	split := size - len(records) // the batch's header was made first, the request's goes first
	sent := time.Now()
	measured := !first.Before(l.from)
	if measured {
		l.slip.RecordSpaced(sent.Sub(first), -step, count)
	}
	done := func(body []byte, at time.Time, err error) {
		base := int64(-1)
		if err == nil && l.o.Acks != 0 {
			base, err = parseProduce(body)
		}
		defer func() {
			if slots != nil {
				<-slots
			}
			l.inFlight.give(int64(size))
		}()
		if err != nil {
			l.refused(err)
			return
		}
		k.broken.Store(0)
		l.answered(&ackedBatch{part, base, count, size, first, sent, at, step, measured})
	}
	p.body[0], p.body[1] = header[split:], header[:split]
	k.send(0, produceVersion, false, [][]byte{p.body[0], p.body[1], records}, l.o.Acks != 0, done)
	p.free = time.Now()
	l.sent.Add(int64(count))
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// refused counts a write that failed; a final answer ends the run.
func (l *load) refused(err error) {
	l.errors.Add(1)
	l.lastErr.Store(err.Error())
	var k *kerr.Error
	if errors.As(err, &k) && !k.Retriable {
		l.fail(fmt.Errorf("topic %s: %w", l.layout.topic, err)) // it will not get better
	}
}

// ackedBatch is a batch with its times.
type ackedBatch struct {
	part            int32
	base            int64
	count, size     int
	first, sent, at time.Time
	step            time.Duration
	measured        bool
}

func (l *load) answered(b *ackedBatch) {
	if l.o.Acked != nil && l.o.Acks != 0 {
		l.o.Acked(b.part, b.base, b.count, b.size, b.at)
	}
	l.acked.Add(int64(b.size))
	if l.onAck != nil {
		l.onAck(b.part, b.base, b.count, b.first, b.step)
	}
	if !b.measured {
		return
	}
	l.response.RecordSpaced(b.at.Sub(b.first), -b.step, b.count)
	l.service.Record(b.at.Sub(b.sent), int64(b.count))
	l.records.Add(int64(b.count))
	l.bytes.Add(int64(b.count * l.o.RecordSize))
	l.wire.Add(int64(b.size))
	for at := int64(b.at.Sub(l.from)); ; {
		old := l.last.Load()
		if at <= old || l.last.CompareAndSwap(old, at) {
			break
		}
	}
}
