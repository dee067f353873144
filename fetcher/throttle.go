package fetcher

import (
	"time"
)

// Throttle bounds the bytes of throttled partitions (SPEC section 12); quota.Limiter is one.
// Throttled partitions have loops of their own, so that others are not touched: their fetches ask for no more
// than was reserved, and bytes that were read are never delayed.
type Throttle interface {
	// ReserveFor takes up to want bytes for one of those who share the rate by weight, but at least least or half of what a burst
	// can hold. 0: ask again after retry, in time, for the share is kept.
	ReserveFor(now time.Time, who any, weight int, least, want int64) (granted int64, retry time.Duration)
	// SettleFor says how many bytes of a reservation were used. The next one is expected soon afterwards.
	SettleFor(now time.Time, who any, granted, used int64)
}

// leastReserved is what a request of a throttled loop is worth being sent for, in bytes.
const leastReserved = 64 << 10

// idleReserved is what a request takes, in bytes, that will probably bring nothing: others need what it would hold while the source
// waits. If it brings something, that is a single batch, and a debt.
const idleReserved = 1

// throttledFor is how long partitions count as held back after their loop had to wait.
const throttledFor = time.Second

// Rethrottle asks Options.Throttled again for every partition. Those for which the answer changed move to
// another loop; an append that is under way ends first.
func (m *Manager) Rethrottle() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, mi := range m.mirrors {
		for _, l := range mi.loops {
			l.signal() // it may wait at an older rate
		}
		m.settle(mi)
	}
}

func (m *Manager) throttled(mi *mirror, id ID) bool {
	return m.o.Throttle != nil && m.o.Throttled != nil && m.o.Throttled(mi.name, id)
}

// reserve is called before a request is built. It reports how long to wait when there is nothing to be had.
func (l *loop) reserve(now time.Time, limit int32) (granted int32, wait time.Duration) {
	if !l.key.throttled {
		return limit, 0
	}
	want := int64(limit)
	if l.used == 0 {
		want = min(want, idleReserved)
	}
	n, retry := l.m.o.Throttle.ReserveFor(now, l, l.fetchables, min(leastReserved, want), want)
	if n == 0 {
		retry = max(retry, time.Millisecond)
		l.heldUntil.Store(now.Add(retry).UnixNano())
		return 0, retry
	}
	if l.heldUntil.Load() > now.UnixNano() { // a raised rate has ended it
		l.heldUntil.Store(now.UnixNano())
	}
	l.reserved = n
	return int32(n), 0
}

// settle gives back what a response did not use.
func (l *loop) settle(now time.Time, used int64) {
	if l.reserved > 0 {
		l.used = used
		l.m.o.Throttle.SettleFor(now, l, l.reserved, used)
		l.reserved = 0
	}
}

// heldBack says whether the throttle holds the loop back, or did so lately.
func (l *loop) heldBack(now time.Time) bool {
	until := l.heldUntil.Load()
	return until != 0 && now.Sub(time.Unix(0, until)) < throttledFor
}
