package log

import (
	"fmt"
	"math"
	"slices"

	"stet/zerocopy/batch"
)

// keptBatches is how many of a producer's last batches are known for finding duplicates.
const keptBatches = 5

// sentBatch is what is kept of one batch of a producer.
type sentBatch struct {
	lastSeq   int32
	delta     int32 // last offset minus base offset
	lastOff   int64
	timestamp int64
}

func (s sentBatch) firstSeq() int32 {
	return int32((int64(s.lastSeq) - int64(s.delta)) & math.MaxInt32)
}

// producer is the state of one producer id.
type producer struct {
	id        int64
	epoch     int16 // -1: none known
	coord     int32 // coordinator epoch of the last marker, -1: none
	n         int8  // batches kept
	batches   [keptBatches]sentBatch
	timestamp int64
	txnFirst  int64 // first offset of the open transaction, -1: none
}

func (p *producer) lastSeq() int32 {
	if p.n == 0 {
		return -1
	}
	return p.batches[p.n-1].lastSeq
}

func (p *producer) lastOffset() int64 {
	if p.n == 0 {
		return -1
	}
	return p.batches[p.n-1].lastOff
}

func (p *producer) setEpoch(e int16) {
	if p.epoch != e {
		p.epoch, p.n = e, 0
	}
}

func (p *producer) add(s sentBatch) {
	if p.n == keptBatches {
		copy(p.batches[:], p.batches[1:])
		p.n--
	}
	p.batches[p.n] = s
	p.n++
}

// txnSpan is a finished transaction that is not yet below the high watermark.
type txnSpan struct {
	first, last int64
}

// openTxn is a transaction without a marker.
type openTxn struct {
	first    int64
	producer int64
}

// producers is the producer state of a partition: Kafka's ProducerStateManager in meaning.
// It is guarded by the log's mutex.
type producers struct {
	m        map[int64]*producer
	open     []openTxn // sorted by first offset
	finished []txnSpan // in order of their markers
	mapEnd   int64     // the state is that after this offset - 1
}

func newProducers() *producers { return &producers{m: map[int64]*producer{}} }

// clear forgets everything.
func (s *producers) clear() {
	clear(s.m)
	s.open, s.finished = s.open[:0], s.finished[:0]
	s.mapEnd = 0
}

// reset is what a MIRROR_PID_RESET does: no producer id is known any more (SPEC 7.5). Finished
// transactions keep holding the last stable offset until they are replicated.
func (s *producers) reset() {
	clear(s.m)
	s.open = s.open[:0]
}

// duplicate looks for a batch that was stored before (idempotent retry).
func (s *producers) duplicate(b batch.Batch) (sentBatch, bool) {
	p := s.m[b.ProducerID()]
	if p == nil || p.epoch != b.ProducerEpoch() {
		return sentBatch{}, false
	}
	first, last := b.BaseSequence(), b.LastSequence()
	for _, k := range p.batches[:p.n] {
		if k.firstSeq() == first && k.lastSeq == last {
			return k, true
		}
	}
	return sentBatch{}, false
}

// check is what a leader refuses, before anything is written. Sequences are only checked
// for clients.
func (s *producers) check(b batch.Batch, origin Origin) error {
	id, epoch := b.ProducerID(), b.ProducerEpoch()
	p := s.m[id]
	if b.IsControl() {
		if p == nil {
			return nil
		}
		if epoch < p.epoch {
			return fmt.Errorf("%w: producer %d: marker epoch %d, current %d", ErrInvalidProducerEpoch, id, epoch, p.epoch)
		}
		if m, ok, err := readMarker(b); err != nil {
			return err
		} else if ok && m.coordinatorEpoch < p.coord {
			return fmt.Errorf("%w: producer %d: coordinator epoch %d, current %d", ErrCoordinatorFenced, id, m.coordinatorEpoch, p.coord)
		}
		return nil
	}
	if p == nil {
		return nil // any sequence is accepted of an unknown producer (KIP-360)
	}
	if epoch < p.epoch {
		return fmt.Errorf("%w: producer %d: epoch %d, current %d", ErrInvalidProducerEpoch, id, epoch, p.epoch)
	}
	if origin == OriginClient && p.epoch >= 0 {
		seq := b.BaseSequence()
		switch {
		case epoch != p.epoch && seq != 0:
			return fmt.Errorf("%w: producer %d: sequence %d with the new epoch %d, current epoch %d", ErrOutOfOrderSequence, id, seq, epoch, p.epoch)
		case epoch == p.epoch && !follows(p.lastSeq(), seq):
			return fmt.Errorf("%w: producer %d: sequence %d after %d", ErrOutOfOrderSequence, id, seq, p.lastSeq())
		}
	}
	if p.txnFirst >= 0 && !b.IsTransactional() {
		return fmt.Errorf("%w: producer %d: non-transactional batch in a transaction", ErrInvalidTxnState, id)
	}
	return nil
}

func follows(last, next int32) bool {
	return int64(next) == int64(last)+1 || (next == 0 && last == math.MaxInt32)
}

// marker is the content of a control record.
type marker struct {
	typ              int16
	coordinatorEpoch int32
}

// readMarker reads an ABORT or COMMIT; ok is false for other control batches.
func readMarker(b batch.Batch) (m marker, ok bool, err error) {
	if b.NumRecords() == 0 {
		return m, false, nil // the cleaner emptied it: the whole transaction is gone
	}
	key, value, err := b.FirstRecord()
	if err != nil {
		return m, false, fmt.Errorf("%w: %w", ErrCorruptMessage, err)
	}
	if len(key) < 4 {
		return m, false, fmt.Errorf("%w: control key of %d bytes", ErrCorruptMessage, len(key))
	}
	m.typ = int16(be.Uint16(key[2:]))
	if m.typ != batch.ControlAbort && m.typ != batch.ControlCommit {
		return m, false, nil
	}
	if len(value) < 6 {
		return m, false, fmt.Errorf("%w: transaction marker of %d bytes", ErrCorruptMessage, len(value))
	}
	m.coordinatorEpoch = int32(be.Uint32(value[2:]))
	return m, true, nil
}

// apply follows one stored batch, on leader, follower and recovery alike. It returns the
// entry for the transaction index if the batch aborted a transaction.
func (s *producers) apply(b batch.Batch) (aborted abortedTxn, ok bool) {
	s.mapEnd = b.NextOffset()
	if b.IsControl() {
		return s.applyControl(b)
	}
	id := b.ProducerID()
	if id < 0 {
		return aborted, false
	}
	p := s.m[id]
	if p == nil {
		p = &producer{id: id, epoch: -1, coord: -1, txnFirst: -1}
		s.m[id] = p
	}
	p.setEpoch(b.ProducerEpoch())
	p.timestamp = b.MaxTimestamp()
	p.add(sentBatch{b.LastSequence(), b.LastOffsetDelta(), b.LastOffset(), p.timestamp})
	if b.IsTransactional() && p.txnFirst < 0 {
		p.txnFirst = b.BaseOffset()
		s.addOpen(openTxn{p.txnFirst, id})
	}
	return aborted, false
}

func (s *producers) applyControl(b batch.Batch) (aborted abortedTxn, ok bool) {
	if typ, err := b.ControlType(); err == nil && typ == batch.ControlMirrorPIDReset {
		s.reset()
		return aborted, false
	}
	m, isMarker, err := readMarker(b)
	id := b.ProducerID()
	if err != nil || !isMarker || id < 0 {
		return aborted, false // not a marker: it concerns no producer
	}
	p := s.m[id]
	if p == nil {
		p = &producer{id: id, epoch: -1, coord: -1, txnFirst: -1}
		s.m[id] = p
	}
	first := p.txnFirst
	p.setEpoch(b.ProducerEpoch())
	p.coord, p.txnFirst, p.timestamp = m.coordinatorEpoch, -1, b.MaxTimestamp()
	if first < 0 {
		return aborted, false // nothing was written in the transaction
	}
	s.removeOpen(first)
	last := b.BaseOffset()
	s.finished = append(s.finished, txnSpan{first, last})
	if m.typ != batch.ControlAbort {
		return aborted, false
	}
	stable := last + 1
	if len(s.open) > 0 {
		stable = s.open[0].first
	}
	return abortedTxn{id, first, last, stable}, true
}

func (s *producers) addOpen(t openTxn) {
	i := len(s.open)
	for i > 0 && s.open[i-1].first > t.first {
		i--
	}
	s.open = slices.Insert(s.open, i, t)
}

func (s *producers) removeOpen(first int64) {
	for i, t := range s.open {
		if t.first == first {
			s.open = slices.Delete(s.open, i, i+1)
			return
		}
	}
}

// replicated forgets the finished transactions whose marker is below the high watermark.
func (s *producers) replicated(hw int64) {
	s.finished = slices.DeleteFunc(s.finished, func(t txnSpan) bool { return t.last < hw })
}

// firstUnstable is the first offset of the earliest transaction that is open or not yet
// replicated, math.MaxInt64 if there is none.
func (s *producers) firstUnstable() int64 {
	first := int64(math.MaxInt64)
	if len(s.open) > 0 {
		first = s.open[0].first
	}
	for _, t := range s.finished {
		first = min(first, t.first)
	}
	return first
}

// expire drops producers that wrote nothing for as long as Kafka remembers them.
func (s *producers) expire(nowMs, afterMs int64) {
	for id, p := range s.m {
		if p.txnFirst < 0 && nowMs-p.timestamp >= afterMs {
			delete(s.m, id)
		}
	}
}

func (s *producers) openTransactions() []OpenTxn {
	out := make([]OpenTxn, 0, len(s.open))
	for _, t := range s.open {
		p := s.m[t.producer]
		out = append(out, OpenTxn{ProducerID: p.id, ProducerEpoch: p.epoch, CoordinatorEpoch: p.coord, FirstOffset: t.first})
	}
	return out
}

func (s *producers) states() []ProducerState {
	out := make([]ProducerState, 0, len(s.m))
	for _, p := range s.m {
		out = append(out, ProducerState{
			ProducerID: p.id, ProducerEpoch: p.epoch, LastSequence: p.lastSeq(), LastOffset: p.lastOffset(),
			LastTimestamp: p.timestamp, CoordinatorEpoch: p.coord, CurrentTxnFirstOffset: p.txnFirst,
		})
	}
	slices.SortFunc(out, func(a, b ProducerState) int {
		if a.ProducerID < b.ProducerID {
			return -1
		}
		return 1
	})
	return out
}
