package replica

// Waiter is told when something changed in any of the partitions it watches.
type Waiter struct {
	// C receives at most one pending signal.
	C chan struct{}
}

// NewWaiter returns a waiter that watches nothing yet.
func NewWaiter() *Waiter { return &Waiter{C: make(chan struct{}, 1)} }

// Watch adds w. A change after Watch returns is signalled; one before it is
// not, so watch first and look then.
func (p *Partition) Watch(w *Waiter) {
	p.waitMu.Lock()
	if p.waiters == nil {
		p.waiters = map[*Waiter]struct{}{}
	}
	p.waiters[w] = struct{}{}
	p.waiting.Store(int32(len(p.waiters)))
	p.waitMu.Unlock()
}

// Unwatch removes w.
func (p *Partition) Unwatch(w *Waiter) {
	p.waitMu.Lock()
	delete(p.waiters, w)
	p.waiting.Store(int32(len(p.waiters)))
	p.waitMu.Unlock()
}

// Wake signals all waiters. The append path pays one atomic load when nobody
// waits. The order that makes this safe: an append publishes the log end first
// and loads waiting second; a reader stores waiting first and looks at the log
// end second. So either the reader sees the new end or the append sees the reader.
func (p *Partition) Wake() {
	if p.waiting.Load() == 0 {
		return
	}
	p.waitMu.Lock()
	for w := range p.waiters {
		select {
		case w.C <- struct{}{}:
		default:
		}
	}
	p.waitMu.Unlock()
}
