package log

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"stet/internal/vfs"
	"stet/zerocopy/batch"
)

func TestIdempotentProducer(t *testing.T) {
	e := newEnv(t)
	l := e.create()
	var first [8]int64
	for i := range 8 {
		first[i] = e.lead(l, idem(9, 0, int32(i*3), 3), 1, OriginClient).FirstOffset
	}
	// The last five batches are known again, older ones are out of order.
	for i := range 8 {
		r, err := l.AppendAsLeader(idem(9, 0, int32(i*3), 3), 1, OriginClient)
		if i < 3 {
			if !errors.Is(err, ErrOutOfOrderSequence) {
				t.Fatalf("batch %d: %+v, %v", i, r, err)
			}
		} else if err != nil || !r.Duplicate || r.FirstOffset != first[i] || r.LastOffset != first[i]+2 {
			t.Fatalf("batch %d: %+v, %v", i, r, err)
		}
	}
	if _, err := l.AppendAsLeader(idem(9, 0, 25, 1), 1, OriginClient); !errors.Is(err, ErrOutOfOrderSequence) {
		t.Fatal(err)
	}
	if _, err := l.AppendAsLeader(idem(9, 2, 5, 1), 1, OriginClient); !errors.Is(err, ErrOutOfOrderSequence) {
		t.Fatalf("a new epoch must begin with 0: %v", err)
	}
	e.lead(l, idem(9, 2, 0, 1), 1, OriginClient)
	if _, err := l.AppendAsLeader(idem(9, 1, 1, 1), 1, OriginClient); !errors.Is(err, ErrInvalidProducerEpoch) {
		t.Fatal(err)
	}
	// After a restart the last batch is still known.
	l = e.reopen()
	if r := e.lead(l, idem(9, 2, 0, 1), 1, OriginClient); !r.Duplicate || r.FirstOffset != 24 {
		t.Fatalf("%+v", r)
	}
	e.lead(l, idem(9, 2, 1, 1), 1, OriginClient)
}

func TestSequenceWraps(t *testing.T) {
	e := newEnv(t)
	l := e.create()
	e.lead(l, idem(9, 0, math.MaxInt32-1, 4), 1, OriginClient) // unknown producer: any sequence
	b := idem(9, 0, 2, 1)
	e.lead(l, b, 1, OriginClient)
	if r := e.lead(l, idem(9, 0, math.MaxInt32-1, 4), 1, OriginClient); !r.Duplicate || r.FirstOffset != 0 {
		t.Fatalf("%+v", r)
	}
	e.lead(l, idem(10, 0, math.MaxInt32, 1), 1, OriginClient)
	e.lead(l, idem(10, 0, 0, 1), 1, OriginClient)
}

// TestTransactions: C02 at the level of the log.
func TestTransactions(t *testing.T) {
	e := newEnv(t)
	l := e.create()
	hw := func() { l.SetHighWatermark(l.LogEndOffset()) }
	e.lead(l, plain(2, "free"), 1, OriginClient) // 0..1
	hw()
	e.lead(l, txn(1, 0, 0, 3), 1, OriginClient) // 2..4
	e.lead(l, txn(2, 0, 0, 1), 1, OriginClient) // 5
	hw()
	if l.LastStableOffset() != 2 {
		t.Fatalf("last stable offset %d", l.LastStableOffset())
	}
	if _, err := l.AppendAsLeader(idem(1, 0, 3, 1), 1, OriginClient); !errors.Is(err, ErrInvalidTxnState) {
		t.Fatalf("a plain write in a transaction: %v", err)
	}
	want := []OpenTxn{{1, 0, -1, 2}, {2, 0, -1, 5}}
	if got := l.OpenTransactions(); !slices.Equal(got, want) {
		t.Fatalf("open %v", got)
	}
	e.lead(l, endTxn(2, 0, false, 3), 1, OriginCoordinator) // 6
	if l.LastStableOffset() != 2 {
		t.Fatalf("last stable offset %d", l.LastStableOffset())
	}
	e.lead(l, endTxn(1, 0, true, 3), 1, OriginCoordinator) // 7
	// Finished, but the markers are not replicated.
	if l.LastStableOffset() != 2 {
		t.Fatalf("last stable offset %d", l.LastStableOffset())
	}
	hw()
	if l.LastStableOffset() != 8 {
		t.Fatalf("last stable offset %d", l.LastStableOffset())
	}
	if got := l.AbortedTxns(0, 8); !slices.Equal(got, []AbortedTxn{{2, 5}}) {
		t.Fatalf("aborted %v", got)
	}
	if got := l.AbortedTxns(7, 8); got != nil {
		t.Fatalf("aborted after the marker %v", got)
	}
	if _, err := l.AppendAsLeader(endTxn(1, 0, true, 2), 1, OriginCoordinator); !errors.Is(err, ErrCoordinatorFenced) {
		t.Fatalf("an old coordinator: %v", err)
	}
	e.lead(l, txn(1, 1, 0, 1), 1, OriginClient)
	if _, err := l.AppendAsLeader(endTxn(1, 0, true, 3), 1, OriginCoordinator); !errors.Is(err, ErrInvalidProducerEpoch) {
		t.Fatalf("an old producer epoch: %v", err)
	}
}

// TestAbortedIndexFromBatches: C02. A follower gets nothing but batches; its answers are those
// of the leader, also when the index files were lost with a crash.
func TestAbortedIndexFromBatches(t *testing.T) {
	leader := newEnv(t)
	leader.cfg.SegmentBytes = 400
	ll := leader.create()
	seq := map[int64]int32{}
	for i := range 40 {
		pid := int64(i % 3)
		leader.lead(ll, txn(pid, 0, seq[pid], 2), 1, OriginClient)
		seq[pid] += 2
		if i%4 == 3 {
			leader.lead(ll, endTxn(pid, 0, i%8 == 3, 0), 1, OriginCoordinator)
		}
	}
	bytes := readAll(t, ll, 0, noOffset)
	follower := newEnv(t)
	follower.cfg.SegmentBytes = 777
	fl := follower.create()
	follower.follow(fl, bytes)
	compare := func(fl *Log) {
		t.Helper()
		for from := int64(0); from < ll.LogEndOffset(); from++ {
			for _, to := range []int64{from, from + 1, from + 7, ll.LogEndOffset()} {
				if got, want := fl.AbortedTxns(from, to), ll.AbortedTxns(from, to); !slices.Equal(got, want) {
					t.Fatalf("[%d, %d): %v, want %v", from, to, got, want)
				}
			}
		}
		if got, want := fl.OpenTransactions(), ll.OpenTransactions(); !slices.Equal(got, want) {
			t.Fatalf("open %v, want %v", got, want)
		}
		fl.SetHighWatermark(fl.LogEndOffset())
		ll.SetHighWatermark(ll.LogEndOffset())
		if fl.LastStableOffset() != ll.LastStableOffset() {
			t.Fatalf("last stable %d, want %d", fl.LastStableOffset(), ll.LastStableOffset())
		}
	}
	compare(fl)
	compare(follower.crash(follower.mem.Clone()))
}

// TestPIDReset: C01. After the reset record no producer id is known: on leader and follower,
// after a clean restart, after a crash, and after a crash that lost the snapshots.
func TestPIDReset(t *testing.T) {
	build := func(leader bool) (*env, *Log) {
		e := newEnv(t)
		e.cfg.SegmentBytes = 300
		l := e.create()
		if leader {
			e.lead(l, idem(4001, 3, 100, 2), 1, OriginClient)
			e.lead(l, txn(4002, 1, 0, 2), 1, OriginClient)
			e.lead(l, endTxn(4002, 1, false, 5), 1, OriginInternal)
			e.lead(l, pidReset(), 2, OriginInternal)
			return e, l
		}
		src := newEnv(t)
		sl := src.create()
		src.lead(sl, idem(4001, 3, 100, 2), 1, OriginClient)
		src.lead(sl, txn(4002, 1, 0, 2), 1, OriginClient)
		src.lead(sl, endTxn(4002, 1, false, 5), 1, OriginInternal)
		src.lead(sl, pidReset(), 2, OriginInternal)
		e.follow(l, readAll(t, sl, 0, noOffset))
		return e, l
	}
	check := func(e *env, l *Log, how string) {
		t.Helper()
		if got := l.ActiveProducers(); len(got) != 0 {
			t.Fatalf("%s: producers %v", how, got)
		}
		l.SetHighWatermark(l.LogEndOffset())
		if l.LastStableOffset() != l.LogEndOffset() {
			t.Fatalf("%s: last stable %d of %d", how, l.LastStableOffset(), l.LogEndOffset())
		}
		// The retry that is none: same id, epoch and sequence as a mirrored batch.
		r := e.lead(l, idem(4001, 3, 100, 2), 3, OriginClient)
		if r.Duplicate || r.FirstOffset != 6 {
			t.Fatalf("%s: %+v", how, r)
		}
	}
	for _, leader := range []bool{true, false} {
		e, l := build(leader)
		check(e, l, "append")
		e, _ = build(leader)
		check(e, e.reopen(), "restart")
		e, _ = build(leader)
		check(e, e.crash(e.mem.Clone()), "crash")
		e, l = build(leader)
		c := e.mem.Clone()
		for _, o := range mustList(t, c, l.Dir()).snapshots {
			if err := c.Remove(segmentPath(l.Dir(), o) + snapshotSuffix); err != nil {
				t.Fatal(err)
			}
		}
		check(e, e.crash(c), "crash without snapshots")
	}
}

func mustList(t *testing.T, fsys vfs.FS, dir string) listing {
	t.Helper()
	l, err := list(fsys, dir)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestProducersExpire(t *testing.T) {
	e := newEnv(t)
	l := e.create()
	e.lead(l, idem(1, 0, 0, 1), 1, OriginClient)
	e.lead(l, txn(2, 0, 0, 1), 1, OriginClient)
	e.clock.Advance(24*3600*1e9 + 1e9)
	e.m.ApplyRetention()
	got := l.ActiveProducers()
	if len(got) != 1 || got[0].ProducerID != 2 {
		t.Fatalf("%v", got)
	}
	h := hdr() // of now, unlike idem's
	h.Timestamp, h.ProducerID, h.ProducerEpoch, h.BaseSequence = e.clock.Now().UnixMilli(), 3, 0, 0
	e.lead(l, plainAt(h, 1), 1, OriginClient)
	e.clock.Advance(3 * time.Second)
	e.m.ApplyRetention()
	if got := l.ActiveProducers(); len(got) != 2 {
		t.Fatalf("%v", got)
	}
	e.m.SetProducerIDExpirationMs(2000)
	e.m.ApplyRetention()
	if got := l.ActiveProducers(); len(got) != 1 || got[0].ProducerID != 2 {
		t.Fatalf("after the setting changed: %v", got)
	}
}

func TestSnapshotFormat(t *testing.T) {
	s := newProducers()
	for _, b := range [][]byte{idem(7, 2, 40, 3), txn(8, 0, 0, 2), endTxn(9, 1, true, 6)} {
		s.apply(batch.Batch(b))
	}
	p := s.encodeSnapshot()
	if len(p) != snapshotHeader+4+3*snapshotEntrySize || p[1] != 1 {
		t.Fatalf("%d bytes, version %d", len(p), p[1])
	}
	es, err := DecodeSnapshot(p)
	if err != nil {
		t.Fatal(err)
	}
	ts := t0.UnixMilli()
	want := []SnapshotEntry{
		{7, 2, -1, -1, ts, true, 40, 42, 2, 2},
		{8, 0, -1, 0, ts, true, 0, 1, 1, 1},
		{9, 1, 6, -1, ts, false, 0, 0, 0, 0},
	}
	if !slices.Equal(es, want) {
		t.Fatalf("%+v", es)
	}
	for i := range p {
		bad := slices.Clone(p)
		bad[i] ^= 0x10
		if _, err := DecodeSnapshot(bad); err == nil {
			t.Fatalf("byte %d changed, and nothing was noticed", i)
		}
	}
}
