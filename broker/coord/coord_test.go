package coord

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"stet/zerocopy/batch"
)

// kv is a map that is kept in the log; parked answers wait for a key.
type kv struct {
	m        map[string]string
	waiters  map[string]*Parked[string]
	unloaded error
}

func (k *kv) Replay(r Record) error {
	if string(r.Key) == "bad" {
		return errors.New("bad record")
	}
	if r.Value == nil {
		delete(k.m, string(r.Key))
	} else {
		k.m[string(r.Key)] = string(r.Value)
	}
	return nil
}
func (k *kv) Loaded(*Shard) {}
func (k *kv) Unloaded(err error) {
	k.unloaded = err
	for _, w := range k.waiters {
		w.Fail(err)
	}
}

func newRuntime(linger time.Duration) *Runtime[*kv] {
	o := Options[*kv]{Topic: "t", NewMachine: func(int32) *kv { return &kv{m: map[string]string{}, waiters: map[string]*Parked[string]{}} }, MaxBatchBytes: 1000}
	if linger > 0 {
		o.Linger = func() time.Duration { return linger }
	}
	return New(o)
}

func put(k, v string) []batch.KV { return []batch.KV{{Key: []byte(k), Value: []byte(v)}} }

func set(r *Runtime[*kv], k, v string) error {
	return r.Do(context.Background(), 0, func(*kv, *Shard) ([]batch.KV, error) { return put(k, v), nil })
}

func get(r *Runtime[*kv], k string) (v string, err error) {
	err = r.Do(context.Background(), 0, func(m *kv, _ *Shard) ([]batch.KV, error) {
		v = m.m[k]
		return nil, nil
	})
	return v, err
}

func lead(r *Runtime[*kv], epoch int32, log Log) {
	r.BecomeLeader(0, epoch, log)
	synctest.Wait()
}

func TestStateSurvivesLeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := NewMemLog()
		r := newRuntime(0)
		if err := set(r, "a", "1"); !errors.Is(err, kerr.NotCoordinator) {
			t.Errorf("without a leader: %v", err)
		}
		lead(r, 1, log)
		for i := range 100 {
			if err := set(r, fmt.Sprint("k", i%10), fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		r.Resign(0)
		if err := set(r, "a", "1"); !errors.Is(err, kerr.NotCoordinator) {
			t.Errorf("after resigning: %v", err)
		}
		other := newRuntime(0)
		lead(other, 2, log)
		for i := range 10 {
			if v, err := get(other, fmt.Sprint("k", i)); v != fmt.Sprint(90+i) || err != nil {
				t.Errorf("k%d is %q, %v", i, v, err)
			}
		}
		other.BecomeLeader(0, 2, NewMemLog()) // the same epoch: nothing happens
		synctest.Wait()
		if v, _ := get(other, "k1"); v != "91" {
			t.Errorf("k1 is %q", v)
		}
		other.Close()
		r.Close()
	})
}

// An answer goes out only when all it saw is below the high watermark, reads too.
func TestAnswersWaitForTheCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := NewMemLog()
		r := newRuntime(0)
		defer r.Close()
		lead(r, 1, log)
		log.Hold()
		var mu sync.Mutex
		var order []string
		note := func(s string) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, s)
		}
		go func() {
			err := set(r, "a", "1")
			note(fmt.Sprint("set ", err))
		}()
		synctest.Wait()
		go func() {
			v, err := get(r, "a")
			note(fmt.Sprint("get ", v, " ", err))
		}()
		synctest.Wait()
		if len(order) != 0 {
			t.Fatalf("answered before the commit: %v", order)
		}
		log.Release()
		synctest.Wait()
		if len(order) != 2 {
			t.Fatalf("answers %v", order)
		}
		log.Hold()
		start := time.Now()
		if err := set(r, "b", "2"); !errors.Is(err, kerr.RequestTimedOut) || time.Since(start) != 5*time.Second {
			t.Errorf("never committed: %v after %v", err, time.Since(start))
		}
	})
}

func TestGroupCommitAndLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := NewMemLog()
		r := newRuntime(10 * time.Millisecond)
		defer r.Close()
		lead(r, 1, log)
		var wg sync.WaitGroup
		start := time.Now()
		for i := range 8 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				if err := set(r, fmt.Sprint("k", i), "v"); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if log.Batches() != 1 || time.Since(start) != 10*time.Millisecond {
			t.Errorf("%d batches after %v", log.Batches(), time.Since(start))
		}
		// What does not fit into one batch becomes several; a single operation that does not is refused.
		for i := range 5 {
			wg.Go(func() {
				if err := set(r, fmt.Sprint("big", i), strings.Repeat("x", 400)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if log.Batches() != 4 {
			t.Errorf("%d batches", log.Batches())
		}
		if err := set(r, "huge", strings.Repeat("x", 1000)); !errors.Is(err, ErrTooLarge) {
			t.Errorf("huge record: %v", err)
		}
		if v, err := get(r, "huge"); v != "" || err != nil {
			t.Errorf("the refused record was applied: %v", err)
		}
	})
}

// After a failed append the state is what the log says, and everybody is told.
func TestFailedAppend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := NewMemLog()
		r := newRuntime(0)
		defer r.Close()
		lead(r, 1, log)
		if err := set(r, "a", "1"); err != nil {
			t.Fatal(err)
		}
		parked := make(chan error)
		go func() {
			_, err := DoParked(context.Background(), r, 0, func(m *kv, _ *Shard) (*Parked[string], []batch.KV, error) {
				m.waiters["x"] = NewParked[string]()
				return m.waiters["x"], nil, nil
			})
			parked <- err
		}()
		synctest.Wait()
		log.Fail(errors.New("disk"))
		// The answer that goes with the failed append fails too.
		_, err := DoParked(context.Background(), r, 0, func(_ *kv, s *Shard) (*Parked[string], []batch.KV, error) {
			p := NewParked[string]()
			p.Complete(s, "done")
			return p, put("a", "2"), nil
		})
		if !errors.Is(err, kerr.CoordinatorNotAvailable) {
			t.Errorf("failed append: %v", err)
		}
		if err := <-parked; !errors.Is(err, kerr.CoordinatorNotAvailable) {
			t.Errorf("parked: %v", err)
		}
		if _, err := get(r, "a"); !errors.Is(err, kerr.CoordinatorLoadInProgress) {
			t.Errorf("while it pauses: %v", err)
		}
		log.Fail(nil)
		time.Sleep(2 * reloadPause)
		if v, err := get(r, "a"); v != "1" || err != nil {
			t.Errorf("a is %q, %v", v, err)
		}
	})
}

// TestReloadsBackOff: a disk that stays full is tried less and less often; one that was well meanwhile as at first.
func TestReloadsBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := NewMemLog()
		var buf strings.Builder
		r := New(Options[*kv]{Topic: "t", NewMachine: func(int32) *kv { return &kv{m: map[string]string{}} }, Logger: slog.New(slog.NewTextHandler(&buf, nil))})
		defer r.Close()
		lead(r, 1, log)
		try := func(d time.Duration) (failures int) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
				if err := set(r, "a", "1"); errors.Is(err, kerr.CoordinatorNotAvailable) {
					failures++
				}
			}
			synctest.Wait()
			return failures
		}
		log.Fail(errors.New("disk full"))
		if n := try(10 * time.Minute); n < 20 || n > 26 { // 1, 2, 4, 8, 16 s and then every 30 s
			t.Errorf("%d failed appends in ten minutes", n)
		}
		if n := strings.Count(buf.String(), "loading it again"); n > 26 {
			t.Errorf("%d lines in ten minutes", n)
		}
		log.Fail(nil)
		time.Sleep(maxReloadPause)
		if err := set(r, "a", "2"); err != nil {
			t.Fatal(err)
		}
		log.Fail(errors.New("disk full"))
		if n := try(2 * reloadPause); n != 2 {
			t.Errorf("%d failed appends in two seconds after it was well", n)
		}
	})
}

// TestFailedAppendOfFullBatch: an operation that no longer fits makes what was gathered before be written, and that
// fails. An answer that an operation gave to an older request fails with it.
func TestFailedAppendOfFullBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := NewMemLog()
		r := newRuntime(time.Second)
		defer r.Close()
		lead(r, 1, log)
		parked := NewParked[string]()
		answer := make(chan error, 1)
		go func() {
			_, err := DoParked(context.Background(), r, 0, func(*kv, *Shard) (*Parked[string], []batch.KV, error) { return parked, nil, nil })
			answer <- err
		}()
		synctest.Wait()
		log.Fail(errors.New("disk"))
		failed := make(chan error, 2)
		for _, k := range []string{"a", "b"} {
			go func() {
				failed <- r.Do(context.Background(), 0, func(_ *kv, s *Shard) ([]batch.KV, error) {
					if k == "a" {
						parked.Complete(s, "done")
					}
					return put(k, strings.Repeat("v", 600)), nil
				})
			}()
			synctest.Wait()
		}
		for _, c := range []chan error{failed, failed, answer} {
			select {
			case err := <-c:
				if !errors.Is(err, kerr.CoordinatorNotAvailable) {
					t.Error(err)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("an answer never comes")
			}
		}
	})
}

func TestNotLeaderOnAppend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := NewMemLog()
		r := newRuntime(0)
		defer r.Close()
		lead(r, 1, log)
		log.Fail(fmt.Errorf("gone: %w", kerr.NotLeaderForPartition))
		if err := set(r, "a", "1"); !errors.Is(err, kerr.NotCoordinator) {
			t.Errorf("%v", err)
		}
	})
}

func TestBadRecordKeepsThePartitionUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := NewMemLog()
		b := batch.Build(nil, batch.Header{ProducerID: -1}, batch.KV{Key: []byte("bad"), Value: []byte("x")})
		if _, err := log.AppendBatch(b); err != nil {
			t.Fatal(err)
		}
		r := newRuntime(0)
		lead(r, 1, log)
		if _, err := get(r, "a"); !errors.Is(err, kerr.CoordinatorLoadInProgress) {
			t.Errorf("%v", err)
		}
		r.Close()
	})
}

func TestTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := NewMemLog()
		r := newRuntime(0)
		defer r.Close()
		lead(r, 1, log)
		var stopped *Timer
		err := r.Do(context.Background(), 0, func(m *kv, s *Shard) ([]batch.KV, error) {
			s.After(time.Second, func() []batch.KV { return put("timer", "fired") })
			stopped = s.After(time.Second, func() []batch.KV { return put("stopped", "fired") })
			return nil, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Do(context.Background(), 0, func(*kv, *Shard) ([]batch.KV, error) {
			stopped.Stop()
			return nil, nil
		})
		time.Sleep(time.Second)
		synctest.Wait()
		if v, _ := get(r, "timer"); v != "fired" {
			t.Errorf("timer: %q", v)
		}
		if v, _ := get(r, "stopped"); v != "" {
			t.Error("a stopped timer fired")
		}
	})
}

func TestParkedAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := NewMemLog()
		r := newRuntime(0)
		lead(r, 1, log)
		park := func(ctx context.Context, key string) (string, error) {
			return DoParked(ctx, r, 0, func(m *kv, _ *Shard) (*Parked[string], []batch.KV, error) {
				m.waiters[key] = NewParked[string]()
				return m.waiters[key], nil, nil
			})
		}
		got := make(chan string, 2)
		go func() {
			v, err := park(context.Background(), "a")
			got <- fmt.Sprint(v, err)
		}()
		synctest.Wait()
		log.Hold()
		go func() {
			_ = r.Do(context.Background(), 0, func(m *kv, s *Shard) ([]batch.KV, error) {
				m.waiters["a"].Complete(s, "value")
				delete(m.waiters, "a")
				return put("a", "1"), nil
			})
		}()
		synctest.Wait()
		select {
		case v := <-got:
			t.Errorf("answered before the commit: %s", v)
		default:
		}
		log.Release()
		if v := <-got; v != "value<nil>" {
			t.Errorf("answer %s", v)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if _, err := park(ctx, "never"); !errors.Is(err, kerr.RequestTimedOut) {
			t.Errorf("never answered: %v", err)
		}
		go func() {
			_, err := park(context.Background(), "resign")
			got <- fmt.Sprint(errors.Is(err, kerr.NotCoordinator))
		}()
		synctest.Wait()
		r.Resign(0)
		if v := <-got; v != "true" {
			t.Error("a parked answer did not fail with NOT_COORDINATOR")
		}
		r.Close()
	})
}
