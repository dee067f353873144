package log

import (
	"fmt"
	"slices"
	"sync"
)

const epochFile = "leader-epoch-checkpoint"

// epochCache is Kafka's leader-epoch cache: the first offset of every leader epoch in the
// log, both strictly rising. It is filled from batches only.
type epochCache struct {
	mu      sync.RWMutex
	entries []EpochEntry
}

// assign notes that offset was appended in epoch. It reports whether the cache changed.
// Entries that contradict it are dropped, as Kafka does.
func (c *epochCache) assign(epoch int32, offset int64) bool {
	if epoch < 0 {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.entries)
	if n > 0 && c.entries[n-1].Epoch == epoch && offset >= c.entries[n-1].Start {
		return false
	}
	for n > 0 && (c.entries[n-1].Epoch >= epoch || c.entries[n-1].Start >= offset) {
		n--
	}
	c.entries = append(c.entries[:n], EpochEntry{epoch, offset})
	return true
}

// current is assign's answer to "does this batch change anything", without a write lock.
func (c *epochCache) current(epoch int32) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	n := len(c.entries)
	return n > 0 && c.entries[n-1].Epoch == epoch
}

// truncateEnd drops the epochs that begin at or after offset.
func (c *epochCache) truncateEnd(offset int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.entries)
	for n > 0 && c.entries[n-1].Start >= offset {
		n--
	}
	changed := n != len(c.entries)
	c.entries = c.entries[:n]
	return changed
}

// truncateStart drops what lies before offset; the epoch in force there then begins at it.
func (c *epochCache) truncateStart(offset int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := 0
	for i < len(c.entries) && c.entries[i].Start <= offset {
		i++
	}
	if i == 0 || (i == 1 && c.entries[0].Start == offset) {
		return false
	}
	i--
	c.entries = append([]EpochEntry(nil), c.entries[i:]...)
	c.entries[0].Start = offset
	return true
}

// reload is truncateEnd when the log is opened: the epoch in force at the log start stays,
// also when nothing is left after it.
func (c *epochCache) reload(end, logStart int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.entries)
	for n > 0 && c.entries[n-1].Start >= end && c.entries[n-1].Start > logStart {
		n--
	}
	c.entries = c.entries[:n]
}

func (c *epochCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries = nil
}

func (c *epochCache) latest() (int32, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if len(c.entries) == 0 {
		return -1, false
	}
	return c.entries[len(c.entries)-1].Epoch, true
}

func (c *epochCache) start(epoch int32) (int64, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, e := range c.entries {
		if e.Epoch == epoch {
			return e.Start, true
		}
	}
	return -1, false
}

func (c *epochCache) all() []EpochEntry {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.Clone(c.entries)
}

// at is the epoch of the record at offset, or of the last one when offset is the log end.
func (c *epochCache) at(offset int64) (int32, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for i := len(c.entries) - 1; i >= 0; i-- {
		if c.entries[i].Start <= offset {
			return c.entries[i].Epoch, true
		}
	}
	return -1, false
}

// endOffset answers OffsetForLeaderEpoch. SPEC 4.1: an epoch above the latest cached one
// that the leader has already reached is answered with what the log ends with. As in Kafka,
// where a leader's cache begins with its own epoch, that one is known to an empty log too.
func (c *epochCache) endOffset(requested, current int32, end int64) (int32, int64) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	n := len(c.entries)
	switch {
	case requested >= 0 && n == 0 && requested == current:
		return requested, end
	case requested < 0, n == 0:
		return -1, -1
	}
	last := c.entries[n-1].Epoch
	if requested == last || (requested > last && requested <= current) {
		return last, end
	}
	if requested > last {
		return -1, -1
	}
	// The first entry above the requested epoch ends it.
	i := slices.IndexFunc(c.entries, func(e EpochEntry) bool { return e.Epoch > requested })
	if i == 0 {
		return requested, c.entries[0].Start
	}
	return c.entries[i-1].Epoch, c.entries[i].Start
}

// Text form: version, number of entries, one "epoch offset" line each.
func encodeEpochs(es []EpochEntry) []byte {
	b := fmt.Appendf(nil, "0\n%d\n", len(es))
	for _, e := range es {
		b = fmt.Appendf(b, "%d %d\n", e.Epoch, e.Start)
	}
	return b
}

func decodeEpochs(p []byte) ([]EpochEntry, error) {
	rows, err := decodeCheckpoint(p, 2)
	if err != nil {
		return nil, err
	}
	es := make([]EpochEntry, 0, len(rows))
	for _, r := range rows {
		epoch, err := parseInt(r[0], 32)
		if err != nil {
			return nil, err
		}
		start, err := parseInt(r[1], 64)
		if err != nil {
			return nil, err
		}
		if epoch < 0 || start < 0 {
			return nil, fmt.Errorf("epoch %d at offset %d", epoch, start)
		}
		if n := len(es); n > 0 && (int32(epoch) <= es[n-1].Epoch || start <= es[n-1].Start) {
			return nil, fmt.Errorf("epoch %d at offset %d after epoch %d at %d", epoch, start, es[n-1].Epoch, es[n-1].Start)
		}
		es = append(es, EpochEntry{int32(epoch), start})
	}
	return es, nil
}
