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

// pacedInFlight are the requests that a connection has unanswered at a fixed rate,
// as with Kafka's producer (max.in.flight.requests.per.connection). What is due
// meanwhile waits here: in the response time, not in the service time.
const pacedInFlight = 5

const (
	// latePatience is how long after its end a run goes on sending what is due and waiting for answers.
	latePatience = 30 * time.Second
	// cancelPatience is the same after it was cancelled.
	cancelPatience = 5 * time.Second
)

// load is one run of producers against one topic.
type load struct {
	o       Options
	layout  *layout
	payload *payload

	response, service, slip *Recorder
	late                    *Recorder    // how late the generator itself was, batch by batch
	records, bytes          atomic.Int64 // acknowledged after the warm-up
	wire                    atomic.Int64 // batch bytes of the same
	acked                   atomic.Int64 // batch bytes from the first one on
	errors                  atomic.Int64
	unsent                  atomic.Int64 // records that were due and never sent
	sent                    atomic.Int64 // records, from the first one on
	last                    atomic.Int64 // ns after from: the last acknowledgement
	lastErr                 atomic.Value
	inFlight                *budget
	// onAck, if set, is told of every acknowledged batch with the intended time of its first record and the step to the next.
	onAck func(partition int32, base int64, records int, first time.Time, step time.Duration)
	dial  func(addr string) (*conn, error)
	from  time.Time // measured from here
	start time.Time

	mu     sync.Mutex
	conns  []*conn
	fatal  error         // what ended the run
	ended  chan struct{} // closed with fatal
	halted chan struct{} // closed when nothing is waited for any more
}

func newLoad(l *layout, o Options) (*load, error) {
	codec, err := newCodec(o.Compression)
	if err != nil {
		return nil, err
	}
	return &load{
		o: o, layout: l, payload: newPayload(codec, o.RecordSize, o.BatchSize, o.Seed), dial: dial,
		response: NewRecorder(), service: NewRecorder(), slip: NewRecorder(), late: NewRecorder(),
		inFlight: newBudget(maxInFlight), ended: make(chan struct{}), halted: make(chan struct{}),
	}, nil
}

// run produces until the duration is over, ctx ends or the target is lost, and waits for the acknowledgements.
func (l *load) run(ctx context.Context) error {
	l.start = time.Now().Add(20 * time.Millisecond)
	l.from = l.start.Add(l.o.Warmup)
	end := l.from.Add(l.o.Duration)
	unwatch := l.watch(ctx, end)
	defer unwatch()
	var wg sync.WaitGroup
	for i := range l.o.Producers {
		p := newProducer(l, i)
		wg.Add(1)
		go func() {
			defer wg.Done()
			p.run(ctx, end)
		}()
	}
	wg.Wait()
	l.halt() // all is answered or given up
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fatal
}

// watch ends the waiting a while after the run should have ended.
func (l *load) watch(ctx context.Context, end time.Time) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		planned := time.NewTimer(time.Until(end) + maxOverrun) // what waited for its linger is sent by then
		defer planned.Stop()
		late := time.NewTimer(time.Until(end) + latePatience)
		defer late.Stop()
		// grace waits a little for the answers to what is under way.
		grace := func(ended <-chan struct{}) (answered bool) {
			t := time.NewTimer(cancelPatience)
			defer t.Stop()
			select {
			case <-t.C:
			case <-ended:
			case <-done:
				return true
			}
			return false
		}
		for {
			select {
			case <-planned.C:
				err := l.hopeless(end)
				if err == nil {
					continue
				}
				if l.fail(err); grace(nil) {
					return
				}
			case <-ctx.Done():
				if grace(l.ended) {
					return
				}
			case <-late.C:
				l.fail(fmt.Errorf("%d MB were not answered %s after the end", (l.inFlightBytes()+999_999)/1_000_000, latePatience))
			case <-l.ended:
			case <-done:
				return
			}
			l.halt()
			return
		}
	})
	return func() { close(done); wg.Wait() }
}

// hopeless says, when the schedule is over, that what is left of it cannot be sent in time at the rate that was seen, so
// that there is nothing to wait for.
func (l *load) hopeless(end time.Time) error {
	rate, whole := l.o.Rate.Records(l.o.RecordSize), end.Sub(l.start)
	sent := float64(l.sent.Load())
	left := rate*whole.Seconds() - sent
	seen := sent / time.Since(l.start).Seconds()
	if rate <= 0 || sent == 0 || left <= seen*latePatience.Seconds() {
		return nil
	}
	mb := float64(l.o.RecordSize) / 1e6
	return fmt.Errorf("the target took %.0f records/s (%.1f MB/s) of %.0f (%.1f MB/s): the last %s of the schedule of %s, warm-up included, were not sent and will not be in %s",
		seen, seen*mb, rate, rate*mb, time.Duration(left/rate*float64(time.Second)).Round(time.Millisecond), whole.Round(time.Millisecond), latePatience)
}

func (l *load) inFlightBytes() int64 {
	l.inFlight.mu.Lock()
	defer l.inFlight.mu.Unlock()
	return l.inFlight.used
}

// fail ends the run; the first reason counts.
func (l *load) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fatal == nil {
		l.fatal = err
		close(l.ended)
	}
}

// halt closes all connections, whose unanswered requests end with an error.
func (l *load) halt() {
	l.mu.Lock()
	select {
	case <-l.halted:
	default:
		close(l.halted)
	}
	conns := l.conns
	l.conns = nil
	l.mu.Unlock()
	l.inFlight.close()
	for _, c := range conns {
		c.close()
	}
}

// over says that nothing more is to be sent.
func (l *load) over(ctx context.Context) bool {
	select {
	case <-ctx.Done():
	case <-l.ended:
	case <-l.halted:
	default:
		return false
	}
	return true
}

// open connects to a leader.
func (l *load) open(addr string) (*conn, error) {
	c, err := l.dial(addr)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	select {
	case <-l.halted:
		l.mu.Unlock()
		c.close()
		return nil, errors.New("the run is over")
	default:
	}
	l.conns = append(l.conns, c)
	l.mu.Unlock()
	return c, nil
}

// since is a moment of the run, for messages.
func (l *load) since() string { return time.Since(l.start).Round(100 * time.Millisecond).String() }

// took is the measured time: the duration, or until the last acknowledgement if that came later.
func (l *load) took() time.Duration { return max(l.o.Duration, time.Duration(l.last.Load())) }

// appendProduceHead is what precedes the one batch of a Produce body.
func appendProduceHead(b []byte, topic string, part int32, acks int16, size int) []byte {
	be := binary.BigEndian
	b = be.AppendUint16(b, 0xffff) // no transactional id
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
		return 0, fmt.Errorf("the answer to Produce cannot be read: %w", err)
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
