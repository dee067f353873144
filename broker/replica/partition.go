package replica

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kerr"

	"stet/broker/log"
	"stet/broker/meta"
)

// Partition is one replica held by this broker. It is safe for concurrent use.
type Partition struct {
	Topic string
	Index int32
	ID    [16]byte
	// Incarnation is the metadata offset of the topic's creation.
	Incarnation int64

	log  *log.Log
	node int32

	// gateMu: an append of a client or a coordinator holds it for reading from
	// the check of role and gate to the end of the append. Closing the gate
	// takes it for writing, so once closed nothing local is appended any more.
	gateMu sync.RWMutex
	gate   Gate

	state atomic.Pointer[meta.Partition] // the metadata image's view
	gone  atomic.Bool
	// minISR is min.insync.replicas, kept here because every produce with acks=all asks for it.
	minISR atomic.Int32

	waitMu  sync.Mutex
	waiters map[*Waiter]struct{}
	waiting atomic.Int32 // len(waiters), read without the lock on the append path
}

// Gate says whether clients may append. The zero value is open.
type Gate struct {
	// Err is what a produce is answered with, nil when open.
	Err *kerr.Error
	// Message goes with it.
	Message string
}

// Refused is an error answer with the protocol's code and a message for people.
type Refused struct {
	Code    *kerr.Error
	Message string
}

func (r *Refused) Error() string { return r.Code.Message + ": " + r.Message }

// Unwrap lets errors.As find the wire code.
func (r *Refused) Unwrap() error { return r.Code }

// Refuse makes a Refused error.
func Refuse(code *kerr.Error, format string, args ...any) error {
	return &Refused{code, fmt.Sprintf(format, args...)}
}

// Log is the partition's log.
func (p *Partition) Log() *log.Log { return p.log }

// State is the metadata of the partition: replicas, ISR, leader, epochs.
func (p *Partition) State() *meta.Partition { return p.state.Load() }

// LeaderEpoch is the current leader epoch (DLE of SPEC).
func (p *Partition) LeaderEpoch() int32 { return p.state.Load().LeaderEpoch }

// MinISR is how many replicas must be in sync for a produce with acks=all.
func (p *Partition) MinISR() int { return int(p.minISR.Load()) }

// IsLeader says whether this broker leads the partition.
func (p *Partition) IsLeader() bool { return p.state.Load().Leader == p.node && !p.gone.Load() }

// SetGate opens or closes the partition for local appends. When it returns, no
// append that the new gate refuses is in flight.
func (p *Partition) SetGate(g Gate) {
	p.gateMu.Lock()
	p.gate = g
	p.gateMu.Unlock()
}

// GateState returns the gate as it is.
func (p *Partition) GateState() Gate {
	p.gateMu.RLock()
	defer p.gateMu.RUnlock()
	return p.gate
}

// setState takes a newer view from the metadata image.
func (p *Partition) setState(s *meta.Partition) {
	p.gateMu.Lock()
	p.state.Store(s)
	p.gateMu.Unlock()
	p.advance()
	p.Wake()
}

// retire ends the partition: when it returns, no append is in flight and none begins.
func (p *Partition) retire() {
	p.gateMu.Lock()
	p.gone.Store(true)
	p.gateMu.Unlock()
}

// checkLeader verifies role and, if the request carries one, the leader epoch (KIP-320).
func (p *Partition) checkLeader(currentEpoch int32) error {
	s := p.state.Load()
	if p.gone.Load() {
		return kerr.UnknownTopicOrPartition
	}
	if s.Leader != p.node {
		return kerr.NotLeaderForPartition
	}
	if currentEpoch >= 0 {
		if currentEpoch < s.LeaderEpoch {
			return Refuse(kerr.FencedLeaderEpoch, "%s-%d: leader epoch %d is older than %d", p.Topic, p.Index, currentEpoch, s.LeaderEpoch)
		}
		if currentEpoch > s.LeaderEpoch {
			return Refuse(kerr.UnknownLeaderEpoch, "%s-%d: leader epoch %d is newer than %d", p.Topic, p.Index, currentEpoch, s.LeaderEpoch)
		}
	}
	return p.log.Err()
}

// AppendAsLeader appends records of a client or of a coordinator here.
func (p *Partition) AppendAsLeader(records []byte, origin log.Origin) (log.AppendResult, error) {
	p.gateMu.RLock()
	defer p.gateMu.RUnlock()
	if err := p.checkLeader(-1); err != nil {
		return log.AppendResult{}, err
	}
	if origin == log.OriginClient && p.gate.Err != nil {
		return log.AppendResult{}, &Refused{p.gate.Err, p.gate.Message}
	}
	res, err := p.log.AppendAsLeader(records, p.state.Load().LeaderEpoch, origin)
	if err != nil {
		return res, err
	}
	p.appended()
	return res, nil
}

// AppendAsFollower appends whole batches that the mirror or a leader sent and
// whose checksums were verified; every byte stays as it is.
func (p *Partition) AppendAsFollower(batches []byte) (log.AppendResult, error) {
	if p.gone.Load() {
		return log.AppendResult{}, kerr.UnknownTopicOrPartition
	}
	res, err := p.log.AppendAsFollower(batches)
	if err != nil {
		return res, err
	}
	p.appended()
	return res, nil
}

func (p *Partition) appended() {
	p.advance()
	p.Wake()
}

// advance moves the high watermark of a leader. The ISR of a single broker is
// this broker, whose own log end is what is replicated. It is called by appends and by changes of the metadata,
// at the same time and in any order.
func (p *Partition) advance() {
	s := p.state.Load()
	if s == nil || s.Leader != p.node {
		return
	}
	if len(s.ISR) == 1 && s.ISR[0] == p.node {
		p.log.AdvanceHighWatermark()
	}
}

// WaitCommitted returns when the high watermark has reached offset (exclusive end).
func (p *Partition) WaitCommitted(ctx context.Context, offset int64) error {
	if p.log.HighWatermark() >= offset {
		return nil
	}
	w := NewWaiter()
	p.Watch(w)
	defer p.Unwatch(w)
	for {
		if p.log.HighWatermark() >= offset {
			return nil
		}
		if err := p.checkLeader(-1); err != nil {
			return err
		}
		select {
		case <-w.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Truncate cuts the log and wakes readers, whose positions may be gone.
func (p *Partition) Truncate(to int64) error {
	err := p.log.Truncate(to)
	p.advance()
	p.Wake()
	return err
}

// TruncateFullyAndStartAt empties the log; the next record may begin at offset.
func (p *Partition) TruncateFullyAndStartAt(offset int64) error {
	err := p.log.TruncateFullyAndStartAt(offset)
	p.advance()
	p.Wake()
	return err
}
