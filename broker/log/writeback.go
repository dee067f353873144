package log

import (
	"context"
	"sync"
	"time"
)

// writeBackStep is what write-back is started in: whole steps, counted from the start of the file.
const writeBackStep = 1 << 20

// writeBackShare is how many times as long as a call took the next one waits, but writeBackPause at most: partitions that are written to in turn fill
// their steps at the same moment, and their bytes at once would hold the processor and the disk's queue for a tenth of a second.
const (
	writeBackShare = 4
	writeBackPause = 100 * time.Millisecond
)

// writeBacks are the logs that have whole steps to hand to the kernel, in the order in which they filled them.
type writeBacks struct {
	mu     sync.Mutex
	queue  []*Log
	taken  []*Log // its memory, while the other one is worked on
	wakeUp chan struct{}
}

func (w *writeBacks) init() { w.wakeUp = make(chan struct{}, 1) }

// add queues a log. A log is queued once, whatever it fills until its turn comes (Log.wantsWriteBack).
func (w *writeBacks) add(l *Log) {
	w.mu.Lock()
	w.queue = append(w.queue, l)
	w.mu.Unlock()
	select {
	case w.wakeUp <- struct{}{}:
	default:
	}
}

// take is what was queued since the last call, valid until the next one.
func (w *writeBacks) take() []*Log {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.taken) // a log that is deleted goes
	w.queue, w.taken = w.taken[:0], w.queue
	return w.taken
}

// runWriteBack starts write-back of full steps until ctx ends.
func (m *Manager) runWriteBack(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.writeBacks.wakeUp:
		}
		for _, l := range m.writeBacks.take() {
			start := time.Now()
			l.startWriteBack()
			timer.Reset(min(writeBackShare*time.Since(start), writeBackPause))
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
			}
		}
	}
}

// noteStep queues the log for write-back if an append at pos has filled a step. Log.mu is held.
func (l *Log) noteStep(pos, size int64) {
	if size/writeBackStep > pos/writeBackStep && !l.wantsWriteBack {
		l.wantsWriteBack = true
		l.m.writeBacks.add(l)
	}
}

// startWriteBack lets the kernel begin to write the full steps of the active segment, so that a flush, at a roll or at a failover, finds little to
// do, and so that the kernel does not come to write much of it at once by itself. The step that appends go on in is left out: file systems keep
// the pages that they prepare for writing locked while the disk's queue is full, and an append to the page at the end would wait for that,
// with all others of its fetch loop. Pages are of 4 KiB up to the size of an append, at multiples of their size, so a step holds whole ones.
func (l *Log) startWriteBack() {
	l.mu.Lock()
	l.wantsWriteBack = false
	if l.usable() != nil {
		l.mu.Unlock()
		return
	}
	s := l.active()
	from := max(s.wroteBack, s.flushed)
	to := s.size &^ (writeBackStep - 1)
	if to <= from {
		l.mu.Unlock()
		return
	}
	s.wroteBack = to
	w := s.file
	s.retain()
	l.mu.Unlock()
	defer s.release()
	if err := w.WriteBack(from, to-from); err != nil {
		// A hint that was not taken; whether the disk works is for the next sync to find out.
		l.logger.Debug("write-back not started", "topic", l.tp.topic, "partition", l.tp.partition, "err", err)
	}
}
