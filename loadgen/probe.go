package loadgen

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// probeRate is how often per second the probes of all partitions together try to write.
const probeRate = 1000

// probeResult is what one partition's probe saw.
type probeResult struct {
	topic     string
	partition int32
	firstAck  time.Time
	firstRead time.Time
	offset    int64
	refused   int64
	err       error
}

// prober tries to write to one partition with a warm connection until it is
// acknowledged, and then reads the record back.
type prober struct {
	l         *layout
	partition int32
	c         *conn
	interval  time.Duration
}

// probes opens a connection per leader and topic partition before the clock starts.
func openProbes(layouts []*layout) ([]*prober, error) {
	var all []*prober
	for _, l := range layouts {
		for p, addr := range l.leaders {
			c, err := dial(addr)
			if err != nil {
				closeProbes(all)
				return nil, fmt.Errorf("cannot reach the leader %s: %w", addr, err)
			}
			all = append(all, &prober{l: l, partition: int32(p), c: c})
		}
	}
	for _, p := range all {
		p.interval = time.Second / probeRate * time.Duration(len(all))
	}
	return all, nil
}

func closeProbes(all []*prober) {
	for _, p := range all {
		p.c.close()
	}
}

// runProbes returns when every partition was written and read, or ctx ended.
func runProbes(ctx context.Context, all []*prober) []probeResult {
	results := make([]probeResult, len(all))
	var wg sync.WaitGroup
	for i, p := range all {
		wg.Add(1)
		go func() { defer wg.Done(); results[i] = p.run(ctx) }()
	}
	wg.Wait()
	return results
}

func (p *prober) run(ctx context.Context) probeResult {
	res := probeResult{topic: p.l.topic, partition: p.partition, offset: -1}
	codec, err := newCodec("none")
	if err != nil {
		res.err = err
		return res
	}
	b := newBatchBuilder(codec, 64, uint64(p.partition))
	for next := time.Now(); res.firstAck.IsZero(); next = next.Add(p.interval) {
		if ctx.Err() != nil {
			res.err = fmt.Errorf("not writable: %w (%d writes refused, the last: %w)", ctx.Err(), res.refused, res.err)
			return res
		}
		if d := time.Until(next); d > 0 { // the probe's own schedule
			select {
			case <-time.After(d):
			case <-ctx.Done():
				continue
			}
		}
		b.add()
		data, err := b.finish(nil, time.Now().UnixMilli())
		if err != nil {
			res.err = err
			return res
		}
		off, at, err := p.write(data)
		var k *kerr.Error
		switch {
		case err == nil:
			res.firstAck, res.offset, res.err = at, off, nil
		case errors.As(err, &k):
			res.refused++
			res.err = err
		default:
			res.err = err
			return res
		}
	}
	res.firstRead, res.err = p.readBack(ctx, res.offset)
	return res
}

func (p *prober) write(data []byte) (offset int64, at time.Time, err error) {
	type answer struct {
		off int64
		at  time.Time
		err error
	}
	ch := make(chan answer, 1)
	head := produceHead(p.l.topic, p.partition, -1, len(data))
	p.c.send(0, produceVersion, false, [][]byte{head, data}, true, func(body []byte, at time.Time, err error) {
		var off int64
		if err == nil {
			off, err = parseProduce(body)
		}
		ch <- answer{off, at, err}
	})
	a := <-ch
	return a.off, a.at, a.err
}

func (p *prober) readBack(ctx context.Context, offset int64) (time.Time, error) {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.ReplicaID, req.SessionEpoch = fetchVersion, -1, -1
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 100, 1, 1<<20
	req.IsolationLevel = 1 // what a fail-over must not leave hanging
	t := kmsg.NewFetchRequestTopic()
	t.Topic = p.l.topic
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes, rp.CurrentLeaderEpoch = p.partition, offset, 1<<20, -1
	t.Partitions = append(t.Partitions, rp)
	req.Topics = append(req.Topics, t)
	resp := kmsg.NewPtrFetchResponse()
	for ctx.Err() == nil {
		var at time.Time
		if err := p.c.requestAt(req, resp, &at); err != nil {
			return time.Time{}, err
		}
		if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
			return time.Time{}, errors.New("the answer to Fetch lacks the partition")
		}
		part := &resp.Topics[0].Partitions[0]
		if err := kerr.ErrorForCode(part.ErrorCode); err != nil {
			return time.Time{}, err
		}
		if len(part.RecordBatches) > 0 {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("offset %d was acknowledged but cannot be read: %w", offset, ctx.Err())
}
