package loadgen

import "sync"

// budget is a counting limit of bytes in flight. Once closed it lets everybody through.
type budget struct {
	mu     sync.Mutex
	cond   *sync.Cond
	used   int64
	limit  int64
	closed bool
}

func newBudget(limit int64) *budget {
	b := &budget{limit: limit}
	b.cond = sync.NewCond(&b.mu)
	return b
}

func (b *budget) take(n int64) {
	b.mu.Lock()
	for b.used > 0 && b.used+n > b.limit && !b.closed {
		b.cond.Wait()
	}
	b.used += n
	b.mu.Unlock()
}

func (b *budget) give(n int64) {
	b.mu.Lock()
	b.used -= n
	b.mu.Unlock()
	b.cond.Broadcast()
}

func (b *budget) waitEmpty() {
	b.mu.Lock()
	for b.used > 0 && !b.closed {
		b.cond.Wait()
	}
	b.mu.Unlock()
}

func (b *budget) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.cond.Broadcast()
}
