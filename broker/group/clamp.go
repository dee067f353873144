package group

import (
	"context"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
)

// ClampOffsets lowers every committed offset of a partition that lies above end
// to end, in the groups that are coordinated here (SPEC sections 4.7 and 7: the
// log was cut). The leader epoch of such a commit is dropped, because it belongs
// to what was cut. It returns how many were lowered. Nothing is lowered for a call
// that has returned, also with the error of its context (REQUEST_TIMED_OUT).
//
// Calls that come while others are worked on share a pass over the shards: a
// failover calls it for each of its partitions.
func (c *Coordinator) ClampOffsets(ctx context.Context, topic string, partition int32, end int64) (int, error) {
	call := &clampCall{tp: topicPartition{topic, partition}, end: end, done: make(chan struct{})}
	if !c.clamps.join(c, call) {
		return 0, nil // closed: no group is coordinated here
	}
	select {
	case <-call.done:
	case <-ctx.Done():
		if c.clamps.leave(call) {
			return call.lowered, fmt.Errorf("%w: %w", kerr.RequestTimedOut, ctx.Err())
		}
	}
	return call.lowered, call.err
}

// clampCall is one call of ClampOffsets.
type clampCall struct {
	tp   topicPartition
	end  int64
	pass *clampPass // it is part of; nil when it is answered

	lowered int
	err     error
	done    chan struct{}
}

// clampPass is what goes over all shards together.
type clampPass struct {
	calls  map[topicPartition][]*clampCall
	ctx    context.Context // ends when nobody waits any more
	cancel context.CancelFunc
}

func newClampPass() *clampPass {
	p := &clampPass{calls: map[topicPartition][]*clampCall{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// clamps gathers calls for the next pass while one is under way. Its goroutine lives as long as there are calls.
type clamps struct {
	// mu is held while a shard's offsets are looked at, too: a call that has left changes nothing any more.
	mu         sync.Mutex
	next       *clampPass // nil: no call waits for a pass
	running    *clampPass // nil: there is none
	closed     bool
	wg         sync.WaitGroup
	operations int // on shards so far
}

func (k *clamps) join(c *Coordinator, call *clampCall) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return false
	}
	if k.next == nil {
		k.next = newClampPass()
	}
	call.pass = k.next
	k.next.calls[call.tp] = append(k.next.calls[call.tp], call)
	if k.running == nil {
		k.start()
		k.wg.Go(func() { k.run(c) })
	}
	return true
}

// start makes the next pass the running one. mu is held.
func (k *clamps) start() { k.running, k.next = k.next, nil }

// leave takes a call back; false: it is answered.
func (k *clamps) leave(call *clampCall) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	p := call.pass
	if p == nil {
		return false
	}
	call.pass = nil
	rest := p.calls[call.tp][:0]
	for _, other := range p.calls[call.tp] {
		if other != call {
			rest = append(rest, other)
		}
	}
	if p.calls[call.tp] = rest; len(rest) == 0 {
		delete(p.calls, call.tp)
	}
	if len(p.calls) == 0 {
		p.cancel()
		if p == k.next {
			k.next = nil
		}
	}
	return true
}

// run makes passes until nobody waits for one.
func (k *clamps) run(c *Coordinator) {
	for more := true; more; {
		k.mu.Lock()
		p := k.running
		k.mu.Unlock()
		err := c.onShardsRepeated(p.ctx, func(m *machine) bool {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.operations++
			return p.lower(m)
		})
		p.cancel()
		k.mu.Lock()
		for _, calls := range p.calls {
			for _, call := range calls {
				call.err, call.pass = err, nil
				close(call.done)
			}
		}
		k.start()
		more = k.running != nil
		k.mu.Unlock()
	}
}

// close ends what is under way; the shards are gone before.
func (k *clamps) close() {
	k.mu.Lock()
	k.closed = true
	for _, p := range []*clampPass{k.running, k.next} {
		if p != nil {
			p.cancel()
		}
	}
	k.mu.Unlock()
	k.wg.Wait()
}

// lower is a pass's operation on one shard. More says that it has to be run again.
func (p *clampPass) lower(m *machine) (more bool) {
	for _, g := range m.groups {
		if len(g.offsets) <= len(p.calls) {
			for tp, o := range g.offsets {
				if !lowerOffset(m, g, tp, o, p.calls[tp]) {
					return true
				}
			}
			continue
		}
		for tp, calls := range p.calls {
			if !lowerOffset(m, g, tp, g.offsets[tp], calls) {
				return true
			}
		}
	}
	return false
}

// lowerOffset lowers a committed offset to the lowest end of the calls; false: there is no room for it in this operation.
func lowerOffset(m *machine, g *group, tp topicPartition, o *offset, calls []*clampCall) bool {
	if o == nil || len(calls) == 0 {
		return true
	}
	end := o.offset
	for _, call := range calls {
		end = min(end, call.end)
	}
	if end == o.offset {
		return true
	}
	if m.full() {
		return false
	}
	lower := *o
	lower.offset, lower.leaderEpoch = end, -1
	m.writeOffset(g.id, tp, &lower)
	for _, call := range calls {
		if call.end < o.offset {
			call.lowered++
		}
	}
	return true
}
