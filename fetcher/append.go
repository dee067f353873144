package fetcher

import (
	"fmt"
	"math/rand/v2"
	"time"

	"stet/zerocopy/batch"
)

// appendChunk is how many bytes are checked before they are appended. Larger writes beat warmer caches: 256 KiB cost 1.06 to 1.17
// times as much CPU (benchmarks, raw-loops and catchup-16k); beyond 1 MiB readers would see the bytes later for nothing.
const appendChunk = 1 << 20

// append carries out the plans of the last response.
func (l *loop) append() {
	l.watch.Reset(slowAppend)
	defer func() {
		l.watch.Stop()
		l.appending.Store(nil)
	}()
	begin := time.Now()
	for i := range l.plans {
		pl := &l.plans[i]
		l.since.Store(begin.UnixNano())
		l.appending.Store(pl.p)
		e, dropped := l.appendOne(pl)
		end := time.Now()
		l.slowest.Store(max(l.slowest.Load(), int64(end.Sub(begin))))
		begin = end
		if e.Kind == 0 && pl.halts {
			l.events = append(l.events, pl.stop)
			continue
		}
		if e.Kind == 0 && !dropped && pl.p.fetched {
			continue
		}
		l.mu.Lock()
		if l.partitions[pl.p.id] == pl.p {
			switch {
			case e.Kind != 0:
				l.stop(pl.p, e)
			case !dropped:
				pl.p.fetched = true
				l.events = append(l.events, pl.p.event(EventFetched, l.mirror))
			default: // the log is not where it was: ask again from its end
				pl.p.next, pl.p.epoch = pl.p.sink.LogEndOffset(), pl.p.sink.LatestEpoch()
				l.touch(pl.p)
			}
		}
		l.mu.Unlock()
	}
}

// appendOne checks and appends the batches of one plan. dropped says that the log end has moved under us.
func (l *loop) appendOne(pl *plan) (e Event, dropped bool) {
	p := pl.p
	p.mu.Lock()
	defer p.mu.Unlock()
	c := l.m.o.Counters
	if p.removed {
		c.IgnoredBytes.Add(int64(len(pl.records)))
		return Event{}, false
	}
	if len(pl.records) > 0 && p.sink.LogEndOffset() != pl.first {
		c.IgnoredBytes.Add(int64(len(pl.records)))
		return Event{}, true
	}
	for rest := pl.records; len(rest) > 0; {
		a, after, err := check(rest)
		c.CheckedBytes.Add(int64(len(a.Records)))
		if err != nil {
			e = p.event(EventCorrupt, l.mirror)
			e.Offset, e.Err = batch.BaseOffsetOf(after), fmt.Errorf("source broker %d: %w", l.key.broker, err)
			c.CheckedBytes.Add(batch.SizeOf(after))
		}
		if a.Batches > 0 {
			if err := p.sink.Append(a); err != nil {
				e = p.event(EventAppend, l.mirror)
				e.Offset, e.Err = a.BaseOffset, fmt.Errorf("append at offset %d: %w", a.BaseOffset, err)
				return e, false
			}
			c.Appends.Add(1)
			c.AppendedBatches.Add(int64(a.Batches))
			c.AppendedBytes.Add(int64(len(a.Records)))
		}
		if e.Kind != 0 {
			break
		}
		rest = after
	}
	p.sink.Observe(pl.obs)
	return e, false
}

// check verifies the CRC of the batches at the front of b, up to appendChunk bytes but at least one. On an error
// a holds the good ones and rest begins at the bad one.
func check(b []byte) (a Append, rest []byte, err error) {
	rest = b
	for len(rest) > 0 && (a.Batches == 0 || len(b)-len(rest) < appendChunk) {
		first, after, err := batch.Next(rest)
		if err == nil {
			err = first.CheckCRC()
		}
		if err != nil {
			a.Records = b[:len(b)-len(rest)]
			return a, rest, err
		}
		if a.Batches == 0 {
			a.BaseOffset = first.BaseOffset()
			a.MaxEpoch = first.PartitionLeaderEpoch()
		}
		a.Batches++
		a.NextOffset = first.NextOffset()
		a.MaxEpoch = max(a.MaxEpoch, first.PartitionLeaderEpoch())
		rest = after
	}
	a.Records = b[: len(b)-len(rest) : len(b)-len(rest)]
	return a, rest, nil
}

// jitter is between half of d and d.
func jitter(d time.Duration) time.Duration {
	if d <= 1 {
		return d
	}
	return d/2 + rand.N(d/2)
}
