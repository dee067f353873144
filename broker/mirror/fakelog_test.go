package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"stet/broker/mirror"
	"stet/zerocopy/batch"
)

// fakeLog is a partition in memory. Its metadata come from the world's image.
type fakeLog struct {
	w         *world
	topic     string
	partition int32
	inc       int64

	mu      sync.Mutex
	start   int64
	end     int64
	batches [][]byte
	gate    mirror.Gate
	gates   []mirror.GateKind
	flushed int64
	cleaned int64 // what a cleaner has looked at
}

func (l *fakeLog) Incarnation() int64 { return l.inc }

func (l *fakeLog) IsLeader() bool { return true }

func (l *fakeLog) LeaderEpoch() int32 {
	if p := l.w.image().Partition(l.topic, l.partition); p != nil {
		return p.LeaderEpoch
	}
	return -1
}

func (l *fakeLog) lock() func() { l.mu.Lock(); return l.mu.Unlock }

func (l *fakeLog) LogStartOffset() int64   { defer l.lock()(); return l.start }
func (l *fakeLog) LogEndOffset() int64     { defer l.lock()(); return l.end }
func (l *fakeLog) HighWatermark() int64    { return l.LogEndOffset() }
func (l *fakeLog) LastStableOffset() int64 { return l.LogEndOffset() }

func (l *fakeLog) LatestEpoch() int32 {
	defer l.lock()()
	if n := len(l.batches); n > 0 {
		return batch.Batch(l.batches[n-1]).PartitionLeaderEpoch()
	}
	return -1
}

func (l *fakeLog) EpochEntries() (out []mirror.EpochStart) {
	defer l.lock()()
	for _, raw := range l.batches {
		b := batch.Batch(raw)
		if n := len(out); n == 0 || out[n-1].Epoch < b.PartitionLeaderEpoch() {
			out = append(out, mirror.EpochStart{Epoch: b.PartitionLeaderEpoch(), Start: max(b.BaseOffset(), l.start)})
		}
	}
	return out
}

func (l *fakeLog) OpenTransactions() (out []mirror.OpenTransaction) {
	defer l.lock()()
	for _, raw := range l.batches {
		b := batch.Batch(raw)
		if !b.IsControl() {
			if b.IsTransactional() && !hasTx(out, b.ProducerID()) {
				out = append(out, mirror.OpenTransaction{ProducerID: b.ProducerID(), ProducerEpoch: b.ProducerEpoch(), CoordinatorEpoch: -1})
			}
			continue
		}
		typ, _ := b.ControlType()
		if typ == batch.ControlMirrorPIDReset {
			out = nil
			continue
		}
		for i := range out {
			if out[i].ProducerID == b.ProducerID() {
				out = append(out[:i], out[i+1:]...)
				break
			}
		}
	}
	return out
}

func hasTx(txs []mirror.OpenTransaction, id int64) bool {
	for _, t := range txs {
		if t.ProducerID == id {
			return true
		}
	}
	return false
}

func (l *fakeLog) AppendMirrored(batches []byte) error {
	epoch := l.LeaderEpoch()
	defer l.lock()()
	if l.gate.Kind == mirror.GateOpen {
		return errors.New("mirrored bytes for an open partition")
	}
	for len(batches) > 0 {
		b, rest, err := batch.Next(batches)
		if err != nil {
			return err
		}
		if b.BaseOffset() < l.end && len(l.batches) > 0 {
			return fmt.Errorf("offset %d below the end %d", b.BaseOffset(), l.end)
		}
		if b.PartitionLeaderEpoch() > epoch {
			return fmt.Errorf("epoch %d above the leader epoch %d", b.PartitionLeaderEpoch(), epoch)
		}
		l.batches = append(l.batches, append([]byte(nil), b...))
		l.end = b.NextOffset()
		batches = rest
	}
	return nil
}

func (l *fakeLog) AppendControl(batches []byte) error { return l.appendLocal(batches, true) }

// produce is what a client appends.
func (l *fakeLog) produce(batches []byte) error { return l.appendLocal(batches, false) }

func (l *fakeLog) appendLocal(batches []byte, own bool) error {
	epoch := l.LeaderEpoch()
	defer l.lock()()
	if !own && l.gate.Kind != mirror.GateOpen {
		return fmt.Errorf("the gate is %v", l.gate)
	}
	b := batch.Batch(append([]byte(nil), batches...))
	b.SetBaseOffset(l.end)
	b.SetPartitionLeaderEpoch(epoch)
	if err := b.Check(); err != nil {
		return err
	}
	l.batches = append(l.batches, b)
	l.end = b.NextOffset()
	return nil
}

func (l *fakeLog) NeedsFullCopy(to int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return to < l.cleaned
}

func (l *fakeLog) Truncate(to int64) error {
	defer l.lock()()
	for len(l.batches) > 0 && batch.Batch(l.batches[len(l.batches)-1]).NextOffset() > to {
		l.batches = l.batches[:len(l.batches)-1]
	}
	l.end = min(l.end, to)
	return nil
}

func (l *fakeLog) TruncateFullyAndStartAt(offset int64) error {
	defer l.lock()()
	l.batches, l.start, l.end = nil, offset, offset
	return nil
}

func (l *fakeLog) IncrementLogStartOffset(to int64) error {
	defer l.lock()()
	if to > l.end {
		return errors.New("log start beyond the end")
	}
	l.start = max(l.start, to)
	for len(l.batches) > 0 && batch.Batch(l.batches[0]).NextOffset() <= l.start {
		l.batches = l.batches[1:]
	}
	return nil
}

func (l *fakeLog) WaitReplicated(ctx context.Context, _ int64) error  { return ctx.Err() }
func (l *fakeLog) WaitAllReplicas(ctx context.Context, _ int64) error { return ctx.Err() }

func (l *fakeLog) ReadBatches(offset int64, limit int) ([]byte, error) {
	defer l.lock()()
	var out []byte
	for _, raw := range l.batches {
		if batch.Batch(raw).NextOffset() > offset && (len(out) == 0 || len(out)+len(raw) <= limit) {
			out = append(out, raw...)
		}
	}
	return out, nil
}

func (l *fakeLog) Flush() error {
	defer l.lock()()
	l.flushed = l.end
	return nil
}

func (l *fakeLog) SetGate(g mirror.Gate) {
	defer l.lock()()
	l.gate = g
	l.gates = append(l.gates, g.Kind)
}

func (l *fakeLog) gateKind() mirror.GateKind { defer l.lock()(); return l.gate.Kind }

// bytes are all batches.
func (l *fakeLog) bytes() (out []byte) {
	defer l.lock()()
	for _, b := range l.batches {
		out = append(out, b...)
	}
	return out
}

// control lists the control batches as "offset type producer".
func (l *fakeLog) control() (out []string) {
	defer l.lock()()
	for _, raw := range l.batches {
		if b := batch.Batch(raw); b.IsControl() {
			typ, _ := b.ControlType()
			out = append(out, fmt.Sprintf("%d %s %d", b.BaseOffset(), map[int16]string{0: "ABORT", 1: "COMMIT", 7: "RESET"}[typ], b.ProducerID()))
		}
	}
	return out
}
