package replica

import (
	"context"
	"io/fs"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"stet/broker/log"
	"stet/broker/meta"
	"stet/internal/clock"
	"stet/internal/vfs"
	"stet/zerocopy/batch"
)

// yielding lets others run in the middle of an append, with the log's lock held: who is about to look at the log end does it then.
type yielding struct{ *vfs.Mem }

func (y yielding) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f, err := y.Mem.OpenFile(name, flag, perm)
	return yieldingFile{f}, err
}

type yieldingFile struct{ vfs.File }

func (f yieldingFile) WriteAt(p []byte, off int64) (int, error) {
	runtime.Gosched()
	return f.File.WriteAt(p, off)
}

// newPartition is a partition that this broker leads, alone.
func newPartition(t *testing.T) *Partition {
	t.Helper()
	logs, err := log.OpenManager(log.ManagerOptions{
		FS: yielding{vfs.NewMem()}, Dirs: []string{"/data"}, NodeID: 1, Clock: clock.System, MaxOpenFiles: 16, Logger: slog.New(slog.DiscardHandler),
	}, func(string) log.Config { return log.DefaultConfig() })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := logs.Close(); err != nil {
			t.Error(err)
		}
	})
	l, err := logs.Create("t", 0, [16]byte{1}, 1, log.DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	p := &Partition{Topic: "t", log: l, node: 1}
	p.setState(ledAt(0))
	return p
}

func ledAt(epoch int32) *meta.Partition {
	return &meta.Partition{Replicas: []int32{1}, ISR: []int32{1}, Leader: 1, LeaderEpoch: epoch, BarrierEnd: -1}
}

func oneRecord(offset int64) []byte {
	return batch.Build(nil, batch.Header{BaseOffset: offset, Timestamp: 1, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}, batch.KV{Value: []byte("v")})
}

// TestWhatWasAppendedStaysReadable: appends of clients and of the mirror, changes of the metadata and of the log start meet
// in any order. Nothing that was appended is unreadable when the append has returned, nor at any time later: the high watermark never goes back.
func TestWhatWasAppendedStaysReadable(t *testing.T) {
	const rounds = 5_000
	produce := func(t *testing.T, p *Partition) func(int) int64 {
		return func(int) int64 {
			res, err := p.AppendAsLeader(oneRecord(0), log.OriginClient)
			if err != nil {
				t.Error(err)
			}
			return res.LastOffset
		}
	}
	mirrored := func(t *testing.T, p *Partition) func(int) int64 {
		return func(i int) int64 {
			res, err := p.AppendAsFollower(oneRecord(int64(i)))
			if err != nil {
				t.Error(err)
			}
			return res.LastOffset
		}
	}
	metadata := func(_ *testing.T, p *Partition) func(int) int64 {
		return func(i int) int64 { p.setState(ledAt(int32(i))); return -1 }
	}
	noCut := func(t *testing.T, p *Partition) func(int) int64 { // the end is where it is, or moves on meanwhile
		return func(int) int64 {
			if err := p.Truncate(1 << 40); err != nil {
				t.Error(err)
			}
			return -1
		}
	}
	start := func(t *testing.T, p *Partition) func(int) int64 {
		return func(int) int64 {
			if err := p.log.IncrementLogStartOffset(p.log.HighWatermark() / 2); err != nil {
				t.Error(err)
			}
			return -1
		}
	}
	for name, who := range map[string][]func(*testing.T, *Partition) func(int) int64{
		"two producers":              {produce, produce},
		"a producer, the metadata":   {produce, metadata},
		"the mirror, the metadata":   {mirrored, metadata},
		"a producer, a cut of none":  {produce, noCut},
		"a producer, the log start":  {produce, start},
		"all that clients meet":      {produce, produce, metadata, start},
		"all that the mirror meets":  {mirrored, metadata, noCut, start},
		"the metadata, the metadata": {metadata, metadata, produce},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPartition(t)
			var wg sync.WaitGroup
			var stored atomic.Int64 // one more than the largest offset that an append has returned
			check := func() {
				want := stored.Load()
				if hw, lso := p.log.HighWatermark(), p.log.LastStableOffset(); hw < want || lso < want {
					t.Errorf("an append of offset %d has returned, the high watermark is %d, the last stable offset %d", want-1, hw, lso)
				}
			}
			for _, w := range who {
				do := w(t, p)
				wg.Go(func() {
					for i := 0; i < rounds && !t.Failed(); i++ {
						check()
						last := do(i)
						for {
							was := stored.Load()
							if last < was || stored.CompareAndSwap(was, last+1) {
								break
							}
						}
						check()
					}
				})
			}
			wg.Wait()
			check()
			end := p.log.LogEndOffset()
			for _, committed := range []bool{false, true} {
				res := p.Read(ReadRequest{Offset: end - 1, MaxBytes: 1 << 20, MinOneBatch: true, CurrentLeaderEpoch: -1, LastFetchedEpoch: -1, ReadCommitted: committed})
				if res.Err != nil || res.Slice.Len() == 0 || res.HighWatermark != end {
					t.Errorf("the last record, read committed %v: %d bytes, high watermark %d, log end %d, %v", committed, res.Slice.Len(), res.HighWatermark, end, res.Err)
				}
				res.Slice.Release()
			}
		})
	}
}

// TestNoWakeUpIsLost: a reader that waits as Fetch does, and one that waits for the commitment as Produce does, hear of every append, while others come and go and
// the metadata change. The producer goes on when both have seen its record, so that no later append hides what was lost.
func TestNoWakeUpIsLost(t *testing.T) {
	const rounds = 3000
	p := newPartition(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	seen := make(chan int64, 2)
	var wg, others sync.WaitGroup
	wg.Go(func() {
		for next := int64(0); next < rounds; next++ {
			w := NewWaiter()
			p.Watch(w)
			for {
				res := p.Read(ReadRequest{Offset: next, MaxBytes: 1, MinOneBatch: true, CurrentLeaderEpoch: -1, LastFetchedEpoch: -1, ReadCommitted: true})
				n := res.Slice.Len()
				res.Slice.Release()
				if n > 0 || res.Err != nil {
					break
				}
				select {
				case <-w.C:
				case <-ctx.Done():
					t.Errorf("the reader waits for offset %d, the high watermark is %d, the log end %d", next, p.log.HighWatermark(), p.log.LogEndOffset())
					return
				}
			}
			p.Unwatch(w)
			seen <- next
		}
	})
	wg.Go(func() {
		for next := int64(0); next < rounds; next++ {
			if err := p.WaitCommitted(ctx, next+1); err != nil {
				t.Errorf("offset %d is waited for, the high watermark is %d, the log end %d: %v", next, p.log.HighWatermark(), p.log.LogEndOffset(), err)
				return
			}
			seen <- next
		}
	})
	var done atomic.Bool
	others.Go(func() {
		for !done.Load() {
			w := NewWaiter()
			p.Watch(w)
			p.Unwatch(w)
		}
	})
	change := make(chan int32)
	others.Go(func() {
		for epoch := range change {
			p.setState(ledAt(epoch))
		}
	})
	for i := int64(0); i < rounds && ctx.Err() == nil; i++ {
		if i%2 == 0 { // a change wakes, too: the other appends have to do it alone
			change <- int32(i)
		}
		if _, err := p.AppendAsLeader(oneRecord(0), log.OriginClient); err != nil {
			t.Error(err)
			cancel()
		}
		for range 2 {
			select {
			case got := <-seen:
				if got != i {
					t.Errorf("offset %d was seen, %d is the last", got, i)
				}
			case <-ctx.Done():
			}
		}
	}
	wg.Wait()
	done.Store(true)
	close(change)
	others.Wait()
}
