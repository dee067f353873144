package log

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
)

var (
	be         = binary.BigEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// Producer snapshot, Kafka's version 1: version int16, crc uint32 (CRC32C of what follows),
// then an array of entries. An entry keeps the last batch only.
const (
	snapshotVersion   = 1
	snapshotHeader    = 6
	snapshotEntrySize = 8 + 2 + 4 + 8 + 4 + 8 + 4 + 8
)

func (s *producers) encodeSnapshot() []byte {
	ids := make([]int64, 0, len(s.m))
	for id := range s.m {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	b := make([]byte, snapshotHeader, snapshotHeader+4+len(ids)*snapshotEntrySize)
	be.PutUint16(b, snapshotVersion)
	b = be.AppendUint32(b, uint32(len(ids)))
	for _, id := range ids {
		p := s.m[id]
		last := sentBatch{lastSeq: -1, lastOff: -1}
		if p.n > 0 {
			last = p.batches[p.n-1]
		}
		b = be.AppendUint64(b, uint64(id))
		b = be.AppendUint16(b, uint16(p.epoch))
		b = be.AppendUint32(b, uint32(last.lastSeq))
		b = be.AppendUint64(b, uint64(last.lastOff))
		b = be.AppendUint32(b, uint32(last.delta))
		b = be.AppendUint64(b, uint64(p.timestamp))
		b = be.AppendUint32(b, uint32(p.coord))
		b = be.AppendUint64(b, uint64(p.txnFirst))
	}
	be.PutUint32(b[2:], crc32.Checksum(b[snapshotHeader:], castagnoli))
	return b
}

// decodeSnapshot reads a snapshot file. Any error means: do without it.
func decodeSnapshot(b []byte) ([]producer, error) {
	out, err := parseSnapshot(b)
	if err != nil {
		return nil, err
	}
	if got, want := crc32.Checksum(b[snapshotHeader:], castagnoli), be.Uint32(b[2:]); got != want {
		return nil, fmt.Errorf("producer snapshot crc %08x, computed %08x", want, got)
	}
	for i := range out {
		out[i].txnFirst = max(out[i].txnFirst, -1)
	}
	return out, nil
}

// parseSnapshot is decodeSnapshot without the CRC.
func parseSnapshot(b []byte) ([]producer, error) {
	if len(b) < snapshotHeader+4 {
		return nil, fmt.Errorf("producer snapshot of %d bytes", len(b))
	}
	if v := be.Uint16(b); v != snapshotVersion {
		return nil, fmt.Errorf("producer snapshot version %d", v)
	}
	n := be.Uint32(b[snapshotHeader:])
	b = b[snapshotHeader+4:]
	if uint64(n)*snapshotEntrySize != uint64(len(b)) {
		return nil, fmt.Errorf("producer snapshot of %d entries in %d bytes", n, len(b))
	}
	out := make([]producer, 0, n)
	for ; len(b) > 0; b = b[snapshotEntrySize:] {
		p := producer{
			id:        int64(be.Uint64(b)),
			epoch:     int16(be.Uint16(b[8:])),
			timestamp: int64(be.Uint64(b[26:])),
			coord:     int32(be.Uint32(b[34:])),
			txnFirst:  int64(be.Uint64(b[38:])),
		}
		last := sentBatch{
			lastSeq:   int32(be.Uint32(b[10:])),
			lastOff:   int64(be.Uint64(b[14:])),
			delta:     int32(be.Uint32(b[22:])),
			timestamp: p.timestamp,
		}
		if last.lastOff >= 0 {
			p.add(last)
		}
		out = append(out, p)
	}
	return out, nil
}

// load replaces the state by a snapshot that was taken at offset end.
func (s *producers) load(entries []producer, end, nowMs, expireMs int64) {
	s.clear()
	for i := range entries {
		p := &entries[i]
		if p.txnFirst < 0 && nowMs-p.timestamp >= expireMs {
			continue
		}
		s.m[p.id] = p
		if p.txnFirst >= 0 {
			s.addOpen(openTxn{p.txnFirst, p.id})
		}
	}
	s.mapEnd = end
}
