package coord

import (
	"context"
	"sync"

	"stet/zerocopy/batch"
)

// MemLog is a Log in memory, for the tests of coordinators. The high watermark follows the log end unless it
// is held. It is safe for concurrent use.
type MemLog struct {
	mu      sync.Mutex
	batches [][]byte
	end     int64
	hw      int64
	synced  int64
	held    bool
	fail    error
	moved   chan struct{} // closed when the high watermark moves
}

// NewMemLog is an empty log.
func NewMemLog() *MemLog { return &MemLog{moved: make(chan struct{})} }

// LogStartOffset implements Log.
func (l *MemLog) LogStartOffset() int64 { return 0 }

// LogEndOffset implements Log.
func (l *MemLog) LogEndOffset() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end
}

// Batches is the number of batches that were appended.
func (l *MemLog) Batches() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.batches)
}

// Read implements Log; it returns one batch at a time.
func (l *MemLog) Read(offset int64, _ int) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.batches {
		if batch.Batch(b).LastOffset() >= offset {
			return b, nil
		}
	}
	return nil, nil
}

// AppendBatch implements Log.
func (l *MemLog) AppendBatch(b []byte) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fail != nil {
		return 0, l.fail
	}
	v := batch.Batch(append([]byte{}, b...))
	v.SetBaseOffset(l.end)
	if err := v.Check(); err != nil {
		return 0, err
	}
	l.batches = append(l.batches, v)
	l.end = v.NextOffset()
	if !l.held {
		l.move()
	}
	return l.end, nil
}

func (l *MemLog) move() {
	l.hw = l.end
	close(l.moved)
	l.moved = make(chan struct{})
}

// Hold keeps the high watermark where it is until Release.
func (l *MemLog) Hold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = true
}

// Release moves the high watermark to the log end.
func (l *MemLog) Release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = false
	l.move()
}

// Fail makes appends fail with err; nil ends that.
func (l *MemLog) Fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fail = err
}

// Sync implements Log.
func (l *MemLog) Sync() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.synced = l.end
	return l.fail
}

// Synced is the log end at the last Sync.
func (l *MemLog) Synced() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.synced
}

// WaitCommitted implements Log.
func (l *MemLog) WaitCommitted(ctx context.Context, end int64) error {
	for {
		l.mu.Lock()
		reached, moved := l.hw >= end, l.moved
		l.mu.Unlock()
		if reached {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
