package log

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"stet/zerocopy/batch"
)

// model is the log as a list of batches, from which every answer is worked out anew.
type model struct {
	batches    []batch.Batch
	start, end int64
	hw         int64
	epoch      int32 // of the leader
	reloaded   int64 // log end when the producer state was last read from disk
	epochFrom  int   // batches before it are not known to the epoch cache any more
	nextSeq    map[int64]int32
	pepoch     map[int64]int16
}

func (m *model) readable(from, bound int64) []byte {
	var out []byte
	for _, b := range m.batches {
		if b.LastOffset() >= from && b.NextOffset() <= bound {
			out = append(out, b...)
		}
	}
	return out
}

func (m *model) epochs() []EpochEntry {
	var es []EpochEntry
	for _, b := range m.batches[m.epochFrom:] {
		if n := len(es); n == 0 || es[n-1].Epoch != b.PartitionLeaderEpoch() {
			es = append(es, EpochEntry{b.PartitionLeaderEpoch(), b.BaseOffset()})
		}
	}
	for len(es) > 1 && es[1].Start <= m.start {
		es = es[1:]
	}
	if len(es) > 0 {
		es[0].Start = max(es[0].Start, m.start)
	}
	for len(es) > 0 && es[len(es)-1].Start >= m.end && es[len(es)-1].Start > m.start {
		es = es[:len(es)-1]
	}
	return es
}

func (m *model) epochEnd(requested, current int32) (int32, int64) {
	es := m.epochs()
	if len(es) == 0 && requested >= 0 && requested == current {
		return requested, m.end
	}
	if len(es) == 0 || requested < 0 {
		return -1, -1
	}
	if last := es[len(es)-1].Epoch; requested > last {
		if requested <= current {
			return last, m.end
		}
		return -1, -1
	}
	floor, end := requested, m.end
	for i := len(es) - 1; i >= 0; i-- {
		if es[i].Epoch <= requested {
			return es[i].Epoch, end
		}
		end = es[i].Start
	}
	return floor, end
}

type span struct{ pid, first, last int64 }

// txns works out what is open, what was aborted, and what was finished, from all batches.
func (m *model) txns() (open map[int64]int64, aborted, finished []span) {
	open = map[int64]int64{}
	for _, b := range m.batches {
		pid := b.ProducerID()
		if !b.IsControl() {
			if _, ok := open[pid]; !ok && b.IsTransactional() {
				open[pid] = b.BaseOffset()
			}
			continue
		}
		typ, err := b.ControlType()
		if err != nil {
			panic(err)
		}
		if typ == batch.ControlMirrorPIDReset {
			clear(open)
			continue
		}
		if first, ok := open[pid]; ok {
			delete(open, pid)
			finished = append(finished, span{pid, first, b.BaseOffset()})
			if typ == batch.ControlAbort {
				aborted = append(aborted, span{pid, first, b.BaseOffset()})
			}
		}
	}
	return open, aborted, finished
}

// lastStable bounds the last stable offset. A transaction that was finished before the last
// reload of the state, but is not replicated, may or may not hold it back: snapshots, like
// Kafka's, do not know it. Its ABORT is in the transaction index all the same.
func (m *model) lastStable() (low, high int64) {
	open, _, finished := m.txns()
	low = m.hw
	for _, first := range open {
		low = min(low, max(first, m.start))
	}
	high = low
	for _, f := range finished {
		if f.last < m.hw {
			continue
		}
		low = min(low, max(f.first, m.start))
		if f.last >= m.reloaded {
			high = min(high, max(f.first, m.start))
		}
	}
	return low, high
}

func (m *model) cut(to int64) {
	for n := len(m.batches); n > 0 && m.batches[n-1].LastOffset() >= to; n-- {
		m.batches = m.batches[:n-1]
	}
	m.end = min(m.end, to)
	if m.end <= m.start {
		m.epochFrom = len(m.batches)
	}
	m.start, m.hw = min(m.start, m.end), min(m.hw, m.end)
	m.epochFrom = min(m.epochFrom, len(m.batches))
	m.reloaded = m.end
	m.forgetSequences()
}

// adoptFloor accepts what a crash may change of the epoch in force at the log start: with
// nothing after it, it is forgotten if the batch below is gone; and a scan finds it again, if
// that batch is still there, after a truncation to the log start had dropped it as Kafka does.
func (m *model) adoptFloor(l *Log) {
	es := l.EpochEntries()
	if m.start == m.end && len(es) == 0 {
		m.epochFrom = len(m.batches)
	}
	if len(es) > 0 && es[0].Start > m.start {
		// The log start lay in a gap, and the batch before the gap is gone.
		m.epochFrom = slices.IndexFunc(m.batches, func(b batch.Batch) bool { return b.BaseOffset() >= es[0].Start })
		return
	}
	if m.epochFrom == 0 || len(es) == 0 || es[0].Start != m.start {
		return
	}
	for i := m.epochFrom - 1; i >= 0 && m.batches[i].PartitionLeaderEpoch() == es[0].Epoch; i-- {
		m.epochFrom = i
	}
}

// forgetSequences makes the model's producers agree with the batches that are left.
func (m *model) forgetSequences() {
	m.nextSeq, m.pepoch = map[int64]int32{}, map[int64]int16{}
	for _, b := range m.batches {
		if b.IsControl() {
			if typ, _ := b.ControlType(); typ == batch.ControlMirrorPIDReset {
				clear(m.nextSeq)
				clear(m.pepoch)
			}
			continue
		}
		if b.ProducerID() >= 0 {
			m.nextSeq[b.ProducerID()] = b.LastSequence() + 1
			m.pepoch[b.ProducerID()] = b.ProducerEpoch()
		}
	}
}

// TestModel runs random operations against the log and the model.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		e := newEnv(t)
		e.cfg.SegmentBytes = int32(rapid.IntRange(200, 3000).Draw(rt, "segment.bytes"))
		e.cfg.IndexIntervalBytes = int32(rapid.IntRange(0, 400).Draw(rt, "index.interval"))
		e.cfg.SegmentIndexBytes = int32(rapid.IntRange(48, 400).Draw(rt, "segment.index.bytes"))
		l := e.create()
		m := &model{nextSeq: map[int64]int32{}, pepoch: map[int64]int16{}}
		steps := rapid.IntRange(1, 60).Draw(rt, "steps")
		for i := range steps {
			op := rapid.SampledFrom([]string{
				"lead", "lead", "follow", "follow", "idem", "retry", "wrongseq", "txn", "txn", "mark", "mark",
				"reset", "truncate", "full", "start", "hw", "hw", "clean", "kill", "power", "flush", "sealed", "checkpoint", "idle",
			}).Draw(rt, fmt.Sprintf("op%d", i))
			l = step(rt, e, l, m, op)
			compare(rt, e, l, m)
		}
	})
}

func step(rt *rapid.T, e *env, l *Log, m *model, op string) *Log {
	must := func(err error) {
		rt.Helper()
		if err != nil {
			rt.Fatalf("%s: %v", op, err)
		}
	}
	lead := func(b []byte, o Origin) {
		rt.Helper()
		m.epoch += int32(rapid.SampledFrom([]int{0, 0, 0, 1, 5}).Draw(rt, "epoch step"))
		r, err := l.AppendAsLeader(b, m.epoch, o)
		must(err)
		if r.FirstOffset != m.end || r.Duplicate {
			rt.Fatalf("%s: %+v, end %d", op, r, m.end)
		}
		m.batches = append(m.batches, slices.Clone(b))
		m.end = r.LastOffset + 1
	}
	n := rapid.IntRange(1, 6).Draw(rt, "n")
	pid := int64(rapid.IntRange(100, 103).Draw(rt, "pid"))
	epoch := m.pepoch[pid]
	open, _, _ := m.txns()
	_, inTxn := open[pid]
	e.clock.Advance(1e6)
	stamp := func(h *batch.Header) {
		h.Timestamp = e.clock.Now().UnixMilli() + int64(rapid.IntRange(-50, 50).Draw(rt, "ts"))
	}
	switch op {
	case "lead":
		h := hdr()
		stamp(&h)
		lead(batch.Build(nil, h, kvs(n, "lead")...), OriginClient)
	case "follow":
		var all []byte
		for range rapid.IntRange(1, 4).Draw(rt, "batches") {
			m.epoch += int32(rapid.SampledFrom([]int{0, 0, 1, 3}).Draw(rt, "epoch step"))
			h := hdr()
			stamp(&h)
			h.BaseOffset = m.end + int64(rapid.SampledFrom([]int{0, 0, 0, 1, 7}).Draw(rt, "gap"))
			h.PartitionLeaderEpoch = m.epoch
			b := batch.Build(nil, h, kvs(n, "follow")...)
			all = append(all, b...)
			m.batches = append(m.batches, b)
			m.end = batch.Batch(b).NextOffset()
		}
		_, err := l.AppendAsFollower(all)
		must(err)
		if _, err := l.AppendAsFollower(at(m.end-1, m.epoch, 1)); !errors.Is(err, ErrOffsetOrder) {
			rt.Fatalf("an append below the end: %v", err)
		}
	case "idem":
		if inTxn {
			break
		}
		lead(idem(pid, epoch, m.nextSeq[pid], n), OriginClient)
		m.nextSeq[pid] += int32(n)
		m.pepoch[pid] = epoch
	case "retry":
		for i := len(m.batches) - 1; i >= 0; i-- {
			b := m.batches[i]
			if b.ProducerID() != pid || b.IsControl() {
				continue
			}
			if b.LastSequence()+1 != m.nextSeq[pid] {
				break // forgotten by a reset
			}
			c := slices.Clone(b)
			c.SetBaseOffset(0)
			r, err := l.AppendAsLeader(c, m.epoch, OriginClient)
			must(err)
			if !r.Duplicate || r.FirstOffset != b.BaseOffset() || r.LastOffset != b.LastOffset() {
				rt.Fatalf("retry of %d: %+v", b.BaseOffset(), r)
			}
			break
		}
	case "wrongseq":
		if next, ok := m.nextSeq[pid]; ok && !inTxn {
			if _, err := l.AppendAsLeader(idem(pid, epoch, next+1, n), m.epoch, OriginClient); !errors.Is(err, ErrOutOfOrderSequence) {
				rt.Fatalf("sequence %d instead of %d: %v", next+1, next, err)
			}
			if epoch > 0 {
				if _, err := l.AppendAsLeader(idem(pid, epoch-1, next, n), m.epoch, OriginClient); !errors.Is(err, ErrInvalidProducerEpoch) {
					rt.Fatalf("old epoch: %v", err)
				}
			}
		}
	case "txn":
		lead(txn(pid, epoch, m.nextSeq[pid], n), OriginClient)
		m.nextSeq[pid] += int32(n)
		m.pepoch[pid] = epoch
	case "mark":
		if !inTxn {
			break
		}
		lead(endTxn(pid, epoch, rapid.Bool().Draw(rt, "commit"), 1), OriginCoordinator)
	case "reset":
		lead(pidReset(), OriginInternal)
		if got := l.ActiveProducers(); len(got) != 0 {
			rt.Fatalf("producers after a reset: %v", got)
		}
		clear(m.nextSeq)
		clear(m.pepoch)
	case "truncate":
		to := rapid.Int64Range(0, m.end+2).Draw(rt, "to")
		if len(l.segs) > 0 && to < l.segs[0].base {
			must(l.Truncate(to))
			m.batches, m.epochFrom, m.start, m.end, m.hw = nil, 0, to, to, to
			m.forgetSequences()
			break
		}
		base := l.segs[0].base
		must(l.Truncate(to))
		if to >= m.end {
			break
		}
		n := len(m.batches)
		for n > 0 && m.batches[n-1].LastOffset() >= to {
			n--
		}
		if n == 0 || m.batches[n-1].BaseOffset() < base {
			to = max(base, min(to, m.start))
		} else {
			to = m.batches[n-1].NextOffset()
		}
		m.cut(to)
	case "full":
		to := rapid.Int64Range(0, m.end+100).Draw(rt, "to")
		must(l.TruncateFullyAndStartAt(to))
		m.batches, m.epochFrom, m.start, m.end, m.hw = nil, 0, to, to, to
		m.forgetSequences()
	case "start":
		to := rapid.Int64Range(m.start, m.end).Draw(rt, "to")
		must(l.IncrementLogStartOffset(to))
		m.start, m.hw = to, max(m.hw, to)
	case "hw":
		to := rapid.Int64Range(m.start, m.end).Draw(rt, "to")
		if to >= m.hw {
			l.SetHighWatermark(to)
			m.hw = to
		}
	case "clean":
		m.reloaded = m.end
		e.logs.Reset()
		l = e.reopen()
		if s := e.logs.String(); strings.Contains(s, "leader epochs") {
			rt.Fatalf("after a clean stop: %s", s)
		}
	case "kill":
		// The log start and the high watermark are only in checkpoints.
		e.m.Checkpoint()
		m.reloaded = m.end
		l = e.crash(e.mem.Clone())
		m.adoptFloor(l)
	case "power":
		must(l.Flush())
		e.m.Checkpoint()
		start, hw := m.start, m.hw
		m.reloaded = m.end
		rnd := rand.New(rand.NewPCG(uint64(rapid.Int().Draw(rt, "seed")), 1))
		l = e.crash(e.mem.CrashClone(rnd))
		// Start and watermark may be those of an older checkpoint; what they say must hold.
		if l.LogStartOffset() > start || l.HighWatermark() > l.LogEndOffset() {
			rt.Fatalf("start %d, was %d; watermark %d", l.LogStartOffset(), start, l.HighWatermark())
		}
		must(l.IncrementLogStartOffset(start))
		l.SetHighWatermark(hw)
		m.adoptFloor(l)
	case "flush":
		must(l.Flush())
		if l.RecoveryPoint() < m.end {
			rt.Fatalf("recovery point %d after a flush, end %d", l.RecoveryPoint(), m.end)
		}
	case "sealed":
		e.m.FlushSealed()
	case "checkpoint":
		e.m.Checkpoint()
	case "idle":
		l.dropIdleIndexes()
		l.dropIdleIndexes()
	}
	return l
}

func compare(rt *rapid.T, e *env, l *Log, m *model) {
	rt.Helper()
	if l.LogStartOffset() != m.start || l.LogEndOffset() != m.end || l.HighWatermark() != m.hw {
		rt.Fatalf("log %d..%d hw %d, model %d..%d hw %d", l.LogStartOffset(), l.LogEndOffset(), l.HighWatermark(), m.start, m.end, m.hw)
	}
	if low, high := m.lastStable(); l.LastStableOffset() < low || l.LastStableOffset() > high {
		rt.Fatalf("last stable offset %d, want %d to %d", l.LastStableOffset(), low, high)
	}
	if got, want := l.EpochEntries(), m.epochs(); !slices.Equal(got, want) {
		rt.Fatalf("epochs %v, want %v", got, want)
	}
	for _, q := range []int32{-1, 0, m.epoch - 1, m.epoch, m.epoch + 1, m.epoch + 9} {
		ge, go_ := l.EndOffsetForEpoch(q, m.epoch+1)
		we, wo := m.epochEnd(q, m.epoch+1)
		if ge != we || go_ != wo {
			rt.Fatalf("epoch %d: (%d, %d), want (%d, %d)", q, ge, go_, we, wo)
		}
	}
	from := rapid.Int64Range(m.start, m.end).Draw(rt, "from")
	bound := rapid.Int64Range(from, m.end).Draw(rt, "bound")
	if got, want := readAll(e.t, l, from, bound), m.readable(from, bound); !bytes.Equal(got, want) {
		rt.Fatalf("read [%d, %d): %d bytes, want %d", from, bound, len(got), len(want))
	}
	if got, want := readAll(e.t, l, m.start, m.end), m.readable(m.start, m.end); !bytes.Equal(got, want) {
		rt.Fatalf("read all: %d bytes, want %d", len(got), len(want))
	}
	compareTxns(rt, l, m, from, bound)
	compareTimes(rt, e, l, m)
	var size int64
	for _, s := range l.segs {
		size += s.size
	}
	if l.Size() != size {
		rt.Fatalf("size %d, want %d", l.Size(), size)
	}
}

func compareTxns(rt *rapid.T, l *Log, m *model, from, bound int64) {
	rt.Helper()
	open, aborted, _ := m.txns()
	var want []AbortedTxn
	for _, a := range aborted {
		if a.last >= from && a.first < bound {
			want = append(want, AbortedTxn{a.pid, a.first})
		}
	}
	if got := l.AbortedTxns(from, bound); !slices.Equal(got, want) {
		rt.Fatalf("aborted in [%d, %d): %v, want %v", from, bound, got, want)
	}
	var firsts []int64
	for _, f := range open {
		firsts = append(firsts, f)
	}
	slices.Sort(firsts)
	got := l.OpenTransactions()
	if len(got) != len(firsts) {
		rt.Fatalf("open %v, want %v", got, firsts)
	}
	for i, o := range got {
		if o.FirstOffset != firsts[i] || open[o.ProducerID] != o.FirstOffset {
			rt.Fatalf("open %v, want %v", got, open)
		}
	}
	for pid, next := range m.nextSeq {
		i := slices.IndexFunc(l.ActiveProducers(), func(p ProducerState) bool { return p.ProducerID == pid })
		if i < 0 || l.ActiveProducers()[i].LastSequence != next-1 {
			rt.Fatalf("producer %d: %v, want sequence %d", pid, l.ActiveProducers(), next-1)
		}
	}
}

func compareTimes(rt *rapid.T, e *env, l *Log, m *model) {
	rt.Helper()
	ts := e.clock.Now().UnixMilli() - int64(rapid.IntRange(-60, 100).Draw(rt, "lookup"))
	want, wantTs := int64(-1), int64(-1)
	for _, b := range m.batches {
		if b.LastOffset() >= m.start && b.MaxTimestamp() >= ts {
			want, wantTs = max(b.BaseOffset(), m.start), b.MaxTimestamp()
			break
		}
	}
	got, gotTs, _, err := l.OffsetForTimestamp(ts)
	if err != nil || got != want || gotTs != wantTs {
		rt.Fatalf("timestamp %d: offset %d at %d, want %d at %d (%v)", ts, got, gotTs, want, wantTs, err)
	}
	// The time index knows the largest timestamp of every segment.
	for _, s := range l.segs {
		largest := int64(-1)
		for _, b := range m.batches {
			i := sort.Search(len(l.segs), func(i int) bool { return l.segs[i].base > b.BaseOffset() }) - 1
			if i >= 0 && l.segs[i] == s {
				largest = max(largest, b.MaxTimestamp())
			}
		}
		if got, _, err := s.largestTs(s.size); err != nil || (s.size > 0 && got != largest) {
			rt.Fatalf("segment %d: largest timestamp %d, want %d (%v)", s.base, got, largest, err)
		}
	}
}
