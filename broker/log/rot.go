package log

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"stet/internal/vfs"
)

// Rot is found without a reader, too: after a start one goroutine per log directory checks, the newest segments first and at a bounded
// rate, what no reader has made check. Nothing makes a segment suspect later, so it ends when it is through. What it had to
// bring into the page cache it drops again.

// rotChecker is what the goroutines share.
type rotChecker struct {
	mu      sync.Mutex
	rate    int64         // bytes per second of each directory, 0: off
	changed chan struct{} // closed when the rate changes
	limits  []*ioLimit    // one per directory
}

func (c *rotChecker) init(rate int64, dirs int) {
	c.rate, c.changed = rate, make(chan struct{})
	for range dirs {
		c.limits = append(c.limits, newIOLimit(float64(rate)))
	}
}

// SetCheckRate changes how many bytes per second of each log directory are checked in the background; 0 stops that.
func (m *Manager) SetCheckRate(bytesPerSec int64) {
	c := &m.rot
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rate == bytesPerSec {
		return
	}
	c.rate = bytesPerSec
	for _, l := range c.limits {
		l.setRate(float64(bytesPerSec))
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

// CheckRate is how many bytes per second of each log directory are checked in the background.
func (m *Manager) CheckRate() int64 {
	m.rot.mu.Lock()
	defer m.rot.mu.Unlock()
	return m.rot.rate
}

const (
	rotStep  = 1 << 20 // bytes that are checked at once
	rotLeast = 1 << 20 // what a step counts at least: opening a file costs most of a millisecond
)

// wait takes n bytes of a directory's rate, and waits until they fit, or as long as checking is off.
func (c *rotChecker) wait(ctx context.Context, dir int, n int64) error {
	for {
		c.mu.Lock()
		on, changed, limit := c.rate > 0, c.changed, c.limits[dir]
		c.mu.Unlock()
		if on {
			return limit.wait(ctx, max(n, rotLeast))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

// suspects are the segments of a directory that were not checked, the newest first.
func (m *Manager) suspects(d *dataDir) (out []*segment) {
	for _, l := range m.all() {
		if l.home != d {
			continue
		}
		for _, s := range l.snapshotView().segs {
			if s.suspect.Load() && s.damaged.Load() == nil {
				out = append(out, s)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b *segment) int { return cmp.Compare(b.createdMs, a.createdMs) })
	return out
}

// runChecker checks the segments of directory number i until it is through or ctx ends.
func (m *Manager) runChecker(ctx context.Context, i int) {
	began := time.Now()
	bytes := int64(0)
	segs := m.suspects(m.dirs[i])
	for k, s := range segs {
		segs[k] = nil
		l := s.check.log
		if m.dirs[i].err() != nil {
			return
		}
		if l.Err() != nil {
			continue // why was said
		}
		n, err := m.checkSegment(ctx, i, s)
		bytes += n
		if ctx.Err() != nil {
			return
		}
		if err != nil && l.holds(s, 0) && l.Err() == nil {
			m.o.Logger.Error("segment cannot be checked", "topic", l.tp.topic, "partition", l.tp.partition, "file", s.path+logSuffix, "err", err)
		}
	}
	if bytes > 0 {
		m.o.Logger.Info("log directory was checked", "dir", m.dirs[i].path, "bytes", bytes, "took", time.Since(began))
	}
}

// checkSegment checks what is left of a segment. It returns how many bytes it checked.
func (m *Manager) checkSegment(ctx context.Context, dir int, s *segment) (n int64, err error) {
	if !s.tryRetain() {
		return 0, nil
	}
	defer s.release()
	limit := func() int64 {
		limit, _ := s.check.log.validSize(s)
		return limit
	}
	for {
		more, err := s.checkAll(ctx, limit, s.checkCold, func(n int64) error { return m.rot.wait(ctx, dir, n) })
		n += more
		if !errors.Is(err, errCut) {
			return n, err
		}
		// What is left after the cut is checked again.
	}
}

// checkAll checks what is left of a segment up to limit, piece by piece, with a function that checks cold or warm. wait is
// called, with no lock held, for what is to be read next; for what a survey read, afterwards.
func (s *segment) checkAll(ctx context.Context, limit func() int64, check func(from, to, limit int64) error, wait func(n int64) error) (n int64, err error) {
	for pos := int64(0); s.suspect.Load() && s.damaged.Load() == nil; {
		limit := limit()
		end := min(limit, s.check.old)
		if pos >= end {
			return n, nil
		}
		known, ok, stop := s.check.at(pos, end)
		if ok {
			pos = known.to
			continue
		}
		to := min(pos+rotStep, stop)
		if err := wait(to - pos); err != nil {
			return n, err
		}
		err := check(pos, to, limit)
		if isTorn(err) {
			read := int64(0)
			err = s.leaveCache(0, end, func() (err error) {
				read, err = s.surveyUntil(ctx.Done(), limit)
				return err
			})
			if werr := wait(max(read-(to-pos), 0)); err == nil {
				err = werr
			}
		}
		if err != nil {
			return n, err
		}
		n += to - pos
	}
	return n, nil
}

// checkWarm is checkRange for who is about to read the bytes.
func (s *segment) checkWarm(from, to, limit int64) error {
	_, err := s.checkRange(from, to, limit, -1)
	return err
}

// checkCold is checkRange that leaves the page cache as it was, more or less.
func (s *segment) checkCold(from, to, limit int64) error {
	return s.leaveCache(from, to, func() error { return s.checkWarm(from, to, limit) })
}

// leaveCache drops the range from the page cache after f read it, if most of it was not there before.
func (s *segment) leaveCache(from, to int64, f func() error) error {
	file, err := s.file.pin()
	if err != nil {
		return err
	}
	defer s.file.unpin()
	if p, ok := file.(vfs.PageCacher); ok {
		if in, err := p.Resident(from, to-from); err == nil && 2*in < to-from {
			defer func() { _ = p.DontNeed(from, to-from) }() // a hint
		}
	}
	return f()
}

// validSize is how many bytes of the segment are part of the log.
func (l *Log) validSize(s *segment) (n int64, ok bool) {
	l.pub.Lock()
	defer l.pub.Unlock()
	for i, have := range l.view.segs {
		if have != s {
			continue
		}
		if i == len(l.view.segs)-1 {
			return l.view.size, true
		}
		return s.size, true
	}
	return 0, false
}
