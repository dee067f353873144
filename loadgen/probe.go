package loadgen

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/zerocopy/batch"
)

// probeRate is how many requests per second the probes of all partitions together send, probeConns how many connections
// they share. A request tries every partition of its connection that is not writable yet: with a thousand
// partitions each is tried every 16 ms, and the requests are no load of their own.
const (
	probeRate  = 1000
	probeConns = 16
)

// answerPatience is how long the answers to what is under way are waited for when the time of a run is up.
const answerPatience = 5 * time.Second

// probeResult is what the probe of one partition saw.
type probeResult struct {
	topic     string
	partition int32
	firstAck  time.Time
	firstRead time.Time
	offset    int64
	refused   int64
	err       error
}

// prober tries to write to some partitions of a topic that have one leader, over a warm connection, until each has
// acknowledged a write, and reads the records back over another one.
type prober struct {
	topic      string
	partitions []int32
	record     []byte // the batch that is written
	w, r       *conn
	interval   time.Duration
}

// openProbes opens the connections before the clock starts.
func openProbes(layouts []*layout) ([]*prober, error) {
	now := time.Now().UnixMilli()
	record := batch.Build(nil, batch.Header{Timestamp: now, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}, batch.KV{Value: make([]byte, 64)})
	var all []*prober
	fail := func(addr string, err error) ([]*prober, error) {
		closeProbes(all)
		return nil, fmt.Errorf("cannot reach the leader %s: %w", addr, err)
	}
	shares := max(probeConns/len(layouts), 1)
	for _, l := range layouts {
		mine := map[string]*prober{} // by leader and share
		for p, addr := range l.leaders {
			key := fmt.Sprint(addr, " ", p%shares)
			pr := mine[key]
			if pr == nil {
				pr = &prober{topic: l.topic, record: record}
				var err error
				if pr.w, err = dial(addr); err != nil {
					return fail(addr, err)
				}
				mine[key] = pr
				all = append(all, pr)
				if pr.r, err = dial(addr); err != nil {
					return fail(addr, err)
				}
			}
			pr.partitions = append(pr.partitions, int32(p))
		}
	}
	for _, p := range all {
		p.interval = time.Second / probeRate * time.Duration(len(all))
	}
	return all, nil
}

func closeProbes(all []*prober) {
	for _, p := range all {
		for _, c := range []*conn{p.w, p.r} {
			if c != nil {
				c.close()
			}
		}
	}
}

// runProbes returns when every partition was written and read, or ctx ended. The connections begin one after the other,
// so that the tries are spread evenly.
func runProbes(ctx context.Context, all []*prober) []probeResult {
	defer context.AfterFunc(ctx, func() { // a broker that does not answer must not keep the run from ending
		for _, p := range all {
			for _, c := range []*conn{p.w, p.r} {
				_ = c.nc.SetReadDeadline(time.Now().Add(answerPatience)) // a closed connection is at its end already
			}
		}
	})()
	results := make([][]probeResult, len(all))
	start := time.Now()
	var wg sync.WaitGroup
	for i, p := range all {
		wg.Go(func() { results[i] = p.run(ctx, start.Add(time.Duration(i)*time.Second/probeRate)) })
	}
	wg.Wait()
	var flat []probeResult
	for _, r := range results {
		flat = append(flat, r...)
	}
	return flat
}

func (p *prober) run(ctx context.Context, next time.Time) []probeResult {
	results := make([]probeResult, len(p.partitions))
	pending := make([]int, len(p.partitions)) // places in partitions
	for i, n := range p.partitions {
		results[i] = probeResult{topic: p.topic, partition: n, offset: -1}
		pending[i] = i
	}
	acked := make(chan []int, len(pending))
	var reader sync.WaitGroup
	reader.Go(func() { p.readBack(ctx, results, acked) })
	defer reader.Wait()
	defer close(acked)
	for ; len(pending) > 0; next = next.Add(p.interval) {
		if d := time.Until(next); d > 0 { // the probe's own schedule
			select {
			case <-time.After(d):
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			for _, i := range pending {
				r := &results[i]
				r.err = fmt.Errorf("not writable: %w (%d writes refused, the last: %w)", ctx.Err(), r.refused, r.err)
			}
			return results
		}
		answers, at, err := p.write(pending)
		if err != nil {
			for _, i := range pending {
				results[i].err = err
			}
			return results
		}
		var done, rest []int
		for n, i := range pending {
			r := &results[i]
			if r.err = answers[n].err; r.err != nil {
				r.refused++
				rest = append(rest, i)
				continue
			}
			r.firstAck, r.offset = at, answers[n].offset
			done = append(done, i)
		}
		pending = rest
		if len(done) > 0 {
			acked <- done
		}
	}
	return results
}

// probeAnswer is what Produce answers for one partition.
type probeAnswer struct {
	offset int64
	err    error
}

// write tries to write one batch to each of the partitions. The answers are in the order of places.
func (p *prober) write(places []int) (answers []probeAnswer, at time.Time, err error) {
	be := binary.BigEndian
	body := be.AppendUint16(nil, 0xffff) // no transactional id
	body = be.AppendUint16(body, 0xffff) // acks -1
	body = be.AppendUint32(body, 30000)
	body = be.AppendUint32(body, 1)
	body = be.AppendUint16(body, uint16(len(p.topic)))
	body = append(body, p.topic...)
	body = be.AppendUint32(body, uint32(len(places)))
	for _, i := range places {
		body = be.AppendUint32(body, uint32(p.partitions[i]))
		body = be.AppendUint32(body, uint32(len(p.record)))
		body = append(body, p.record...)
	}
	done := make(chan struct{})
	p.w.send(0, produceVersion, false, [][]byte{body}, true, func(b []byte, when time.Time, sendErr error) {
		defer close(done)
		if at, err = when, sendErr; err == nil {
			answers, err = p.parse(b, places)
		}
	})
	<-done
	return answers, at, err
}

func (p *prober) parse(body []byte, places []int) ([]probeAnswer, error) {
	resp := kmsg.NewPtrProduceResponse()
	resp.Version = produceVersion
	if err := resp.ReadFrom(body); err != nil {
		return nil, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != len(places) {
		return nil, errors.New("the answer to Produce lacks partitions")
	}
	answers := make([]probeAnswer, len(places))
	for n, i := range places {
		rp := &resp.Topics[0].Partitions[n]
		if rp.Partition != p.partitions[i] {
			return nil, fmt.Errorf("the answer to Produce has partition %d in place of %d", rp.Partition, p.partitions[i])
		}
		err := kerr.ErrorForCode(rp.ErrorCode)
		if err != nil && rp.ErrorMessage != nil && *rp.ErrorMessage != "" {
			err = fmt.Errorf("%w (%s)", err, *rp.ErrorMessage)
		}
		answers[n] = probeAnswer{rp.BaseOffset, err}
	}
	return answers, nil
}
