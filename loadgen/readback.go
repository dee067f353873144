package loadgen

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// unread is a record that was acknowledged and not seen yet, with what the broker last said of its partition.
type unread struct {
	place                               int // in the prober's partitions
	asked                               int // fetches that were answered without it
	highWatermark, lastStable, logStart int64
}

// why is the reason for the report when the record was not seen before the end of the run.
func (u *unread) why(err error) error {
	if u.asked == 0 {
		return fmt.Errorf("%w (no fetch for it was answered)", err)
	}
	return fmt.Errorf("%w (%d fetches without it, the last said: high watermark %d, last stable offset %d, log start %d)", err, u.asked, u.highWatermark, u.lastStable, u.logStart)
}

// readBack fetches the records of the places that come until each was seen. A record that does not come keeps no other waiting.
func (p *prober) readBack(ctx context.Context, results []probeResult, acked <-chan []int) {
	at := map[int32]*unread{}
	var err error
	for err == nil && ctx.Err() == nil {
		if !p.gather(at, acked) {
			return
		}
		err = p.fetch(results, at)
	}
	for places := range acked {
		p.expect(at, places)
	}
	if err == nil {
		err = ctx.Err()
	}
	for _, u := range at {
		results[u.place].unreadable(u.why(err))
	}
}

func (p *prober) expect(at map[int32]*unread, places []int) {
	for _, i := range places {
		at[p.partitions[i]] = &unread{place: i, highWatermark: -1, lastStable: -1, logStart: -1}
	}
}

// gather takes what was acknowledged meanwhile, and waits for it when there is nothing else to read; false: nothing is left.
func (p *prober) gather(at map[int32]*unread, acked <-chan []int) bool {
	for len(at) == 0 {
		places, ok := <-acked
		if !ok {
			return false
		}
		p.expect(at, places)
	}
	for {
		select {
		case places, ok := <-acked:
			if !ok {
				return true
			}
			p.expect(at, places)
		default:
			return true
		}
	}
}

// fetch asks once for all of at and removes what it has read, or what the broker refuses.
func (p *prober) fetch(results []probeResult, at map[int32]*unread) error {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.ReplicaID, req.SessionEpoch = fetchVersion, -1, -1
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 100, 1, 1<<20
	req.IsolationLevel = 1 // what a fail-over must not leave hanging
	t := kmsg.NewFetchRequestTopic()
	t.Topic = p.topic
	for n, u := range at {
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes, rp.CurrentLeaderEpoch = n, results[u.place].offset, 4<<10, -1
		t.Partitions = append(t.Partitions, rp)
	}
	req.Topics = append(req.Topics, t)
	resp := kmsg.NewPtrFetchResponse()
	var when time.Time
	if err := p.r.requestAt(req, resp, &when); err != nil {
		return err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return err
	}
	if len(resp.Topics) != 1 {
		return errors.New("the answer to Fetch lacks the topic")
	}
	for j := range resp.Topics[0].Partitions {
		part := &resp.Topics[0].Partitions[j]
		u := at[part.Partition]
		if u == nil {
			continue
		}
		u.asked++
		u.highWatermark, u.lastStable, u.logStart = part.HighWatermark, part.LastStableOffset, part.LogStartOffset
		err := kerr.ErrorForCode(part.ErrorCode)
		switch {
		case err != nil:
			results[u.place].unreadable(u.why(err))
		case len(part.RecordBatches) > 0:
			results[u.place].firstRead = when
		default:
			continue
		}
		delete(at, part.Partition)
	}
	return nil
}

func (r *probeResult) unreadable(err error) {
	r.err = fmt.Errorf("offset %d was acknowledged but cannot be read: %w", r.offset, err)
}
