package mirror

import (
	"sync"
	"time"
)

// maxSights bounds the memory of a lag tracker (SPEC section 13).
const maxSights = 64

// sight is a source high watermark and when it was first seen.
type sight struct {
	hw int64
	at time.Time
}

// lag remembers what was seen of the source's end. Safe for concurrent use.
type lag struct {
	mu     sync.Mutex
	hw     int64 // last seen, -1 for never
	lso    int64
	seenAt time.Time
	sights []sight // ascending in both
	caught time.Time
	stale  bool // nothing was seen since a pause: the lag is unknown
}

func newLag() *lag { return &lag{hw: -1, lso: -1} }

// observe notes the source's high watermark; logEnd is the local log end after what came with it.
func (l *lag) observe(hw, lso, logEnd int64, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hw, l.lso, l.seenAt, l.stale = hw, lso, at, false
	// A source that was cut back has no records above its end.
	for n := len(l.sights); n > 0 && l.sights[n-1].hw > hw; n-- {
		l.sights = l.sights[:n-1]
	}
	if n := len(l.sights); n == 0 || l.sights[n-1].hw < hw {
		l.sights = append(l.sights, sight{hw, at})
	}
	l.drop(logEnd)
	if hw <= logEnd {
		l.caught = at
	}
	if len(l.sights) > maxSights {
		l.merge()
	}
}

// pause makes the lag unknown until the source is seen again; where its end was last seen stays known.
func (l *lag) pause() {
	l.mu.Lock()
	l.stale, l.sights = true, nil
	l.mu.Unlock()
}

// caughtUp is when the copy was last at the source's end, zero for never.
func (l *lag) caughtUp() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.caught
}

// wasCaughtUp takes over what was stored.
func (l *lag) wasCaughtUp(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at.After(l.caught) {
		l.caught = at
	}
}

// forgetCaughtUp is for a log that begins anew.
func (l *lag) forgetCaughtUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.caught = time.Time{}
}

func (l *lag) drop(logEnd int64) {
	n := 0
	for n < len(l.sights) && l.sights[n].hw <= logEnd {
		n++
	}
	l.sights = append(l.sights[:0], l.sights[n:]...)
}

// merge joins the two neighbours that are closest in time. The joint sight has the older time and the greater
// offset: the lag may be reported up to the distance of the two too large, never too small.
func (l *lag) merge() {
	best := 1
	for i := 2; i < len(l.sights); i++ {
		if l.sights[i].at.Sub(l.sights[i-1].at) < l.sights[best].at.Sub(l.sights[best-1].at) {
			best = i
		}
	}
	l.sights[best-1].hw = l.sights[best].hw
	l.sights = append(l.sights[:best], l.sights[best+1:]...)
}

// lagNow is what is known at a moment: -1 where nothing is.
type lagNow struct {
	sourceEnd int64
	records   int64
	time      time.Duration
	seenAt    time.Time // of the last sight, zero for never
	caughtUp  time.Time
	sourceLSO int64
}

func (l *lag) now(logEnd int64, now time.Time) lagNow {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := lagNow{sourceEnd: l.hw, records: -1, time: -1, seenAt: l.seenAt, caughtUp: l.caught, sourceLSO: l.lso}
	if l.hw < 0 || l.stale {
		return out
	}
	l.drop(logEnd)
	out.records, out.time = max(0, l.hw-logEnd), 0
	if len(l.sights) > 0 && out.records > 0 {
		out.time = max(now.Sub(l.sights[0].at), 0)
	}
	return out
}
