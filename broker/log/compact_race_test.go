package log

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
)

// TestCompactionConcurrentUse lets rounds run against readers, an appender, cuts, raised log
// starts and flushes. It is worth most under -race.
func TestCompactionConcurrentUse(t *testing.T) {
	e := compactEnv(t)
	l := e.create()
	var stop atomic.Bool
	var wg sync.WaitGroup
	var rounds atomic.Int64
	run := func(f func(i int)) {
		wg.Go(func() {
			for i := 0; !stop.Load(); i++ {
				f(i)
			}
		})
	}
	for range 2 {
		run(func(i int) {
			start, end := l.LogStartOffset(), l.LogEndOffset()
			readOnce(t, l, start+int64(i%7)*(end-start)/7)
			l.AbortedTxns(start, end)
			if _, _, _, err := l.OffsetForTimestamp(t0.UnixMilli()); err != nil {
				t.Error(err)
			}
		})
	}
	run(func(int) {
		switch s, err := e.compactNow(l, testCleaner); {
		case err == nil && s.Swapped > 0:
			rounds.Add(1)
		case err != nil && !errors.Is(err, errAbandoned):
			t.Error(err)
		}
	})
	run(func(i int) {
		if err := l.Flush(); err != nil {
			t.Error(err)
		}
		if i%4 == 0 {
			l.dropIdleIndexes()
		}
	})
	for i := range 3000 {
		switch end := l.LogEndOffset(); {
		case i%397 == 396:
			if err := l.Truncate(max(l.LogStartOffset(), end-30)); err != nil {
				t.Fatal(err)
			}
		case i%331 == 330:
			if err := l.IncrementLogStartOffset(l.LogStartOffset() + (end-l.LogStartOffset())/2); err != nil {
				t.Fatal(err)
			}
		default:
			b, _ := kvBatch(hdr(), []int{i % 5, i % 11}, []bool{i%9 == 0, false}, fmt.Sprint(i))
			e.lead(l, b, 0, OriginClient)
			l.SetHighWatermark(l.LogEndOffset())
		}
	}
	stop.Store(true)
	wg.Wait()
	t.Logf("%d rounds changed something", rounds.Load())
	if err := l.Err(); err != nil {
		t.Fatal(err)
	}
	for _, s := range l.segs {
		if n := s.refs.Load(); n != 1 {
			t.Errorf("segment %d has %d references", s.base, n)
		}
	}
}

// TestCompactionWhileTopicsComeAndGo lets the cleaner look for work while partitions are made
// and deleted.
func TestCompactionWhileTopicsComeAndGo(t *testing.T) {
	e := compactEnv(t)
	m := e.open()
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for !stop.Load() {
				m.CompactOnce(t.Context())
			}
		})
	}
	for i := range 60 {
		for p := range int32(3) {
			l, err := m.Create("t", p, testID, int64(i), e.cfg)
			if err != nil {
				t.Fatal(err)
			}
			for j := range 10 {
				b, _ := kvBatch(hdr(), []int{j % 3, 1}, []bool{false, false}, fmt.Sprint(i))
				e.lead(l, b, 0, OriginClient)
			}
			l.SetHighWatermark(l.LogEndOffset())
		}
		for p := range int32(3) {
			if err := m.Delete("t", p); err != nil {
				t.Fatal(err)
			}
		}
	}
	stop.Store(true)
	wg.Wait()
}
