package mirror

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"stet/broker/mirrormsg"
)

// bumper gathers what the partitions ask of BumpLeaderEpochs. A request is a proposal, which the metadata quorum syncs
// to disk: a thousand partitions that stop together share a few. One request is under way at a time, and takes
// what has come meanwhile. A partition alone is asked for at once; with others on their way to the same step the request
// waits for them, but not for long.
type bumper struct {
	m        *Manager
	patience time.Duration

	mu          sync.Mutex
	calls       []*bumpCall
	busy        bool
	approaching int           // partitions that will ask soon
	near        chan struct{} // capacity 1: calls or approaching have changed
}

// bumpCall is one partition's wish.
type bumpCall struct {
	topic [16]byte
	want  mirrormsg.BumpLeaderEpochsRequestTopicPartition
	done  chan error // capacity 1
}

// How long a request waits for partitions that are on their way: to the epoch of a stop barrier, for which writers wait,
// and to the report of its end, for which only the answer to the stop does.
const (
	bumpPatience   = 30 * time.Millisecond
	reportPatience = 100 * time.Millisecond
)

// bumpLimit is how many partitions share a request.
const bumpLimit = 10000

func newBumper(m *Manager, patience time.Duration) *bumper {
	return &bumper{m: m, patience: patience, near: make(chan struct{}, 1)}
}

// bumpTicket says whether a partition counts as one that is on its way. It belongs to the driver's goroutine.
type bumpTicket struct {
	b  *bumper
	on bool
}

// come announces the partition. Whoever calls it calls leave at the latest when it goes idle.
func (t *bumpTicket) come() {
	if !t.on {
		t.on = true
		t.b.mu.Lock()
		t.b.approaching++
		t.b.mu.Unlock()
	}
}

// leave takes the announcement back.
func (t *bumpTicket) leave() {
	if t.on {
		t.b.mu.Lock()
		t.arrivedLocked()
		t.b.mu.Unlock()
		t.b.poke()
	}
}

func (t *bumpTicket) arrivedLocked() {
	if t.on {
		t.on = false
		t.b.approaching--
	}
}

func (b *bumper) poke() {
	select {
	case b.near <- struct{}{}:
	default:
	}
}

// do returns the outcome for one partition. When ctx ends first, the change may still happen.
func (b *bumper) do(ctx context.Context, topic [16]byte, want mirrormsg.BumpLeaderEpochsRequestTopicPartition, t *bumpTicket) error {
	c := &bumpCall{topic: topic, want: want, done: make(chan error, 1)}
	b.mu.Lock()
	b.calls = append(b.calls, c)
	t.arrivedLocked()
	start := !b.busy
	b.busy = true
	b.mu.Unlock()
	if start {
		go b.run()
	} else {
		b.poke()
	}
	select {
	case err := <-c.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-b.m.ctx.Done():
		return b.m.ctx.Err()
	}
}

// run sends requests until nobody asks any more.
func (b *bumper) run() {
	for {
		b.gather()
		b.mu.Lock()
		calls := b.calls[:min(len(b.calls), bumpLimit)]
		b.calls = slices.Clone(b.calls[len(calls):])
		if len(calls) == 0 {
			b.busy = false
			b.mu.Unlock()
			return
		}
		b.mu.Unlock()
		b.send(calls)
	}
}

// gather waits for the partitions that are on their way.
func (b *bumper) gather() {
	var patience <-chan time.Time
	for {
		b.mu.Lock()
		ready := b.approaching == 0 || len(b.calls) == 0 || len(b.calls) >= bumpLimit
		b.mu.Unlock()
		if ready {
			return
		}
		if patience == nil {
			t := time.NewTimer(b.patience)
			defer t.Stop()
			patience = t.C
		}
		select {
		case <-b.near:
		case <-patience:
			return
		case <-b.m.ctx.Done():
			return
		}
	}
}

// send asks for all of calls at once.
func (b *bumper) send(calls []*bumpCall) {
	req := mirrormsg.NewPtrBumpLeaderEpochsRequest()
	at := map[[16]byte]int{}
	places := make([][2]int, len(calls)) // topic and partition in the request
	for i, c := range calls {
		n, ok := at[c.topic]
		if !ok {
			n = len(req.Topics)
			at[c.topic] = n
			t := mirrormsg.NewBumpLeaderEpochsRequestTopic()
			t.TopicID = c.topic
			req.Topics = append(req.Topics, t)
		}
		t := &req.Topics[n]
		places[i] = [2]int{n, len(t.Partitions)}
		t.Partitions = append(t.Partitions, c.want)
	}
	resp, err := b.m.o.Controller.BumpLeaderEpochs(b.m.ctx, req)
	if err == nil {
		err = mirrormsg.ErrorForCode(resp.ErrorCode)
	}
	for i, c := range calls {
		switch t, p := places[i][0], places[i][1]; {
		case err != nil:
			c.done <- err
		case t >= len(resp.Topics) || p >= len(resp.Topics[t].Partitions) || resp.Topics[t].Partitions[p].PartitionIndex != c.want.PartitionIndex:
			c.done <- errors.New("the controller's answer does not mention the partition")
		default:
			c.done <- mirrormsg.ErrorForCode(resp.Topics[t].Partitions[p].ErrorCode)
		}
	}
}
