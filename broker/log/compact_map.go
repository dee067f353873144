package log

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"stet/broker/log/records"
	"stet/zerocopy/batch"
)

// keyHash stands for a key. Two keys with the same hash would lose one of them, so it is
// cut from a cryptographic hash over a random prefix: nobody can look for a collision.
type keyHash [16]byte

// offsetMapEntry is the size of an entry, as Kafka's: what log.cleaner.dedupe.buffer.size buys.
const offsetMapEntry = 24

type offsetMapSlot struct {
	hash keyHash
	next int64 // the offset of the key's last record plus one; 0: the slot is free
}

// offsetMap knows the last offset of each key of the dirty part of a log. It has a fixed
// size and never forgets: when it is full, the dirty part ends there for this round.
type offsetMap struct {
	slots  []offsetMapSlot
	n, max int
	latest int64 // every record up to here is in the map; -1: none
	seed   [16]byte
	buf    []byte
}

// newOffsetMap makes a map of at most maxBytes that is filled up to the load factor. keys
// is an upper bound of what will be put into it.
func newOffsetMap(maxBytes int64, load float64, keys int64) *offsetMap {
	slots := max(maxBytes/offsetMapEntry, 1)
	if want := int64(float64(keys)/load) + 1; want > 0 && want < slots {
		slots = want
	}
	m := &offsetMap{slots: make([]offsetMapSlot, slots), max: max(int(float64(slots)*load), 1), latest: -1}
	_, _ = rand.Read(m.seed[:]) // never fails
	return m
}

func (m *offsetMap) hash(key []byte) (h keyHash) {
	m.buf = append(append(m.buf[:0], m.seed[:]...), key...)
	sum := sha256.Sum256(m.buf)
	copy(h[:], sum[:])
	return h
}

// slot is where the hash is, or the free slot where it belongs.
func (m *offsetMap) slot(h keyHash) *offsetMapSlot {
	n := uint64(len(m.slots))
	for i := binary.LittleEndian.Uint64(h[:]) % n; ; i++ {
		if i == n {
			i = 0
		}
		if s := &m.slots[i]; s.next == 0 || s.hash == h {
			return s
		}
	}
}

// put notes a record. It returns false if the map is full.
func (m *offsetMap) put(key []byte, offset int64) bool {
	h := m.hash(key)
	s := m.slot(h)
	if s.next == 0 {
		if m.n >= m.max {
			return false
		}
		m.n++
		s.hash = h
	}
	s.next = max(s.next, offset+1)
	return true
}

// errMapFull ends the dirty part of a round.
var errMapFull = errors.New("the offset map is full")

// addBatch notes the records of a batch from offset from on that have a key. On errMapFull
// the batch counts as not read: its first keys then only point further than they had to.
func (m *offsetMap) addBatch(b batch.Batch, from int64) error {
	it := records.Raw(b)
	defer it.Close()
	for it.Next() {
		if r := it.Record(); r.KeySize >= 0 && r.Offset >= from && !m.put(r.Key, r.Offset) {
			return errMapFull
		}
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("%w: offset %d: %w", batch.ErrCorrupt, b.BaseOffset(), err)
	}
	return nil
}

// get is the last offset of the key, -1 if it is not in the map.
func (m *offsetMap) get(key []byte) int64 { return m.slot(m.hash(key)).next - 1 }
