package loadgen

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// manifest remembers every acknowledged batch, and writes it to a file when asked
// to: one line "topic partition base-offset records bytes unix-ms" per batch.
type manifest struct {
	topic string
	mu    sync.Mutex
	acks  map[int32][]ack
	f     *os.File
	w     *bufio.Writer
}

type ack struct {
	base    int64
	records int64
	bytes   int64
	at      time.Time
}

// Manifest writes acknowledged offsets to a file. Acked goes into Options.Acked.
type Manifest struct{ m *manifest }

// OpenManifest creates the file.
func OpenManifest(file, topic string) (*Manifest, error) {
	f, err := os.Create(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, cause(err))
	}
	return &Manifest{&manifest{topic: topic, f: f, w: bufio.NewWriter(f)}}, nil
}

// Acked notes one batch.
func (m *Manifest) Acked(partition int32, base int64, records, bytes int, at time.Time) {
	m.m.add(partition, base, records, bytes, at)
}

// Close writes what is left. Its error says that the file is not complete.
func (m *Manifest) Close() error {
	m.m.mu.Lock()
	defer m.m.mu.Unlock()
	if err := errors.Join(m.m.w.Flush(), m.m.f.Close()); err != nil {
		return fmt.Errorf("%s is not complete: %w", m.m.f.Name(), cause(err))
	}
	return nil
}

func newManifest(topic string) *manifest { return &manifest{topic: topic, acks: map[int32][]ack{}} }

func (m *manifest) add(p int32, base int64, records, bytes int, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.acks != nil {
		m.acks[p] = append(m.acks[p], ack{base, int64(records), int64(bytes), at})
	}
	if m.w != nil {
		fmt.Fprintf(m.w, "%s %d %d %d %d %d\n", m.topic, p, base, records, bytes, at.UnixMilli())
	}
}

// last is when the newest batch of a partition was acknowledged.
func (m *manifest) last(p int32) (time.Time, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var at time.Time
	for _, a := range m.acks[p] {
		if a.at.After(at) {
			at = a.at
		}
	}
	return at, !at.IsZero()
}

// lost is what was acknowledged at or above end: records, bytes, and how much
// time lies between the first lost acknowledgement and the last one.
func (m *manifest) lost(p int32, end int64) RecoveryPoint {
	m.mu.Lock()
	defer m.mu.Unlock()
	var rp RecoveryPoint
	var first, last time.Time
	for _, a := range m.acks[p] {
		if a.base+a.records <= end {
			continue
		}
		missing := min(a.records, a.base+a.records-end)
		rp.Records += missing
		rp.Bytes += a.bytes * missing / a.records
		if first.IsZero() || a.at.Before(first) {
			first = a.at
		}
		if a.at.After(last) {
			last = a.at
		}
	}
	if rp.Records > 0 {
		rp.Ms = float64(last.Sub(first)) / float64(time.Millisecond)
	}
	return rp
}
