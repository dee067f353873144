package zerocopy

import (
	"container/list"
	"context"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"

	"stet/internal/invariant"
)

// Size classes are 4 KiB, 6 KiB, 8 KiB, 12 KiB, ... 64 MiB: at most a third of a buffer is unused.
const (
	minClassBits = 12
	maxClassBits = 26
	numClasses   = 2*(maxClassBits-minClassBits) + 1
)

// Pool hands out buffers of size classes. The sum of all leases never exceeds the
// budget, with two exceptions, so that a single large batch cannot block for ever: a lease larger
// than the whole budget is granted when nothing else is leased, and one lease at a time
// may be extended beyond it.
// Free buffers are kept as long as leased and kept bytes together fit the budget.
// A Pool is safe for concurrent use.
type Pool struct {
	mu      sync.Mutex
	budget  int64
	leased  int64
	kept    int64
	free    [numClasses][]*buffer
	waiters list.List // of *waiter, first come first served

	turn chan struct{} // holds a token while a lease is extended beyond the budget
}

// buffer is the reusable part of a lease. gen counts releases, so that the
// holder of an old Lease value is told from the present one.
type buffer struct {
	b   []byte
	gen atomic.Uint64
}

type waiter struct {
	n       int64
	granted chan struct{}
}

// NewPool returns a pool with a budget in bytes.
func NewPool(budget int64) *Pool {
	return &Pool{budget: budget, turn: make(chan struct{}, 1)}
}

// Lease is a buffer on loan. The zero Lease holds nothing; Release of it does nothing.
// Copies of a Lease are the same loan: exactly one of them is released, once.
type Lease struct {
	pool     *Pool
	buf      *buffer
	gen      uint64
	n        int
	reserved int64
	turn     bool // the lease has the pool's turn
}

// Lease returns a buffer of n bytes, waiting until the budget allows it. Waiters are
// served in order. The content is undefined. The error is the context's.
func (p *Pool) Lease(ctx context.Context, n int) (Lease, error) {
	return p.LeaseGrowing(ctx, n, n)
}

// LeaseGrowing reserves n bytes of the budget but takes a buffer of first bytes only (at
// most n); Grow brings it up to n step by step. So a peer's claim costs memory only as
// far as it is followed by bytes, and growing never waits.
func (p *Pool) LeaseGrowing(ctx context.Context, n, first int) (Lease, error) {
	first = min(first, n)
	size := classSize(n)
	if !p.reserve(size) {
		if err := p.wait(ctx, size); err != nil {
			return Lease{}, err
		}
	}
	return p.take(first, size), nil
}

// Extend reserves more of the budget, so that Grow may go up to n bytes. Where the budget has no room, one lease of the pool at
// a time may exceed it, and others wait for that one's release: who waits holds a part of the budget already, so waiting
// for the budget itself could go round in a circle. The error is the context's.
func (p *Pool) Extend(ctx context.Context, l *Lease, n int) error {
	extra := classSize(n) - l.reserved
	if extra <= 0 {
		return nil
	}
	p.mu.Lock()
	fits := l.turn || p.waiters.Len() == 0 && p.leased+extra <= p.budget
	if fits {
		p.leased += extra
	}
	p.mu.Unlock()
	if !fits {
		select {
		case p.turn <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		l.turn = true
		p.mu.Lock()
		p.leased += extra
		p.mu.Unlock()
	}
	l.reserved += extra
	return nil
}

// TryLease is Lease that refuses instead of waiting.
func (p *Pool) TryLease(n int) (Lease, bool) {
	size := classSize(n)
	if !p.reserve(size) {
		return Lease{}, false
	}
	return p.take(n, size), true
}

// Leased is the number of bytes on loan now.
func (p *Pool) Leased() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.leased
}

// Budget is the limit in bytes.
func (p *Pool) Budget() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.budget
}

// SetBudget changes the limit. What is leased beyond a smaller one stays so until it is released.
func (p *Pool) SetBudget(budget int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.budget = budget
	p.trim()
	p.grant()
}

func (p *Pool) reserve(size int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiters.Len() > 0 || !p.fits(size) {
		return false
	}
	p.leased += size
	return true
}

func (p *Pool) fits(size int64) bool { return p.leased == 0 || p.leased+size <= p.budget }

func (p *Pool) wait(ctx context.Context, size int64) error {
	w := &waiter{n: size, granted: make(chan struct{})}
	p.mu.Lock()
	e := p.waiters.PushBack(w)
	p.grant()
	p.mu.Unlock()
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-w.granted: // the grant and the cancellation crossed: give it back
		p.leased -= size
	default:
		p.waiters.Remove(e)
	}
	p.grant()
	return ctx.Err()
}

// grant serves waiters from the front as long as they fit. The lock is held.
func (p *Pool) grant() {
	for e := p.waiters.Front(); e != nil; e = p.waiters.Front() {
		w := e.Value.(*waiter)
		if !p.fits(w.n) {
			return
		}
		p.leased += w.n
		p.waiters.Remove(e)
		close(w.granted)
	}
}

// take makes a lease of n bytes for reserved bytes that are already counted.
func (p *Pool) take(n int, reserved int64) Lease {
	buf := p.buffer(n)
	return Lease{pool: p, buf: buf, gen: buf.gen.Load(), n: n, reserved: reserved}
}

func (p *Pool) buffer(n int) *buffer {
	class := classOf(n)
	p.mu.Lock()
	defer p.mu.Unlock()
	if class < numClasses {
		if f := p.free[class]; len(f) > 0 {
			buf := f[len(f)-1]
			f[len(f)-1] = nil
			p.free[class] = f[:len(f)-1]
			p.kept -= int64(cap(buf.b))
			return buf
		}
	}
	p.trim()
	return &buffer{b: make([]byte, classSize(n))}
}

// trim drops kept buffers, largest first, until they fit beside the leased ones. The lock is held.
func (p *Pool) trim() {
	for class := numClasses - 1; class >= 0 && p.kept > 0 && p.leased+p.kept > p.budget; {
		f := p.free[class]
		if len(f) == 0 {
			class--
			continue
		}
		p.kept -= int64(cap(f[len(f)-1].b))
		f[len(f)-1] = nil
		p.free[class] = f[:len(f)-1]
	}
}

// keep takes a buffer back. The lock is held.
func (p *Pool) keep(buf *buffer) {
	class := classOf(cap(buf.b))
	if class >= numClasses || p.leased+p.kept+int64(cap(buf.b)) > p.budget {
		return // left to the garbage collector
	}
	p.kept += int64(cap(buf.b))
	p.free[class] = append(p.free[class], buf)
}

// Bytes is the buffer, as long as it was asked for (Grow included).
func (l *Lease) Bytes() []byte {
	if l.buf == nil {
		return nil
	}
	if invariant.Enabled {
		invariant.Check(l.buf.gen.Load() == l.gen, "a released buffer is used")
	}
	return l.buf.b[:l.n]
}

// Valid says whether the lease holds a buffer. It does not notice the release of a copy.
func (l *Lease) Valid() bool { return l.buf != nil }

// Grow makes the buffer at least n bytes, keeping the first used ones, and reports how many
// bytes had to be copied. n beyond what was reserved is a BUG.
func (l *Lease) Grow(used, n int) (copied int) {
	if n <= l.n {
		return 0
	}
	if int64(n) > l.reserved {
		panic(fmt.Sprintf("BUG: lease of %d bytes grown to %d", l.reserved, n))
	}
	if n <= cap(l.buf.b) {
		l.n = n
		return 0
	}
	next := l.pool.buffer(n)
	copied = copy(next.b, l.buf.b[:used])
	old := l.buf
	if !old.gen.CompareAndSwap(l.gen, l.gen+1) {
		panic("BUG: a released buffer is grown")
	}
	invariant.Mangle(old.b)
	l.buf, l.gen, l.n = next, next.gen.Load(), n
	l.pool.mu.Lock()
	l.pool.keep(old)
	l.pool.mu.Unlock()
	return copied
}

// Shrink gives the lease a shorter length; the buffer and the budget stay.
func (l *Lease) Shrink(n int) {
	if n < l.n {
		l.n = n
	}
}

// Release gives the buffer back. Nobody may look at its bytes afterwards. A second
// release of the same loan, also through a copy, is a BUG panic.
func (l *Lease) Release() {
	buf := l.buf
	if buf == nil {
		return
	}
	if !buf.gen.CompareAndSwap(l.gen, l.gen+1) {
		panic("BUG: a buffer is released twice")
	}
	invariant.Mangle(buf.b)
	p := l.pool
	p.mu.Lock()
	p.leased -= l.reserved
	p.keep(buf)
	p.grant()
	p.mu.Unlock()
	if l.turn {
		<-p.turn
	}
}

// classOf is the index of the smallest class that holds n bytes, numClasses if none does.
func classOf(n int) int {
	if n <= 1<<minClassBits {
		return 0
	}
	b := bits.Len(uint(n - 1)) // 2^(b-1) < n <= 2^b
	if b > maxClassBits {
		return numClasses
	}
	class := 2 * (b - minClassBits)
	if n <= 3<<(b-2) {
		class--
	}
	return class
}

// classSize is the capacity of the buffer that holds n bytes; beyond the classes it is exact.
func classSize(n int) int64 {
	class := classOf(n)
	if class == numClasses {
		return int64(n)
	}
	return sizeOf(class)
}

func sizeOf(class int) int64 {
	if class%2 == 0 {
		return 1 << (minClassBits + class/2)
	}
	return 3 << (minClassBits + class/2 - 1)
}

// FloorSize is the largest size of a buffer that is not above n bytes; below the smallest one it is that.
func FloorSize(n int64) int64 {
	best := int64(1) << minClassBits
	for class := range numClasses {
		if size := sizeOf(class); size <= n {
			best = size
		}
	}
	return best
}
