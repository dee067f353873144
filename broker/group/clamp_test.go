package group

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/broker/coord"
	"stet/broker/meta"
	"stet/zerocopy/batch"
)

// occupy holds up the first shard: what is asked of it waits until release is called.
func (w *world) occupy() (release func()) {
	ch, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		if err := w.c.rt.Do(context.Background(), 0, func(*machine, *coord.Shard) ([]batch.KV, error) { <-ch; return nil, nil }); err != nil {
			w.t.Error(err)
		}
	}()
	synctest.Wait()
	return func() {
		close(ch)
		<-done
	}
}

func (w *world) clamp(ctx context.Context, end int64) string {
	n, err := w.c.ClampOffsets(ctx, "t", 0, end)
	return fmt.Sprintf("%d %v", n, err)
}

// idle checks that no goroutine is left.
func (w *world) idle() {
	w.t.Helper()
	synctest.Wait()
	w.c.clamps.mu.Lock()
	defer w.c.clamps.mu.Unlock()
	if w.c.clamps.running != nil || w.c.clamps.next != nil {
		w.t.Error("a pass is left")
	}
}

// TestClampsOfAStop: the partitions of a stop ask at the same time. They share passes of one operation per shard (goal G4), and each
// gets what it asked for.
func TestClampsOfAStop(t *testing.T) {
	const shards, partitions = 50, 1000
	run(t, nil, func(w *world) {
		w.c.Close()
		w.img = meta.Empty()
		w.topic(OffsetsTopic, [16]byte{1}, shards)
		w.topic("big", [16]byte{9}, partitions)
		w.c = New(Options{Config: DefaultConfig(), Image: func() *meta.Image { return w.img }})
		logs := make([]*coord.MemLog, shards)
		for i := range logs {
			logs[i] = coord.NewMemLog()
			w.c.BecomeLeader(int32(i), 1, logs[i])
		}
		synctest.Wait()
		groups := []string{"a", "b", "c", "d"}
		for _, g := range groups {
			w.commit(func(r *kmsg.OffsetCommitRequest) {
				r.Group, r.Topics[0].Topic = g, "big"
				p := r.Topics[0].Partitions[0]
				r.Topics[0].Partitions = nil
				for i := range int32(partitions) {
					p.Partition, p.Offset = i, 5000
					r.Topics[0].Partitions = append(r.Topics[0].Partitions, p)
				}
			})
		}
		batches := 0
		for _, l := range logs {
			batches -= l.Batches()
		}
		release := w.occupy()
		var wg sync.WaitGroup
		for p := range int32(partitions) {
			wg.Go(func() {
				if n, err := w.c.ClampOffsets(context.Background(), "big", p, int64(p)); n != len(groups) || err != nil {
					t.Errorf("partition %d: %d lowered, %v", p, n, err)
				}
			})
		}
		synctest.Wait()
		release()
		wg.Wait()
		w.idle()
		if n := w.c.clamps.operations; n > 2*shards {
			t.Errorf("%d operations for %d partitions on %d shards", n, partitions, shards)
		}
		for _, l := range logs {
			batches += l.Batches()
		}
		if batches > 2*len(groups) {
			t.Errorf("%d batches", batches)
		}
		req := kmsg.NewPtrOffsetFetchRequest()
		req.Version = 9
		for _, id := range groups {
			g := kmsg.NewOffsetFetchRequestGroup()
			g.Group, g.MemberEpoch = id, -1
			req.Groups = append(req.Groups, g)
		}
		n := 0
		for _, g := range w.c.OffsetFetch(context.Background(), req).Groups {
			for _, p := range g.Topics[0].Partitions {
				if n++; p.Offset != int64(p.Partition) {
					t.Errorf("group %s, partition %d: offset %d", g.Group, p.Partition, p.Offset)
				}
			}
		}
		if n != len(groups)*partitions {
			t.Errorf("%d offsets", n)
		}
	})
}

// TestClampsOfOnePartition: the lowest of several ends holds, and each call counts what was above its own.
func TestClampsOfOnePartition(t *testing.T) {
	run(t, nil, func(w *world) {
		w.commit(func(r *kmsg.OffsetCommitRequest) { r.Topics[0].Partitions[0].Offset = 950 })
		release := w.occupy()
		first := make(chan string)
		go func() { first <- w.clamp(context.Background(), 2000) }() // a pass of its own
		synctest.Wait()
		ends := map[int64]string{960: "0 <nil>", 900: "1 <nil>", 800: "1 <nil>", 850: "1 <nil>"}
		var wg sync.WaitGroup
		for end, want := range ends {
			wg.Go(func() { w.want(fmt.Sprint(end), w.clamp(context.Background(), end), want) })
		}
		synctest.Wait()
		release()
		w.want("above all", <-first, "0 <nil>")
		wg.Wait()
		w.failOver()
		w.want("clamped", w.fetch(), "800/-1/")
	})
}

// TestClampThatIsGivenUp: a call whose context has ended lowers nothing any more, whether it waited for a pass or was in one, and
// takes nobody with it.
func TestClampThatIsGivenUp(t *testing.T) {
	run(t, nil, func(w *world) {
		w.commit(func(r *kmsg.OffsetCommitRequest) { r.Topics[0].Partitions[0].Offset = 950 })
		release := w.occupy()
		running, stopRunning := context.WithCancel(context.Background())
		waiting, stopWaiting := context.WithCancel(context.Background())
		results := make(chan error)
		call := func(ctx context.Context, end int64) {
			go func() {
				_, err := w.c.ClampOffsets(ctx, "t", 0, end)
				results <- err
			}()
			synctest.Wait()
		}
		gone := func(what string) {
			t.Helper()
			if err := <-results; !errors.Is(err, kerr.RequestTimedOut) || !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", what, err)
			}
		}
		call(running, 1)
		call(waiting, 2)
		call(context.Background(), 900)
		stopRunning()
		gone("in the pass")
		stopWaiting()
		gone("waiting for a pass")
		release()
		if err := <-results; err != nil {
			t.Error(err)
		}
		w.idle()
		w.want("only the one that was not given up", w.fetch(), "900/-1/")

		// One that waits for the commit.
		w.log.Hold()
		ctx, stop := context.WithCancel(context.Background())
		call(ctx, 800)
		began := time.Now()
		stop()
		gone("uncommitted")
		w.idle()
		if d := time.Since(began); d != 0 {
			t.Errorf("the pass that nobody waits for ends after %v", d)
		}
		// And one that is under way at the end.
		call(context.Background(), 700)
		closed := make(chan struct{})
		go func() { w.c.Close(); close(closed) }()
		if err := <-results; !errors.Is(err, kerr.RequestTimedOut) {
			t.Errorf("closed: %v", err)
		}
		<-closed
		if d := time.Since(began); d != 0 {
			t.Errorf("Close waits %v", d)
		}
		w.idle()
		w.want("closed", w.clamp(context.Background(), 600), "0 <nil>")
	})
}

// TestClampErrors: a shard that fails fails every call of the pass, and the next calls find it loaded again.
func TestClampErrors(t *testing.T) {
	run(t, nil, func(w *world) {
		w.commit(func(r *kmsg.OffsetCommitRequest) { r.Topics[0].Partitions[0].Offset = 950 })
		release := w.occupy()
		w.log.Fail(errors.New("disk"))
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				_, err := w.c.ClampOffsets(context.Background(), "t", 0, 800)
				if !errors.Is(err, kerr.CoordinatorNotAvailable) && !errors.Is(err, kerr.CoordinatorLoadInProgress) {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		release()
		wg.Wait()
		w.log.Fail(nil)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		w.want("again", w.clamp(context.Background(), 800), "1 <nil>")
		w.idle()
		w.c.Resign(0)
		w.want("no shard", w.clamp(context.Background(), 700), "0 <nil>")
	})
}
