package log

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// writeBackStep is what write-back is started in: whole steps, counted from the start of the file.
	writeBackStep = 1 << 20
	// writeBackDelay is how long a log gathers full steps until its turn comes.
	writeBackDelay = time.Second
	// writeBackPart of what a log has gathered is handed over at once, if that is more than a step.
	writeBackPart = 4
	// writeBackShare is how many times as long as a call took the next one waits, but writeBackPause at most: partitions that are written to in
	// turn fill their steps at the same moment, and their bytes at once would hold the processor and the disk's queue for a tenth of a second.
	writeBackShare = 4
	writeBackPause = 100 * time.Millisecond
)

// writeBacks are the logs of a directory that have full steps to hand to the kernel. A log is in it once (Log.wantsWriteBack).
type writeBacks struct {
	mu     sync.Mutex
	queue  []queuedLog // as they are due
	wakeUp chan struct{}
}

type queuedLog struct {
	l   *Log
	due time.Time
}

func (w *writeBacks) init() { w.wakeUp = make(chan struct{}, 1) }

func (w *writeBacks) add(l *Log) {
	w.mu.Lock()
	w.queue = append(w.queue, queuedLog{l, time.Now().Add(writeBackDelay)})
	w.mu.Unlock()
	select {
	case w.wakeUp <- struct{}{}:
	default:
	}
}

// take adds the logs that are due to working. wait is how long the next one has, negative if there is none.
func (w *writeBacks) take(working []*writing) (_ []*writing, wait time.Duration) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	due := 0
	wait = -1
	for _, q := range w.queue {
		if left := q.due.Sub(now); left > 0 {
			wait = left
			break
		}
		working = append(working, &writing{l: q.l})
		due++
	}
	w.queue = slices.Delete(w.queue, 0, due)
	return working, wait
}

// run starts write-back of full steps until ctx ends.
func (w *writeBacks) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	pause := func(d time.Duration) bool {
		var over <-chan time.Time
		if d >= 0 {
			timer.Reset(d)
			over = timer.C
		}
		select {
		case <-ctx.Done():
			return false
		case <-w.wakeUp:
			return true
		case <-over:
			return true
		}
	}
	var working []*writing
	for {
		var wait time.Duration
		if working, wait = w.take(working); len(working) == 0 {
			if !pause(wait) {
				return
			}
			continue
		}
		more := working[:0]
		for _, at := range working {
			took, again := at.piece()
			if again {
				more = append(more, at)
			}
			timer.Reset(min(writeBackShare*took, writeBackPause))
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
			}
		}
		clear(working[len(more):])
		working = more
	}
}

// noteStep queues the log for write-back if an append at pos has filled a step. Log.mu is held.
func (l *Log) noteStep(pos, size int64) {
	if size/writeBackStep > pos/writeBackStep && !l.wantsWriteBack {
		l.wantsWriteBack = true
		l.home.writeBacks.add(l)
	}
}

// writing is the work on a log whose turn has come: what its active segment had then.
type writing struct {
	l   *Log
	seg *segment
	to  int64
}

// piece lets the kernel begin to write the next full steps of the active segment, so that a flush, at a roll or at a failover, finds little to
// do, and so that the kernel does not come to write much of it at once by itself. The step that appends go on in is left out: file systems keep
// the pages that they prepare for writing locked while the disk's queue is full, and an append to the page at the end would wait for that,
// with all others of its fetch loop. Pages are of 4 KiB up to the size of an append, at multiples of their size, so a step holds whole ones.
// took is what the call took, for which no lock was held.
func (w *writing) piece() (took time.Duration, again bool) {
	l := w.l
	l.mu.Lock()
	if l.usable() != nil {
		l.wantsWriteBack = false
		l.mu.Unlock()
		return 0, false
	}
	s := l.active()
	full := s.size &^ (writeBackStep - 1)
	if w.seg != s { // a roll has the rest of the other one flushed
		w.seg, w.to = s, full
	}
	from := max(s.wroteBack, s.flushed)
	to := min((from+max(writeBackStep, (w.to-from)/writeBackPart))&^(writeBackStep-1), w.to)
	if again = to < w.to; !again {
		if l.wantsWriteBack = full > w.to; l.wantsWriteBack {
			l.home.writeBacks.add(l)
		}
	}
	if to <= from {
		l.mu.Unlock()
		return 0, again
	}
	s.wroteBack = to
	s.retain()
	l.mu.Unlock()
	defer s.release()
	start := time.Now()
	if err := s.file.WriteBack(from, to-from); err != nil {
		// A hint that was not taken; whether the disk works is for the next sync to find out.
		l.logger.Debug("write-back not started", "topic", l.tp.topic, "partition", l.tp.partition, "err", err)
	}
	return time.Since(start), again
}
