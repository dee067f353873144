package loadgen

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/zerocopy/batch"
)

// fetchVersion names topics and has no flexible fields; known since Kafka 2.3.
const fetchVersion = 11

// reader follows all partitions of a topic with plain fetches, one connection per leader.
type reader struct {
	t      *target
	layout *layout
	// seen is told of every batch, from one goroutine per leader.
	seen func(partition int32, b batch.Batch, at time.Time)
	// patient: an offset beyond the end is waited for, as a mirror that lags needs it.
	patient bool
	bytes   atomic.Int64
	records atomic.Int64
	errs    atomic.Int64
	lastErr atomic.Value
}

// run reads from the offsets until ctx ends or, with stopAt, until every partition has reached its offset there.
func (r *reader) run(ctx context.Context, from, stopAt []int64) error {
	by := map[string][]int32{}
	for p, addr := range r.layout.leaders {
		by[addr] = append(by[addr], int32(p))
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for addr, parts := range by {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if err := r.follow(ctx, addr, parts, from, stopAt); err != nil && ctx.Err() == nil {
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			}
		}()
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (r *reader) follow(ctx context.Context, addr string, parts []int32, from, stopAt []int64) error {
	c, err := dial(addr)
	if err != nil {
		return fmt.Errorf("cannot reach the leader %s: %w", addr, err)
	}
	stop := context.AfterFunc(ctx, func() { c.nc.Close() })
	defer stop()
	defer c.close()
	pos := map[int32]int64{}
	for _, p := range parts {
		if stopAt == nil || from[p] < stopAt[p] {
			pos[p] = from[p]
		}
	}
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.ReplicaID, req.SessionEpoch = fetchVersion, -1, -1
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 500, 1, 32<<20
	resp := kmsg.NewPtrFetchResponse()
	for len(pos) > 0 && ctx.Err() == nil {
		t := kmsg.NewFetchRequestTopic()
		t.Topic = r.layout.topic
		for _, p := range parts {
			off, ok := pos[p]
			if !ok {
				continue
			}
			rp := kmsg.NewFetchRequestTopicPartition()
			rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes, rp.CurrentLeaderEpoch, rp.LogStartOffset = p, off, 4<<20, -1, -1
			t.Partitions = append(t.Partitions, rp)
		}
		req.Topics = append(req.Topics[:0], t)
		var at time.Time
		err := c.requestAt(req, resp, &at)
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", addr, err)
		}
		wait, err := r.take(resp, pos, stopAt, at)
		if err != nil {
			return fmt.Errorf("%s: %w", addr, err)
		}
		if wait {
			select {
			case <-time.After(5 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}
	return nil
}

// take hands on what one answer holds and moves the positions.
func (r *reader) take(resp *kmsg.FetchResponse, pos map[int32]int64, stopAt []int64, at time.Time) (wait bool, err error) {
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			p := &resp.Topics[i].Partitions[j]
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				r.errs.Add(1)
				r.lastErr.Store(err.Error())
				if !kerr.IsRetriable(err) && !(r.patient && errors.Is(err, kerr.OffsetOutOfRange)) {
					return false, fmt.Errorf("partition %d: %w", p.Partition, err)
				}
				wait = true
				continue
			}
			for rest := p.RecordBatches; len(rest) > 0; {
				b, next, err := batch.Next(rest)
				if errors.Is(err, batch.ErrIncomplete) {
					break
				}
				if err != nil {
					return false, fmt.Errorf("partition %d: %w", p.Partition, err)
				}
				rest = next
				if b.NextOffset() <= pos[p.Partition] {
					continue
				}
				pos[p.Partition] = b.NextOffset()
				r.bytes.Add(int64(len(b)))
				r.records.Add(int64(b.NumRecords()))
				if r.seen != nil {
					r.seen(p.Partition, b, at)
				}
			}
			if stopAt != nil && pos[p.Partition] >= stopAt[p.Partition] {
				delete(pos, p.Partition)
			}
		}
	}
	return wait, nil
}
