package log

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"stet/broker/log/records"
	"stet/internal/invariant"
	"stet/internal/vfs"
	"stet/zerocopy/batch"
)

// stored is one data record as a reader finds it.
type stored struct {
	offset     int64
	key, value string
	tombstone  bool
	timestamp  int64
}

// cmBatch is a batch of the compaction model.
type cmBatch struct {
	base, last int64
	pid        int64
	control    bool
	commit     bool
	txn        bool
	aborted    bool // decided
	records    []stored
	horizon    int64 // -1: none
}

// cmodel is a compacted log as a list of batches.
type cmodel struct {
	batches []*cmBatch
	end     int64
	loose   map[int64]bool // producers whose last sequence may be lost with a restart
}

func (m *cmodel) open() map[int64]bool {
	open := map[int64]bool{}
	for _, b := range m.batches {
		if b.control {
			delete(open, b.pid)
		} else if b.txn {
			open[b.pid] = true
		}
	}
	return open
}

// decide marks the batches of the transaction that a marker ends.
func (m *cmodel) decide(pid int64, commit bool) {
	for i := len(m.batches) - 1; i >= 0; i-- {
		b := m.batches[i]
		if b.pid != pid {
			continue
		}
		if b.control {
			return
		}
		if b.txn {
			b.aborted = !commit
		}
	}
}

// round is what a compaction does: of each key only the last committed record below end stays,
// nothing of aborted transactions in the segments below covered, tombstones until their horizon.
func (m *cmodel) round(end, covered, now, retention int64) {
	last := map[string]int64{}
	for _, b := range m.batches {
		if b.control || b.aborted {
			continue
		}
		for _, r := range b.records {
			if r.offset < end {
				last[r.key] = r.offset
			}
		}
	}
	for _, b := range m.batches {
		if b.base >= covered || b.control {
			continue
		}
		if b.aborted {
			b.records = nil
			continue
		}
		b.records = slices.DeleteFunc(b.records, func(r stored) bool {
			if r.offset >= end {
				return false
			}
			return r.offset < last[r.key] || (r.tombstone && b.horizon >= 0 && b.horizon <= now)
		})
		if b.horizon < 0 && slices.ContainsFunc(b.records, func(r stored) bool { return r.tombstone }) {
			b.horizon = now + retention
		}
	}
}

func (m *cmodel) all() (out []stored) {
	for _, b := range m.batches {
		out = append(out, b.records...)
	}
	return out
}

func (m *cmodel) committed(upTo int64) (out []stored) {
	for _, b := range m.batches {
		if b.base < upTo && !b.aborted {
			out = append(out, b.records...)
		}
	}
	return out
}

func (m *cmodel) cut(to int64) {
	for n := len(m.batches); n > 0 && m.batches[n-1].last >= to; n-- {
		b := m.batches[n-1]
		if b.control { // the transaction is open again
			for _, o := range m.batches[:n-1] {
				if o.pid == b.pid && o.txn && o.last > m.prevMarker(n-1, b.pid) {
					o.aborted = false
				}
			}
		}
		m.batches = m.batches[:n-1]
	}
}

func (m *cmodel) prevMarker(n int, pid int64) int64 {
	for i := n - 1; i >= 0; i-- {
		if m.batches[i].control && m.batches[i].pid == pid {
			return m.batches[i].last
		}
	}
	return -1
}

// decodeAll turns stored bytes into records; without aborted it skips, as a read-committed
// client does, what belongs to aborted transactions.
func decodeAll(t testing.TB, p []byte, aborted []AbortedTxn) (out []stored) {
	t.Helper()
	skipping := map[int64]bool{}
	slices.SortFunc(aborted, func(a, b AbortedTxn) int { return int(a.FirstOffset - b.FirstOffset) })
	for len(p) > 0 {
		b, rest, err := batch.Next(p)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Check(); err != nil {
			t.Fatal(err)
		}
		p = rest
		for len(aborted) > 0 && aborted[0].FirstOffset <= b.LastOffset() {
			skipping[aborted[0].ProducerID] = true
			aborted = aborted[1:]
		}
		if b.IsControl() {
			if m, ok, err := readMarker(b); err != nil {
				t.Fatal(err)
			} else if ok && m.typ == batch.ControlAbort {
				delete(skipping, b.ProducerID())
			}
			continue
		}
		if b.IsTransactional() && skipping[b.ProducerID()] {
			continue
		}
		it := records.New(b, true)
		for it.Next() {
			r := it.Record()
			out = append(out, stored{r.Offset, string(r.Key), string(r.Value), r.ValueSize < 0, r.Timestamp})
		}
		if err := it.Err(); err != nil {
			t.Fatal(err)
		}
		it.Close()
	}
	return out
}

// packed puts the records of b into a codec.
func packed(t testing.TB, b []byte, codec int) []byte {
	t.Helper()
	out, err := records.Compress(slices.Clone(b[:batch.HeaderSize]), codec, b[batch.HeaderSize:])
	if err != nil {
		t.Fatal(err)
	}
	be.PutUint16(out[attributesOffset:], be.Uint16(out[attributesOffset:])|uint16(codec))
	be.PutUint32(out[lengthOffset:], uint32(len(out)-batch.LogOverhead))
	sign(out)
	return out
}

// kvBatch builds a batch of records "k<i>" with values or tombstones.
func kvBatch(h batch.Header, keys []int, tombstone []bool, tag string) ([]byte, []stored) {
	var kv []batch.KV
	var out []stored
	for i, k := range keys {
		key := fmt.Sprintf("k%d", k)
		if tombstone[i] {
			kv = append(kv, batch.KV{Key: []byte(key)})
			out = append(out, stored{int64(i), key, "", true, h.Timestamp})
			continue
		}
		value := fmt.Sprintf("%s-%d", tag, i)
		kv = append(kv, batch.KV{Key: []byte(key), Value: []byte(value)})
		out = append(out, stored{int64(i), key, value, false, h.Timestamp})
	}
	return batch.Build(nil, h, kv...), out
}

func compactEnv(t testing.TB) *env {
	e := newEnv(t)
	e.cfg.CleanupPolicy, e.cfg.SegmentBytes, e.cfg.IndexIntervalBytes = "compact", 600, 100
	e.cfg.DeleteRetentionMs, e.cfg.MinCleanableRatio = 10_000, 0
	return e
}

var testCleaner = cleanerOptions{dedupeBytes: 1 << 20, load: 0.9, io: newIOLimit(0)}

// compactNow runs one round whatever the dirty ratio says.
func (e *env) compactNow(l *Log, o cleanerOptions) (CompactionStats, error) {
	c, err := l.cleanable(e.clock.Now().UnixMilli())
	if err != nil {
		return CompactionStats{}, err
	}
	return l.compact(context.Background(), c, o)
}

// TestCompactionModel runs random writes, transactions, rounds, restarts, crashes and cuts
// against the model. What a read-committed client sees must never change by compaction alone.
func TestCompactionModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		e := compactEnv(t)
		e.cfg.SegmentBytes = int32(rapid.IntRange(200, 2000).Draw(rt, "segment.bytes"))
		l := e.create()
		m := &cmodel{}
		seq := map[int64]int32{}
		steps := rapid.IntRange(5, 60).Draw(rt, "steps")
		for i := range steps {
			op := rapid.SampledFrom([]string{
				"plain", "plain", "plain", "idem", "txn", "txn", "mark", "mark", "round", "round", "later",
				"small", "clean", "kill", "power", "cut", "hw",
			}).Draw(rt, fmt.Sprintf("op%d", i))
			l = compactStep(rt, e, l, m, seq, op)
			if got, want := decodeAll(t, readAll(t, l, l.LogStartOffset(), l.LogEndOffset()), nil), m.all(); !slices.Equal(got, want) {
				rt.Fatalf("after %s: records %v\nwant %v", op, got, want)
			}
			lso := l.LastStableOffset()
			got := decodeAll(t, readAll(t, l, 0, lso), l.AbortedTxns(0, lso))
			if want := m.committed(lso); !slices.Equal(got, want) {
				rt.Fatalf("after %s: committed %v\nwant %v", op, got, want)
			}
			if l.LogEndOffset() != m.end {
				rt.Fatalf("after %s: end %d, want %d", op, l.LogEndOffset(), m.end)
			}
			for pid, next := range seq {
				j := slices.IndexFunc(l.ActiveProducers(), func(p ProducerState) bool { return p.ProducerID == pid })
				if m.loose[pid] && (j < 0 || l.ActiveProducers()[j].LastSequence < 0) {
					continue
				}
				if j < 0 || l.ActiveProducers()[j].LastSequence != next-1 {
					rt.Fatalf("after %s: producer %d: %v, want sequence %d", op, pid, l.ActiveProducers(), next-1)
				}
			}
		}
	})
}

func compactStep(rt *rapid.T, e *env, l *Log, m *cmodel, seq map[int64]int32, op string) *Log {
	must := func(err error) {
		rt.Helper()
		if err != nil {
			rt.Fatalf("%s: %v", op, err)
		}
	}
	e.clock.Advance(1e6)
	now := e.clock.Now().UnixMilli()
	n := rapid.IntRange(1, 5).Draw(rt, "n")
	pid := int64(rapid.IntRange(100, 102).Draw(rt, "pid"))
	lead := func(h batch.Header, txn bool) {
		keys, dead := make([]int, n), make([]bool, n)
		for i := range keys {
			keys[i] = rapid.IntRange(0, 7).Draw(rt, "key")
			dead[i] = rapid.IntRange(0, 5).Draw(rt, "dead") == 0
		}
		h.Timestamp = now
		b, recs := kvBatch(h, keys, dead, fmt.Sprint("v", m.end))
		if codec := rapid.IntRange(0, 4).Draw(rt, "codec"); codec > 0 {
			b = packed(e.t, b, codec)
		}
		r := e.lead(l, b, 0, OriginClient)
		for i := range recs {
			recs[i].offset += r.FirstOffset
		}
		m.batches = append(m.batches, &cmBatch{base: r.FirstOffset, last: r.LastOffset, pid: h.ProducerID, txn: txn, records: recs, horizon: -1})
		m.end = r.LastOffset + 1
		if h.ProducerID >= 0 {
			delete(m.loose, h.ProducerID)
			seq[h.ProducerID] += int32(n)
		}
	}
	h := hdr()
	switch op {
	case "plain":
		lead(h, false)
	case "idem", "txn":
		if op == "idem" && m.open()[pid] {
			break
		}
		h.ProducerID, h.ProducerEpoch, h.BaseSequence = pid, 0, seq[pid]
		if op == "txn" {
			h.Attributes = batch.AttrTransactional
		}
		lead(h, op == "txn")
	case "mark":
		if !m.open()[pid] {
			break
		}
		commit := rapid.Bool().Draw(rt, "commit")
		r := e.lead(l, endTxn(pid, 0, commit, 0), 0, OriginCoordinator)
		m.decide(pid, commit)
		m.batches = append(m.batches, &cmBatch{base: r.FirstOffset, last: r.LastOffset, pid: pid, control: true, commit: commit, horizon: -1})
		m.end = r.LastOffset + 1
	case "hw":
		l.SetHighWatermark(m.end)
	case "later":
		e.clock.Advance(11e9)
		fallthrough
	case "round", "small":
		l.SetHighWatermark(m.end)
		o := testCleaner
		if op == "small" {
			o.dedupeBytes = int64(rapid.IntRange(10, 16).Draw(rt, "slots")) * offsetMapEntry
		}
		bases := slices.Clone(l.segs)
		s, err := e.compactNow(l, o)
		must(err)
		covered := int64(0)
		for i, sg := range bases[:len(bases)-1] {
			if sg.base < s.End {
				covered = bases[i+1].base
			}
		}
		if s.End > 0 {
			m.round(s.End, covered, e.clock.Now().UnixMilli(), e.cfg.DeleteRetentionMs)
			if l.CleanerCheckpoint() != s.End {
				rt.Fatalf("checkpoint %d after a round to %d", l.CleanerCheckpoint(), s.End)
			}
		}
	case "clean":
		l = e.reopen()
	case "kill":
		e.m.Checkpoint()
		l = e.crash(e.mem.Clone())
	case "power":
		must(l.Flush())
		e.m.Checkpoint()
		hw := l.HighWatermark()
		l = e.crash(e.mem.CrashClone(rand.New(rand.NewPCG(uint64(rapid.Int().Draw(rt, "seed")), 1))))
		l.SetHighWatermark(hw)
	case "cut":
		to := rapid.Int64Range(0, m.end).Draw(rt, "to")
		below := to < l.CleanerCheckpoint()
		if got := l.TruncationNeedsFullCopy(to); got != below && to < m.end {
			rt.Fatalf("cut at %d with the checkpoint at %d needs a full copy: %v", to, l.CleanerCheckpoint(), got)
		}
		if below {
			// What a cut below the checkpoint leaves is not defined: the replica starts over.
			must(l.TruncateFullyAndStartAt(0))
			m.batches, m.end = nil, 0
			clear(seq)
			break
		}
		must(l.Truncate(to))
		m.cut(l.LogEndOffset())
		m.end = l.LogEndOffset()
		clear(seq)
		m.loose = map[int64]bool{}
		inLog := lastSequences(e.t, readAll(e.t, l, l.LogStartOffset(), l.LogEndOffset()))
		for _, p := range l.ActiveProducers() {
			if p.LastSequence >= 0 {
				seq[p.ProducerID] = p.LastSequence + 1
				// A round has removed the batch while a later one, which is cut now, was the producer's last: as with Kafka, the sequence is known until
				// the state is made again from the log.
				last, ok := inLog[p.ProducerID]
				m.loose[p.ProducerID] = !ok || last != p.LastSequence
			}
		}
	}
	return l
}

// lastSequences is the last sequence of each producer that batches have.
func lastSequences(t testing.TB, p []byte) map[int64]int32 {
	t.Helper()
	out := map[int64]int32{}
	for len(p) > 0 {
		b, rest, err := batch.Next(p)
		if err != nil {
			t.Fatal(err)
		}
		if p = rest; b.ProducerID() >= 0 && !b.IsControl() {
			out[b.ProducerID()] = b.BaseSequence() + b.LastOffsetDelta()
		}
	}
	return out
}

// lastValues is the last value of each key, tombstones left out.
func lastValues(rs []stored) map[string]string {
	out := map[string]string{}
	for _, r := range rs {
		if r.tombstone {
			delete(out, r.key)
		} else {
			out[r.key] = r.value
		}
	}
	return out
}

// TestCompactionCrashEverywhere takes a copy of the file system before every operation of
// a round. The log that is opened from it holds at least what the finished round keeps, nothing that
// was not there before, and the same last values; another round ends where the first would have.
func TestCompactionCrashEverywhere(t *testing.T) {
	seeds := uint64(2)
	if testing.Short() {
		seeds = 1
	}
	for _, power := range []bool{false, true} {
		for seed := range seeds {
			compactionCrash(t, seed, power)
			if t.Failed() {
				return
			}
		}
	}
}

func compactionCrash(t *testing.T, seed uint64, power bool) {
	e := compactEnv(t)
	rnd := rand.New(rand.NewPCG(seed, 3))
	recording := false
	var points []crashPoint
	mem := e.mem
	e.fs = vfs.Inject(mem, func(op vfs.Op, path string) error {
		switch op {
		case vfs.OpRead, vfs.OpStat, vfs.OpReadDir, vfs.OpCloseFile, vfs.OpLock, vfs.OpOpen:
			return nil
		}
		if recording {
			c := mem.Clone()
			if power {
				c = mem.CrashClone(rnd)
			}
			points = append(points, crashPoint{op: fmt.Sprint(op, " ", path), mem: c})
		}
		return nil
	})
	l := e.create()
	fill := func(l *Log, n int) {
		for range n {
			h := hdr()
			pid := int64(rnd.IntN(3))
			keys := []int{rnd.IntN(9), rnd.IntN(9)}
			dead := []bool{rnd.IntN(5) == 0, rnd.IntN(5) == 0}
			switch rnd.IntN(3) {
			case 0:
				b, _ := kvBatch(h, keys, dead, fmt.Sprint(l.LogEndOffset()))
				e.lead(l, b, 0, OriginCoordinator)
			case 1:
				h.ProducerID, h.ProducerEpoch, h.BaseSequence, h.Attributes = pid, 0, 0, batch.AttrTransactional
				b, _ := kvBatch(h, keys, dead, fmt.Sprint(l.LogEndOffset()))
				e.lead(l, b, 0, OriginCoordinator)
			case 2:
				e.lead(l, endTxn(pid, 0, rnd.IntN(2) == 0, 0), 0, OriginCoordinator)
			}
		}
		for pid := range int64(3) {
			e.lead(l, endTxn(pid, 0, true, 0), 0, OriginCoordinator)
		}
		l.SetHighWatermark(l.LogEndOffset())
	}
	fill(l, 60)
	if _, err := e.compactNow(l, testCleaner); err != nil { // so that the next has a clean part and horizons
		t.Fatal(err)
	}
	e.clock.Advance(12e9)
	fill(l, 60)
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	e.m.Checkpoint()
	view := func(l *Log) []stored {
		l.SetHighWatermark(l.LogEndOffset())
		end := l.LastStableOffset()
		return decodeAll(t, readAll(t, l, 0, end), l.AbortedTxns(0, end))
	}
	before := view(l)
	end := l.LogEndOffset()
	recording = true
	s, err := e.compactNow(l, testCleaner)
	recording = false
	if err != nil || s.Swapped < 2 || s.RecordsRemoved < 10 {
		t.Fatalf("%+v: %v", s, err)
	}
	after := view(l)
	if len(points) < 50 || len(after) >= len(before) {
		t.Fatalf("%d crash points, %d records of %d", len(points), len(after), len(before))
	}
	for i, p := range points {
		if invariant.Race && i%5 != int(seed)%5 {
			continue // all of them without the race detector
		}
		name := fmt.Sprintf("power=%v seed %d point %d of %d, before %s", power, seed, i, len(points), p.op)
		c := compactEnv(t)
		c.clock.Advance(12e9)
		l := c.crash(p.mem)
		if err := l.Err(); err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		if l.LogEndOffset() != end {
			t.Errorf("%s: log end %d, want %d", name, l.LogEndOffset(), end)
		}
		got := view(l)
		if !contains(before, got) || !contains(got, after) {
			t.Errorf("%s: records\n%v\nbefore\n%v\nafter\n%v", name, got, before, after)
		}
		if g, w := lastValues(got), lastValues(before); fmt.Sprint(g) != fmt.Sprint(w) {
			t.Errorf("%s: last values %v, want %v", name, g, w)
		}
		if len(got) < len(before) && !l.TruncationNeedsFullCopy(0) {
			t.Errorf("%s: records are gone, and a cut at 0 needs no full copy", name)
		}
		if _, err := c.compactNow(l, testCleaner); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		again := view(l)
		if !contains(after, again) || fmt.Sprint(lastValues(again)) != fmt.Sprint(lastValues(before)) {
			t.Errorf("%s: after another round\n%v\nwant\n%v\nlast values %v\nwant %v", name, again, after, lastValues(again), lastValues(before))
		}
		c.lead(l, plain(2, "after"), 99, OriginCoordinator)
		want := readAll(t, l, 0, l.LogEndOffset())
		if l = c.reopen(); !bytes.Equal(readAll(t, l, 0, l.LogEndOffset()), want) {
			t.Errorf("%s: other bytes after a clean restart", name)
		}
		if t.Failed() {
			return
		}
	}
}

// contains says that sub is a subsequence of all.
func contains(all, sub []stored) bool {
	for _, r := range all {
		if len(sub) > 0 && sub[0] == r {
			sub = sub[1:]
		}
	}
	return len(sub) == 0
}

// TestCompactionErrors lets every operation of a round fail once. Nothing is lost, with the
// log online or, after a restart, again.
func TestCompactionErrors(t *testing.T) {
	errDisk := errors.New("no space left on device")
	for fail := 0; ; fail++ {
		e := compactEnv(t)
		n, armed, hit := 0, false, false
		e.fs = vfs.Inject(e.mem, func(op vfs.Op, _ string) error {
			if !armed || op == vfs.OpCloseFile || op == vfs.OpLock {
				return nil
			}
			if n++; n == fail+1 {
				hit = true
				return errDisk
			}
			return nil
		})
		l := e.create()
		for i := range 40 {
			b, _ := kvBatch(hdr(), []int{i % 3, i % 5}, []bool{i%7 == 0, false}, fmt.Sprint(i))
			e.lead(l, b, 0, OriginClient)
		}
		l.SetHighWatermark(l.LogEndOffset())
		want := lastValues(decodeAll(t, readAll(t, l, 0, l.LogEndOffset()), nil))
		end := l.LogEndOffset()
		armed = true
		_, err := e.compactNow(l, testCleaner)
		armed = false
		if !hit {
			if err != nil {
				t.Fatal(err)
			}
			if fail < 30 {
				t.Fatalf("only %d operations", fail)
			}
			return
		}
		if l.Err() != nil {
			l = e.crash(e.mem.Clone())
		}
		if got := lastValues(decodeAll(t, readAll(t, l, 0, l.LogEndOffset()), nil)); fmt.Sprint(got) != fmt.Sprint(want) || l.LogEndOffset() != end {
			t.Fatalf("operation %d failed (%v): %v to %d, want %v to %d", fail, err, got, l.LogEndOffset(), want, end)
		}
		l.SetHighWatermark(end)
		if _, err := e.compactNow(l, testCleaner); err != nil {
			t.Fatalf("operation %d failed, and the next round: %v", fail, err)
		}
	}
}

// TestCompactionKeepsBytes: a batch that loses nothing is copied byte for byte, one that loses
// a record keeps all of its header but what must change.
func TestCompactionKeepsBytes(t *testing.T) {
	e := compactEnv(t)
	e.cfg.SegmentBytes = 1 << 20
	l := e.create()
	h := hdr()
	h.ProducerID, h.ProducerEpoch, h.BaseSequence, h.PartitionLeaderEpoch = 9, 3, 40, 5
	first, _ := kvBatch(h, []int{1, 2}, []bool{false, false}, "a")
	h.BaseOffset, h.BaseSequence = 10, 42
	second := packed(t, first2(kvBatch(h, []int{2, 3, 4}, []bool{false, false, false}, "b")), batch.Zstd)
	h.BaseOffset, h.BaseSequence = 20, 45
	third, _ := kvBatch(h, []int{5}, []bool{false}, "c")
	e.follow(l, first, second, third)
	l.SetHighWatermark(l.LogEndOffset())
	roll(t, l)
	if _, err := e.compactNow(l, testCleaner); err != nil {
		t.Fatal(err)
	}
	p := readAll(t, l, 0, l.LogEndOffset())
	got, rest, err := batch.Next(p)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(rest, append(slices.Clone(second), third...)) {
		t.Error("batches that lost nothing are not the same bytes")
	}
	if got.NumRecords() != 1 || got.BaseOffset() != 0 || got.LastOffset() != 1 || got.BaseSequence() != 40 || got.ProducerEpoch() != 3 || got.PartitionLeaderEpoch() != 5 || got.MaxTimestamp() != t0.UnixMilli() {
		t.Errorf("rewritten batch: %x", got[:batch.HeaderSize])
	}
	if rs := decodeAll(t, got, nil); len(rs) != 1 || rs[0].key != "k1" || rs[0].offset != 0 {
		t.Errorf("records %v", rs)
	}
}

func first2(b []byte, _ []stored) []byte { return b }

// roll begins a new segment, so that all before may be compacted.
func roll(t testing.TB, l *Log) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.rollTo(l.end.Load()); err != nil {
		t.Fatal(err)
	}
}

// TestCompactionMarkers: a marker goes when nothing of its transaction is left and the
// horizon, set by the round that saw that, has passed.
func TestCompactionMarkers(t *testing.T) {
	e := compactEnv(t)
	e.cfg.SegmentBytes = 1 << 20
	l := e.create()
	markers := func() (n int) {
		for p := readAll(t, l, 0, l.LogEndOffset()); len(p) > 0; {
			b, rest, err := batch.Next(p)
			if err != nil {
				t.Fatal(err)
			}
			if b.IsControl() && b.NumRecords() > 0 {
				n++
			}
			p = rest
		}
		return n
	}
	for pid, commit := range map[int64]bool{1: true, 2: false} {
		e.lead(l, txn(pid, 0, 0, 2), 0, OriginClient)
		e.lead(l, endTxn(pid, 0, commit, 0), 0, OriginCoordinator)
		e.lead(l, idem(pid, 0, 2, 1), 0, OriginClient) // the last sequence is not in the transaction
	}
	e.lead(l, pidReset(), 0, OriginInternal) // stays for ever
	e.lead(l, plain(3, "over"), 0, OriginClient)
	for round, want := range []int{3, 3, 1} {
		e.lead(l, plain(3, fmt.Sprint("round", round)), 0, OriginClient)
		l.SetHighWatermark(l.LogEndOffset())
		roll(t, l)
		if _, err := e.compactNow(l, testCleaner); err != nil {
			t.Fatal(err)
		}
		if round == 1 {
			e.clock.Advance(11e9)
		}
		if got := markers(); got != want {
			t.Errorf("round %d: %d markers, want %d", round, got, want)
		}
	}
}

// TestCleanerPicks: what CompactOnce takes, and when.
func TestCleanerPicks(t *testing.T) {
	e := compactEnv(t)
	e.cfg.MinCleanableRatio = 0.5
	l := e.create()
	write := func(n int) {
		for i := range n {
			h := hdr()
			h.Timestamp = e.clock.Now().UnixMilli()
			b, _ := kvBatch(h, []int{i % 4, 7}, []bool{false, false}, "x")
			e.lead(l, b, 0, OriginClient)
		}
		l.SetHighWatermark(l.LogEndOffset())
	}
	write(50)
	cfg := e.cfg
	cfg.MinCompactionLagMs = 60_000
	l.SetConfig(cfg)
	if e.m.CompactOnce(t.Context()) {
		t.Error("compacted before min.compaction.lag.ms")
	}
	e.clock.Advance(61e9)
	if !e.m.CompactOnce(t.Context()) {
		t.Error("not compacted after min.compaction.lag.ms")
	}
	done := l.CleanerCheckpoint()
	if done <= 0 || l.segs[segmentFor(l.segs, done)].base != done {
		t.Errorf("checkpoint %d", done)
	}
	if e.m.CompactOnce(t.Context()) {
		t.Error("compacted with nothing to do")
	}
	cfg.MinCompactionLagMs, cfg.MinCleanableRatio = 0, 1
	l.SetConfig(cfg)
	write(20)
	if e.m.CompactOnce(t.Context()) {
		t.Error("compacted below the dirty ratio")
	}
	cfg.MaxCompactionLagMs = 5000
	l.SetConfig(cfg)
	e.clock.Advance(6e9)
	if !e.m.CompactOnce(t.Context()) {
		t.Error("not compacted after max.compaction.lag.ms")
	}
	if l = e.reopen(); l.CleanerCheckpoint() <= done {
		t.Errorf("checkpoint %d after a restart", l.CleanerCheckpoint())
	}
	// A topic of the same name begins without it.
	if err := e.m.Delete("t", 0); err != nil {
		t.Fatal(err)
	}
	if l = e.create(); l.CleanerCheckpoint() != -1 || l.TruncationNeedsFullCopy(0) {
		t.Errorf("a new partition has checkpoint %d", l.CleanerCheckpoint())
	}
	if l = e.reopen(); l.CleanerCheckpoint() != -1 {
		t.Errorf("a new partition has checkpoint %d after a restart", l.CleanerCheckpoint())
	}
}

// TestOffsetMap: no more memory than asked for, nothing forgotten.
func TestOffsetMap(t *testing.T) {
	m := newOffsetMap(100*offsetMapEntry, 0.9, math.MaxInt64)
	if len(m.slots) != 100 || m.max != 90 {
		t.Fatalf("%d slots, %d used", len(m.slots), m.max)
	}
	key := func(i int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(i)) }
	for i := range 90 {
		if !m.put(key(i), int64(i)) || !m.put(key(i), int64(i+1000)) || !m.put(key(i), int64(i)) {
			t.Fatalf("key %d is refused", i)
		}
	}
	if m.put(key(90), 1) || !m.put(key(3), 2000) {
		t.Error("a full map takes a new key, or no old one")
	}
	for i := range 90 {
		want := int64(i + 1000)
		if i == 3 {
			want = 2000
		}
		if got := m.get(key(i)); got != want {
			t.Errorf("key %d: %d, want %d", i, got, want)
		}
	}
	if m.get(key(91)) != -1 {
		t.Error("a key that was never put")
	}
	if m := newOffsetMap(1<<30, 0.9, 10); len(m.slots) > 20 {
		t.Errorf("%d slots for 10 keys", len(m.slots))
	}
}
