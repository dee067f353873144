package loadgen

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// produceVersion is flexible-free, says why a write is refused, and is known since Kafka 2.4.
const produceVersion = 8

// maxInFlight bounds the bytes that wait for acknowledgements; a target that
// stalls longer than this lasts makes slip, never a skipped slot.
const maxInFlight = 256 << 20

// load is one run of producers against one topic.
type load struct {
	o      Options
	t      *target
	layout *layout

	response, service, slip *Recorder
	records, bytes          atomic.Int64 // acknowledged after the warm-up
	wire                    atomic.Int64 // batch bytes of the same
	acked                   atomic.Int64 // batch bytes from the first one on
	errors                  atomic.Int64
	lastErr                 atomic.Value
	refused                 atomic.Pointer[error] // the first final answer, which ends the run
	inFlight                *budget
	// onAck, if set, is told of every acknowledged batch with the intended time of its first record and the step to the next.
	onAck func(partition int32, base int64, records int, first time.Time, step time.Duration)
	from  time.Time // measured from here
}

// budget is a counting limit of bytes in flight.
type budget struct {
	mu    sync.Mutex
	cond  *sync.Cond
	used  int64
	limit int64
}

func newBudget(limit int64) *budget {
	b := &budget{limit: limit}
	b.cond = sync.NewCond(&b.mu)
	return b
}

func (b *budget) take(n int64) {
	b.mu.Lock()
	for b.used > 0 && b.used+n > b.limit {
		b.cond.Wait()
	}
	b.used += n
	b.mu.Unlock()
}

func (b *budget) give(n int64) {
	b.mu.Lock()
	b.used -= n
	b.mu.Unlock()
	b.cond.Broadcast()
}

func (b *budget) waitEmpty() {
	b.mu.Lock()
	for b.used > 0 {
		b.cond.Wait()
	}
	b.mu.Unlock()
}

func newLoad(t *target, l *layout, o Options) *load {
	return &load{o: o, t: t, layout: l, response: NewRecorder(), service: NewRecorder(), slip: NewRecorder(), inFlight: newBudget(maxInFlight)}
}

// run produces until the duration is over or ctx ends, and waits for the acknowledgements.
func (l *load) run(ctx context.Context) error {
	start := time.Now().Add(20 * time.Millisecond)
	l.from = start.Add(l.o.Warmup)
	end := l.from.Add(l.o.Duration)
	var wg sync.WaitGroup
	errs := make([]error, l.o.Producers)
	for i := range l.o.Producers {
		p, err := newProducer(l, i)
		if err != nil {
			return err
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			errs[i] = p.run(ctx, start, end)
		}()
	}
	wg.Wait()
	if err := l.refused.Load(); err != nil {
		return fmt.Errorf("topic %s: %w", l.layout.topic, *err)
	}
	return errors.Join(errs...)
}

// producer owns the partitions i, i+n, i+2n, ... or, with more producers than
// partitions, shares one. It has connections of its own.
type producer struct {
	l       *load
	conns   map[string]*conn
	parts   []int32
	builder *batchBuilder
	first   time.Time // intended time of the first record in the builder
	opened  time.Time
	next    int
	limit   int // records per batch
	share   float64
}

func newProducer(l *load, i int) (*producer, error) {
	codec, err := newCodec(l.o.Compression)
	if err != nil {
		return nil, err
	}
	p := &producer{l: l, conns: map[string]*conn{}, builder: newBatchBuilder(codec, l.o.RecordSize, l.o.Seed+uint64(i)), share: 1 / float64(l.o.Producers)}
	n := len(l.layout.leaders)
	for k := i % n; k < n; k += l.o.Producers {
		p.parts = append(p.parts, int32(k))
	}
	p.limit = max(1, l.o.BatchSize/p.builder.recordBytes())
	return p, nil
}

func (p *producer) run(ctx context.Context, start, end time.Time) error {
	defer p.close()
	rate := p.l.o.Rate.Records(p.l.o.RecordSize) * p.share
	if rate <= 0 {
		return p.flatOut(ctx, end)
	}
	s := NewSchedule(start, rate)
	var k int64
	for ctx.Err() == nil && p.l.refused.Load() == nil {
		now := time.Now()
		for due := s.Due(now); k < due; k++ {
			at := s.At(k)
			if !at.Before(end) {
				return p.finish(s.Step())
			}
			if p.builder.count == 0 {
				p.first, p.opened = at, at
			}
			p.builder.add()
			if p.builder.count >= p.limit {
				if err := p.send(s.Step()); err != nil {
					return err
				}
			}
		}
		if p.builder.count > 0 && time.Since(p.opened) >= p.l.o.Linger {
			if err := p.send(s.Step()); err != nil {
				return err
			}
		}
		wait := time.Until(s.At(k))
		if p.builder.count > 0 {
			wait = min(wait, time.Until(p.opened.Add(p.l.o.Linger)))
		}
		if wait > 0 { // pacing against the schedule, the one legitimate use of a sleep
			time.Sleep(min(wait, 50*time.Millisecond))
		}
	}
	return p.finish(s.Step())
}

// flatOut keeps the in-flight budget full; intended is when it was sent.
func (p *producer) flatOut(ctx context.Context, end time.Time) error {
	for ctx.Err() == nil && p.l.refused.Load() == nil && time.Now().Before(end) {
		p.first = time.Now()
		for p.builder.count < p.limit {
			p.builder.add()
		}
		if err := p.send(0); err != nil {
			return err
		}
	}
	return p.finish(0)
}

func (p *producer) finish(step time.Duration) error {
	if p.builder.count > 0 {
		if err := p.send(step); err != nil {
			return err
		}
	}
	p.l.inFlight.waitEmpty()
	return nil
}

func (p *producer) close() {
	for _, c := range p.conns {
		c.close()
	}
}

func (p *producer) conn(addr string) (*conn, error) {
	if c := p.conns[addr]; c != nil {
		return c, nil
	}
	c, err := dial(addr)
	if err != nil {
		return nil, fmt.Errorf("cannot reach the leader %s: %w", addr, err)
	}
	p.conns[addr] = c
	return c, nil
}

func (p *producer) send(step time.Duration) error {
	l := p.l
	part := p.parts[p.next%len(p.parts)]
	p.next++
	count, first := p.builder.count, p.first
	batch, err := p.builder.finish(nil, time.Now().UnixMilli())
	if err != nil {
		return err
	}
	size := int64(len(batch))
	l.inFlight.take(size)
	c, err := p.conn(l.layout.leaders[part])
	if err != nil {
		l.inFlight.give(size)
		return err
	}
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
		if err != nil {
			l.errors.Add(1)
			l.lastErr.Store(err.Error())
			var k *kerr.Error
			if errors.As(err, &k) && !k.Retriable {
				l.refused.CompareAndSwap(nil, &err) // it will not get better
			}
			l.inFlight.give(size)
			return
		}
		if l.o.Acked != nil && l.o.Acks != 0 {
			l.o.Acked(part, base, count, int(size), at)
		}
		l.acked.Add(size)
		if l.onAck != nil {
			l.onAck(part, base, count, first, step)
		}
		if measured {
			l.response.RecordSpaced(at.Sub(first), -step, count)
			l.service.Record(at.Sub(sent), int64(count))
			l.records.Add(int64(count))
			l.bytes.Add(int64(count * l.o.RecordSize))
			l.wire.Add(size)
		}
		l.inFlight.give(size)
	}
	c.send(0, produceVersion, false, [][]byte{produceHead(l.layout.topic, part, l.o.Acks, len(batch)), batch}, l.o.Acks != 0, done)
	return nil
}

// produceHead is what precedes the one batch of a Produce body.
func produceHead(topic string, part int32, acks int16, size int) []byte {
	be := binary.BigEndian
	b := be.AppendUint16(nil, 0xffff) // no transactional id
	b = be.AppendUint16(b, uint16(acks))
	b = be.AppendUint32(b, 30000)
	b = be.AppendUint32(b, 1)
	b = be.AppendUint16(b, uint16(len(topic)))
	b = append(b, topic...)
	b = be.AppendUint32(b, 1)
	b = be.AppendUint32(b, uint32(part))
	return be.AppendUint32(b, uint32(size))
}

func parseProduce(body []byte) (base int64, err error) {
	resp := kmsg.NewPtrProduceResponse()
	resp.Version = produceVersion
	if err := resp.ReadFrom(body); err != nil {
		return 0, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return 0, errors.New("the answer to Produce lacks the partition")
	}
	p := &resp.Topics[0].Partitions[0]
	err = kerr.ErrorForCode(p.ErrorCode)
	if err != nil && p.ErrorMessage != nil && *p.ErrorMessage != "" {
		err = fmt.Errorf("%w (%s)", err, *p.ErrorMessage)
	}
	return p.BaseOffset, err
}
