package log

import "fmt"

// IncrementLogStartOffset moves the log start forward, at most to the log end, and moves
// whole segments below it aside. A lower offset than the current one changes nothing.
func (l *Log) IncrementLogStartOffset(to int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	if end := l.end.Load(); to > end {
		return &OffsetOutOfRangeError{to, l.start.Load(), end}
	}
	return l.raiseStart(to, "")
}

func (l *Log) raiseStart(to int64, why string) error {
	if from := l.start.Load(); to <= from {
		return nil
	} else if why != "" {
		l.logger.Info("log start moves", "topic", l.tp.topic, "partition", l.tp.partition, "from", from, "offset", to, "reason", why)
	}
	l.start.Store(to)
	l.setHighWatermark(max(l.hw.Load(), to))
	l.state.replicated(to)
	l.unstable.Store(l.state.firstUnstable())
	if l.epochs.truncateStart(to) {
		if err := l.writeEpochs(false); err != nil {
			return err
		}
	}
	return l.deleteBelowStart()
}

// deleteBelowStart moves the segments aside that end at or below the log start.
func (l *Log) deleteBelowStart() error {
	start := l.start.Load()
	n := 0
	for n < len(l.segs)-1 && l.segs[n+1].base <= start {
		n++
	}
	if n == 0 {
		return nil
	}
	gone, keep := l.segs[:n], l.segs[n:]
	first := keep[0].base
	if err := l.removeSnapshots(func(o int64) bool { return o < first }); err != nil {
		return err
	}
	for _, s := range gone { // from the oldest on, so that a crash never leaves a hole
		if err := l.moveAside(s); err != nil {
			return err
		}
	}
	l.segs = keep
	l.sizes()
	l.publish(l.end.Load())
	for _, s := range gone {
		s.release()
	}
	return nil
}

// ApplyRetention deletes what the topic's retention no longer keeps: from the oldest on,
// whole segments below the high watermark. It does nothing while retention is switched off.
func (l *Log) ApplyRetention() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	cfg := l.cfg.Load()
	if !l.retention.Load() || !cfg.deletes() {
		return l.deleteBelowStart()
	}
	now, hw := l.nowMs(), l.hw.Load()
	over := l.total.Load() - cfg.RetentionBytes
	n, why := 0, ""
	for i, s := range l.segs {
		next := l.end.Load()
		if i < len(l.segs)-1 {
			next = l.segs[i+1].base
		}
		if next > hw || s.size == 0 {
			break
		}
		ts, _, err := s.largestTs(s.size)
		if err != nil {
			return l.fail("read index", err)
		}
		if ts < 0 {
			ts = s.createdMs
		}
		switch {
		case cfg.RetentionMs >= 0 && now-ts > cfg.RetentionMs:
			why = fmt.Sprintf("retention.ms %d", cfg.RetentionMs)
		case cfg.RetentionBytes >= 0 && over-s.size >= 0:
			why = fmt.Sprintf("retention.bytes %d", cfg.RetentionBytes)
		default:
			next = -1
		}
		if next < 0 {
			break
		}
		over -= s.size
		n++
	}
	if n == 0 {
		return l.deleteBelowStart()
	}
	if n == len(l.segs) { // all of it: an empty segment takes over
		if err := l.rollTo(l.end.Load()); err != nil {
			return err
		}
	}
	return l.raiseStart(l.segs[n].base, why)
}

// expireProducers forgets producers that have been silent for long.
func (l *Log) expireProducers(nowMs, afterMs int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state.expire(nowMs, afterMs)
}

// dropIdleIndexes unloads indexes of inactive segments that nobody reads.
func (l *Log) dropIdleIndexes() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.usable() != nil {
		return
	}
	for _, s := range l.segs[:len(l.segs)-1] {
		s.dropIdle()
	}
}
