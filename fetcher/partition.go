package fetcher

import (
	"sync"
	"time"
)

// partition is the fetch state of one assignment. mu is held while bytes are appended and guards
// removed; the other changing fields are guarded by the loop's lock.
type partition struct {
	id          ID
	broker      int32
	leaderEpoch int32
	sink        Sink
	token       uint64

	mu      sync.Mutex
	removed bool

	topic *topic

	// next is the offset to fetch: the log end once the planned batches are appended, and epoch that
	// of the last batch then.
	next  int64
	epoch int32
	// inRequest says that the source has been asked for the partition (in this session), at sent.
	inRequest bool
	sent      int64
	// dirty says that the session has to be told a new offset; then the partition is in loop.dirty.
	dirty   bool
	halted  bool
	waiting bool // until retryAt; then the partition is in loop.waiting
	retryAt time.Time
	fetched bool
	covered time.Time
	// bytes came since Balance last looked.
	bytes int64
	// near is the local leader epoch for which EventEpochNear was sent.
	near int32
}

func newPartition(a Assignment) *partition {
	return &partition{
		id: a.ID, broker: a.Broker, leaderEpoch: a.LeaderEpoch, sink: a.Sink, token: a.Token,
		next: a.Sink.LogEndOffset(), epoch: a.Sink.LatestEpoch(), near: -1,
	}
}

// finish waits for an append that is under way; there will be no other.
func (p *partition) finish() {
	p.mu.Lock()
	p.removed = true
	p.mu.Unlock()
}

// tryFinish is finish that does not wait. It reports false when an append is under way.
func (p *partition) tryFinish() bool {
	if !p.mu.TryLock() {
		return false
	}
	p.removed = true
	p.mu.Unlock()
	return true
}

// again is the same assignment from its start, for another loop.
func (p *partition) again() *partition {
	return newPartition(Assignment{ID: p.id, Broker: p.broker, LeaderEpoch: p.leaderEpoch, Sink: p.sink, Token: p.token})
}

func (p *partition) fetchable() bool { return !p.halted && !p.waiting }

func (p *partition) event(kind EventKind, mirror string) Event {
	return Event{Kind: kind, Mirror: mirror, ID: p.id, Token: p.token, Broker: p.broker, Offset: -1, Epoch: -1, Leader: -1}
}

// topic groups the partitions of a loop by topic.
type topic struct {
	id         [16]byte
	name       string
	partitions map[int32]*partition
	// in the request that is being built: its number and the topic's index there
	request uint64
	index   int
	// the same for the forgotten topics
	forgetRequest uint64
	forgetIndex   int
}
