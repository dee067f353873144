package loadgen

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"sync"

	"stet/zerocopy/batch"
)

const (
	payloadBytes   = 8 << 20  // of encoded records that a load keeps, or one batch if that is more
	payloadStreams = 16       // different batches, at most
	packedBytes    = 64 << 20 // of compressed batches that are kept
)

// payload is what the batches of a load consist of: a few streams of records of one
// size, encoded once. The records of a batch are the beginning of a stream, so they
// are sent from there without a copy; only the header is made for each batch, and
// its checksum joined from that of the header and the known one of the records.
// Values come from a seeded block that compresses about two to one, as business
// data does. It is safe for concurrent use.
type payload struct {
	codec   *Codec
	size    int // value bytes of a record
	limit   int // records of a full batch
	streams []stream

	mu     sync.Mutex // codec and what follows
	packed map[[2]int]packed
	kept   int
}

// stream is a sequence of encoded records.
type stream struct {
	records []byte
	ends    []int    // bytes of the first k+1 records
	sums    []uint32 // CRC-32C of those
}

type packed struct {
	records []byte
	sum     uint32
}

// recordOverhead is about what a record takes in a batch beside its value.
const recordOverhead = 10

// newPayload makes the streams for batches of about batchSize bytes.
func newPayload(codec *Codec, recordSize, batchSize int, seed uint64) *payload {
	p := &payload{codec: codec, size: recordSize, limit: max(1, batchSize/(recordSize+recordOverhead)), packed: map[[2]int]packed{}}
	r := rand.New(rand.NewPCG(seed, 0x57e7))
	block := make([]byte, max(1<<20, 2*recordSize))
	var random uint64
	for i := 0; i < len(block); i++ { // every other byte is random
		switch {
		case i%2 == 1:
			block[i] = 'a' + byte(i/64%16)
		case i%16 == 0:
			random = r.Uint64()
			fallthrough
		default:
			block[i] = byte(random)
			random >>= 8
		}
	}
	full := p.limit * (recordSize + recordOverhead)
	for range min(payloadStreams, max(1, payloadBytes/full)) {
		p.streams = append(p.streams, newStream(block[r.IntN(64):], recordSize, p.limit))
	}
	return p
}

// newStream encodes records whose values are windows of block.
func newStream(block []byte, size, records int) stream {
	s := stream{records: make([]byte, 0, records*(size+recordOverhead)), ends: make([]int, records), sums: make([]uint32, records)}
	at, from, sum := 0, 0, uint32(0)
	for k := range records {
		if at+size > len(block) {
			at = at * 7 % 64
		}
		body := 1 + 1 + varintLen(int64(k)) + 1 + varintLen(int64(size)) + size + 1
		s.records = binary.AppendVarint(s.records, int64(body))
		s.records = append(s.records, 0, 0) // attributes, timestamp delta
		s.records = binary.AppendVarint(s.records, int64(k))
		s.records = append(s.records, 1) // null key
		s.records = binary.AppendVarint(s.records, int64(size))
		s.records = append(s.records, block[at:at+size]...)
		s.records = append(s.records, 0) // no headers
		sum = crc32.Update(sum, castagnoli, s.records[from:])
		at += size/2 + 1
		from = len(s.records)
		s.ends[k], s.sums[k] = from, sum
	}
	return s
}

func varintLen(v int64) int {
	var buf [binary.MaxVarintLen64]byte
	return binary.PutVarint(buf[:], v)
}

// batch is the k-th batch, of n records (1 to limit): its header is appended to dst,
// the records must not be changed.
func (p *payload) batch(dst []byte, k, n int, timestamp int64) (header, records []byte, err error) {
	which := k % len(p.streams)
	s := &p.streams[which]
	records, sum := s.records[:s.ends[n-1]], s.sums[n-1]
	if p.codec.pack != nil {
		if records, sum, err = p.pack(which, n, records); err != nil {
			return dst, nil, err
		}
	}
	start := len(dst)
	be := binary.BigEndian
	dst = be.AppendUint64(dst, 0)
	dst = be.AppendUint32(dst, uint32(batch.HeaderSize-batch.LogOverhead+len(records)))
	dst = be.AppendUint32(dst, 0xffffffff) // leader epoch: the broker's
	dst = append(dst, 2)
	dst = be.AppendUint32(dst, 0) // CRC, below
	dst = be.AppendUint16(dst, uint16(p.codec.id))
	dst = be.AppendUint32(dst, uint32(n-1))
	dst = be.AppendUint64(dst, uint64(timestamp))
	dst = be.AppendUint64(dst, uint64(timestamp))
	dst = be.AppendUint64(dst, 1<<64-1) // no producer id
	dst = be.AppendUint16(dst, 0xffff)
	dst = be.AppendUint32(dst, 0xffffffff)
	dst = be.AppendUint32(dst, uint32(n))
	be.PutUint32(dst[start+17:], joinCRC(crc32.Checksum(dst[start+21:], castagnoli), sum, len(records)))
	return dst, records, nil
}

// pack compresses the first n records of a stream, or has done so before.
func (p *payload) pack(which, n int, records []byte) ([]byte, uint32, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := [2]int{which, n}
	if c, ok := p.packed[key]; ok {
		return c.records, c.sum, nil
	}
	var out bytes.Buffer
	if err := p.codec.pack(&out, records); err != nil {
		return nil, 0, err
	}
	c := packed{out.Bytes(), crc32.Checksum(out.Bytes(), castagnoli)}
	if p.kept += len(c.records); p.kept <= packedBytes {
		p.packed[key] = c
	}
	return c.records, c.sum, nil
}
