package server

import (
	"context"
	"errors"
	"sync"
	"time"
)

// errMemoryWait says that a request could not be admitted in time.
var errMemoryWait = errors.New("request memory was not admitted in time")

// memory is the byte budget that all connections read requests into. Bytes are
// admitted before they are read, step by step with what has really arrived, so
// that a claimed length alone costs nothing. A request that is larger than the
// whole budget is admitted when nothing else is in use.
type memory struct {
	mu      sync.Mutex
	limit   int64
	used    int64
	waiters []*memoryWaiter // first come, first served
}

type memoryWaiter struct {
	n     int64
	ready chan struct{}
}

func newMemory(limit int64) *memory { return &memory{limit: limit} }

func (m *memory) fits(n int64) bool { return m.used == 0 || m.used+n <= m.limit }

// acquire waits until n bytes fit. held is what the caller holds already: a
// holder that waits for more while everybody does would never end, so it waits
// at most patience.
func (m *memory) acquire(ctx context.Context, n int64, patience time.Duration) error {
	m.mu.Lock()
	if len(m.waiters) == 0 && m.fits(n) {
		m.used += n
		m.mu.Unlock()
		return nil
	}
	w := &memoryWaiter{n: n, ready: make(chan struct{})}
	m.waiters = append(m.waiters, w)
	m.mu.Unlock()

	timer := time.NewTimer(patience)
	defer timer.Stop()
	var err error
	select {
	case <-w.ready:
		return nil
	case <-timer.C:
		err = errMemoryWait
	case <-ctx.Done():
		err = ctx.Err()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, o := range m.waiters {
		if o == w {
			m.waiters = append(m.waiters[:i], m.waiters[i+1:]...)
			m.grant()
			return err
		}
	}
	// It was granted between the select and the lock: give it back.
	m.used -= n
	m.grant()
	return err
}

func (m *memory) release(n int64) {
	m.mu.Lock()
	m.used -= n
	m.grant()
	m.mu.Unlock()
}

func (m *memory) grant() {
	for len(m.waiters) > 0 && m.fits(m.waiters[0].n) {
		w := m.waiters[0]
		m.waiters = m.waiters[1:]
		m.used += w.n
		close(w.ready)
	}
}

func (m *memory) inUse() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}
