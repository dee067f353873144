package log

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// epochLog is a log of several segments with the epochs 0, 3, 4, 9, 10, 20, one or more records a batch.
func epochLog(t *testing.T, records int) *env {
	t.Helper()
	e := newEnv(t)
	e.cfg.SegmentBytes, e.cfg.IndexIntervalBytes = 900, 100
	l := e.create()
	for i, epoch := range []int32{0, 3, 4, 9, 10, 20} {
		for range 5 + i {
			e.lead(l, plain(records, "v"), epoch, OriginClient)
		}
	}
	l.SetHighWatermark(l.LogEndOffset())
	return e
}

// wrongEpochs are checkpoints that can be read and are wrong.
func wrongEpochs(good []EpochEntry, end int64) map[string][]EpochEntry {
	n := len(good)
	m := map[string][]EpochEntry{
		"no entry":               {},
		"last missing":           good[:n-1],
		"two last missing":       good[:n-2],
		"first missing":          good[1:],
		"middle missing":         slices.Delete(slices.Clone(good), 2, 3),
		"extra at the end":       append(slices.Clone(good), EpochEntry{25, end - 1}),
		"extra beyond the end":   append(slices.Clone(good), EpochEntry{25, end + 10}),
		"of another, longer log": append(slices.Clone(good[:n-1]), EpochEntry{good[n-1].Epoch, end + 1000}),
	}
	m["extra in the middle"] = slices.Insert(slices.Clone(good), 3, EpochEntry{5, good[3].Start - 1})
	for i := range good {
		for _, by := range []int64{-1, 1} {
			off := slices.Clone(good)
			off[i].Start += by
			if off[i].Start >= 0 {
				m[fmt.Sprintf("entry %d begins %+d", i, by)] = off
			}
		}
		other := slices.Clone(good)
		if i+1 < n && other[i].Epoch+1 < other[i+1].Epoch || i+1 == n {
			other[i].Epoch++
			m[fmt.Sprintf("entry %d of another epoch", i)] = other
		}
		if i+1 < n {
			swapped := slices.Clone(good)
			swapped[i].Start, swapped[i+1].Start = good[i].Start, good[i].Start+1
			m[fmt.Sprintf("entry %d follows at once", i+1)] = swapped
		}
	}
	all := slices.Clone(good)
	for i := range all {
		all[i].Start++
	}
	m["every entry begins +1"] = all
	return m
}

// TestWrongEpochCheckpoint: a leader-epoch checkpoint that is well-formed and wrong is found
// out after a clean shutdown, named and made again from the log.
func TestWrongEpochCheckpoint(t *testing.T) {
	for _, records := range []int{1, 2} {
		e := epochLog(t, records)
		want := refer(t, e.m.Get("t", 0))
		if err := e.m.Close(); err != nil {
			t.Fatal(err)
		}
		if len(want.epochs) != 6 {
			t.Fatal(want.epochs)
		}
		for name, wrong := range wrongEpochs(want.epochs, want.end) {
			t.Run(fmt.Sprint(records, " ", name), func(t *testing.T) {
				mem := e.mem.Clone()
				rewrite(t, mem, "/data/t-0/"+epochFile, encodeEpochs(wrong))
				e2 := newEnv(t)
				e2.cfg, e2.clock = e.cfg, e.clock
				want.compare(t, e2.crash(mem))
				if !strings.Contains(e2.logs.String(), "leader epochs are rebuilt from the batches") {
					t.Errorf("%v is not named: %s", wrong, e2.logs.String())
				}
				if again, err := readFile(mem, "/data/t-0/"+epochFile); err != nil || string(again) != string(encodeEpochs(want.epochs)) {
					t.Errorf("the file is %q, %v", again, err)
				}
			})
		}
	}
}

// TestWrongEpochCheckpointAfterCrash: what lies below the recovery point is compared, too.
func TestWrongEpochCheckpointAfterCrash(t *testing.T) {
	e := epochLog(t, 1)
	want := refer(t, e.m.Get("t", 0))
	e.m.FlushSealed()
	e.m.Checkpoint()
	for name, wrong := range wrongEpochs(want.epochs, want.end) {
		t.Run(name, func(t *testing.T) {
			mem := e.mem.Clone()
			rewrite(t, mem, "/data/t-0/"+epochFile, encodeEpochs(wrong))
			e2 := newEnv(t)
			e2.cfg, e2.clock = e.cfg, e.clock
			want.compare(t, e2.crash(mem))
		})
	}
}

// TestRightEpochCheckpoint: what may differ from the batches and is right. Nothing is rebuilt.
func TestRightEpochCheckpoint(t *testing.T) {
	for name, do := range map[string]func(e *env, l *Log){
		"as written": func(e *env, l *Log) {},
		"log start inside an epoch": func(e *env, l *Log) {
			if err := l.IncrementLogStartOffset(13); err != nil {
				t.Fatal(err)
			}
		},
		"log start inside the last batch": func(e *env, l *Log) {
			if err := l.IncrementLogStartOffset(l.LogEndOffset() - 1); err != nil {
				t.Fatal(err)
			}
		},
		"log start at the end": func(e *env, l *Log) {
			if err := l.IncrementLogStartOffset(l.LogEndOffset()); err != nil {
				t.Fatal(err)
			}
		},
		"begun anew": func(e *env, l *Log) {
			if err := l.TruncateFullyAndStartAt(1000); err != nil {
				t.Fatal(err)
			}
		},
		"a gap": func(e *env, l *Log) {
			e.follow(l, at(l.LogEndOffset()+7, 30, 2))
			e.follow(l, at(l.LogEndOffset()+7, 31, 2))
		},
		"no epoch in the last batches": func(e *env, l *Log) { e.follow(l, at(l.LogEndOffset(), -1, 2)) },
		"cut": func(e *env, l *Log) {
			if err := l.Truncate(l.EpochEntries()[3].Start + 1); err != nil {
				t.Fatal(err)
			}
		},
		"rolled": func(e *env, l *Log) {
			l.mu.Lock()
			defer l.mu.Unlock()
			if err := l.rollTo(l.end.Load()); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := epochLog(t, 3)
			l := e.m.Get("t", 0)
			do(e, l)
			want := l.EpochEntries()
			l = e.reopen()
			if got := l.EpochEntries(); !slices.Equal(got, want) {
				t.Errorf("epochs %v, want %v", got, want)
			}
			if s := e.logs.String(); strings.Contains(s, "leader epochs") {
				t.Error(s)
			}
		})
	}
	// Apache Kafka notes the epoch of a leader that has not written yet.
	e := epochLog(t, 3)
	l := e.m.Get("t", 0)
	want := l.EpochEntries()
	end := l.LogEndOffset()
	if err := e.m.Close(); err != nil {
		t.Fatal(err)
	}
	rewrite(t, e.mem, "/data/t-0/"+epochFile, encodeEpochs(append(slices.Clone(want), EpochEntry{40, end})))
	if l = e.crash(e.mem); !slices.Equal(l.EpochEntries(), want) || strings.Contains(e.logs.String(), "leader epochs") {
		t.Errorf("%v, %s", l.EpochEntries(), e.logs.String())
	}
}
