package log

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
)

// TestIdleLogsAreNotLookedAt: once everything is on disk, no periodic work finds a log to look at, however many there are,
// and it writes and syncs nothing.
func TestIdleLogsAreNotLookedAt(t *testing.T) {
	e, l, take := counted(t)
	for i := range int32(50) {
		more, err := e.m.Create("many", i, testID, 7, e.cfg)
		if err != nil {
			t.Fatal(err)
		}
		e.lead(more, plain(1, "x"), 1, OriginClient)
		more.SetHighWatermark(1)
	}
	e.lead(l, plain(3, "y"), 1, OriginClient)
	period := func() {
		e.m.tick()
		e.m.settleNew(t.Context())
		e.m.Checkpoint()
	}
	for range 3 { // what one of them does may be work for another
		period()
	}
	take()
	for w := range watchers {
		if logs := e.m.takeDirty(w); len(logs) != 0 {
			t.Errorf("watcher %d has to look at %d logs", w, len(logs))
		}
	}
	period()
	if got := take(); len(got) != 0 {
		t.Errorf("an idle period does %v", got)
	}
	e.lead(l, plain(3, "z"), 1, OriginClient)
	for w := range watchers {
		if logs := e.m.takeDirty(w); len(logs) != 1 || logs[0] != l {
			t.Errorf("after an append, watcher %d has to look at %d logs", w, len(logs))
		}
	}
}

// TestFlushMsIsNotForgotten: bytes that are too young at one look are flushed at a later one, also when flush.ms is set
// after they came.
func TestFlushMsIsNotForgotten(t *testing.T) {
	e := newEnv(t)
	e.cfg.FlushMs = 2500
	l := e.create()
	e.lead(l, plain(3, "a"), 1, OriginClient)
	for i := range 3 {
		e.m.tick()
		if l.RecoveryPoint() != 0 {
			t.Fatalf("flushed after %d s", i)
		}
		e.clock.Advance(1e9)
	}
	if e.m.tick(); l.RecoveryPoint() != 3 {
		t.Fatal("never flushed")
	}
	cfg := e.cfg
	cfg.FlushMs = 1 << 60
	l.SetConfig(cfg)
	e.lead(l, plain(3, "b"), 1, OriginClient)
	for range 5 {
		e.clock.Advance(1e9)
		e.m.tick()
	}
	l.SetConfig(e.cfg)
	if e.m.tick(); l.RecoveryPoint() != 6 {
		t.Error("bytes from before flush.ms was set are not flushed")
	}
}

// TestCheckpointsFollowEveryChange: whatever happens to the partitions, after each round the high watermark checkpoint is
// what the logs say, and nothing of what was deleted.
func TestCheckpointsFollowEveryChange(t *testing.T) {
	for seed := range uint64(20) {
		e := newEnv(t)
		e.open()
		rnd := rand.New(rand.NewPCG(seed, 7))
		incarnation := int64(1)
		for round := range 40 {
			for range rnd.IntN(6) {
				p := int32(rnd.IntN(5))
				l := e.m.Get("t", p)
				if l == nil {
					incarnation++
					if _, err := e.m.Create("t", p, testID, incarnation, e.cfg); err != nil {
						t.Fatal(err)
					}
					continue
				}
				end := l.LogEndOffset()
				var err error
				switch rnd.IntN(8) {
				case 0:
					err = e.m.Delete("t", p)
				case 1:
					err = l.Truncate(rnd.Int64N(end + 1))
				case 2:
					err = l.TruncateFullyAndStartAt(end + rnd.Int64N(5))
				case 3, 4:
					l.SetHighWatermark(rnd.Int64N(end + 1))
				default:
					e.lead(l, plain(1+rnd.IntN(3), fmt.Sprint(round)), 1, OriginClient)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if rnd.IntN(3) == 0 {
				e.m.settleNew(t.Context())
			}
			if rnd.IntN(10) == 0 {
				if err := e.m.Close(); err != nil {
					t.Fatal(err)
				}
				e.open()
			}
			e.m.checkpointWatermarks()
			want, durable := map[topicPartition]int64{}, 0
			for _, l := range e.m.all() {
				want[l.tp] = l.HighWatermark()
				if !l.newborn {
					durable++
				}
			}
			text, err := readFile(e.fs, "/data/"+highWatermarkFile)
			if err != nil {
				t.Fatal(err)
			}
			got, err := decodeOffsets(text)
			if err != nil || !maps.Equal(got, want) {
				t.Fatalf("seed %d, round %d: %v, the logs say %v (%v)", seed, round, got, want, err)
			}
			e.m.ImageApplied()
			if err := e.m.saveSettled(); err != nil {
				t.Fatal(err)
			}
			if n := len(e.m.settled); n < durable || n > len(want) {
				t.Fatalf("seed %d, round %d: %d partitions are settled of %d, %d are durable", seed, round, n, len(want), durable)
			}
		}
	}
}
