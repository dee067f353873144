package log

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestIOLimit: bytes pass at the rate; a changed rate counts for those who wait already, and
// an idle time saves nothing up.
func TestIOLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newIOLimit(1000)
		took := func(n int64) time.Duration {
			began := time.Now()
			if err := l.wait(t.Context(), n); err != nil {
				t.Fatal(err)
			}
			return time.Since(began)
		}
		for range 3 {
			if d := took(2000); d != 2*time.Second {
				t.Fatalf("%s", d)
			}
			time.Sleep(time.Hour)
		}
		// A second at 1000, and the rest at 9000.
		go func() { time.Sleep(time.Second); l.setRate(9000) }()
		if d := took(10_000); d != 2*time.Second {
			t.Errorf("raised under a wait: %s", d)
		}
		go func() { time.Sleep(time.Second); l.setRate(1000) }()
		if d := took(10_000); d != 2*time.Second {
			t.Errorf("lowered under a wait: %s", d)
		}
		l.setRate(0)
		if d := took(1 << 40); d != 0 {
			t.Errorf("without a limit: %s", d)
		}
		l.setRate(1e-9) // longer than a Duration holds
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := l.wait(ctx, 1<<40); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		// Two share the rate.
		l.setRate(0)
		took(1)
		l.setRate(1000)
		began := time.Now()
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { took(1000) })
		}
		wg.Wait()
		if d := time.Since(began); d != 2*time.Second {
			t.Errorf("two at once: %s", d)
		}
	})
}

// TestCleanerChangesLive: threads, backoff and rate count without a restart.
func TestCleanerChangesLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := compactEnv(t)
		e.cfg.MinCleanableRatio = 0.01
		e.open()
		e.m.SetCleaner(CleanerConfig{Threads: 1, BackoffMs: 3_600_000})
		var logs []*Log
		for i := range int32(4) {
			l, err := e.m.Create("c", i, testID, 7, e.cfg)
			if err != nil {
				t.Fatal(err)
			}
			logs = append(logs, l)
		}
		done := func() (n int) {
			for _, l := range logs {
				if l.CleanerCheckpoint() == l.active().base && l.active().base > 0 {
					n++
				}
			}
			return n
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { e.m.runCleaners(ctx); close(ended) }()
		synctest.Wait()
		for _, l := range logs {
			for i := range 60 {
				b, _ := kvBatch(hdr(), []int{i % 4}, []bool{false}, "x")
				e.lead(l, b, 0, OriginClient)
			}
			l.SetHighWatermark(l.LogEndOffset())
		}
		time.Sleep(30 * time.Minute)
		if n := done(); n != 0 {
			t.Fatalf("%d logs were compacted before the backoff was over", n)
		}
		// Three threads, each in a round of its own, and none gets anywhere.
		e.m.SetCleaner(CleanerConfig{Threads: 3, BackoffMs: 1000, IOBytesPerSec: 1e-3})
		time.Sleep(time.Minute)
		synctest.Wait()
		e.m.clean.mu.Lock()
		busy := len(e.m.clean.busy)
		e.m.clean.mu.Unlock()
		if n := done(); n != 0 || busy != 3 {
			t.Errorf("%d logs compacted, %d rounds run", n, busy)
		}
		// One thread less: its round goes on to its end, and then there is one.
		e.m.SetCleaner(CleanerConfig{Threads: 1, BackoffMs: 1000})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := done(); n != len(logs) {
			t.Errorf("%d logs compacted after the limit was lifted", n)
		}
		e.m.SetCleaner(CleanerConfig{Threads: -1})
		cancel()
		<-ended
		if c := e.m.Cleaner(); c.Threads != -1 || c.BackoffMs != 15000 || c.DedupeBytes != 128<<20 {
			t.Errorf("%+v", c)
		}
		if err := e.m.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestCleanerShares: what a thread gets of the buffers.
func TestCleanerShares(t *testing.T) {
	for _, c := range []struct {
		in     CleanerConfig
		dedupe int64
		window int
	}{
		{CleanerConfig{}, 128 << 20, walkWindow},
		{CleanerConfig{Threads: 4}, 32 << 20, walkWindow / 4},
		{CleanerConfig{DedupeBytes: 1 << 40, IOBufferBytes: 8 << 20}, 1<<31 - 1, 4 << 20},
		{CleanerConfig{IOBufferBytes: 1}, 128 << 20, minCleanerWindow},
	} {
		c.in.setDefaults()
		if o := c.in.forRound(nil); o.dedupeBytes != c.dedupe || o.window != c.window {
			t.Errorf("%+v: %+v", c.in, o)
		}
	}
}

// TestCleanerWindows: the size of the buffer changes nothing about the result.
func TestCleanerWindows(t *testing.T) {
	var first []byte
	for _, window := range []int{0, minCleanerWindow, 1 << 20} {
		e := compactEnv(t)
		l := e.create()
		for i := range 60 {
			b, _ := kvBatch(hdr(), []int{i % 4}, []bool{false}, string(make([]byte, 3000*(i%3))))
			e.lead(l, b, 0, OriginClient)
		}
		l.SetHighWatermark(l.LogEndOffset())
		o := testCleaner
		o.window = window
		if _, err := e.compactNow(l, o); err != nil {
			t.Fatal(err)
		}
		if got := readAll(t, l, 0, noOffset); first == nil {
			first = got
		} else if string(got) != string(first) {
			t.Errorf("window %d: other bytes", window)
		}
	}
}
