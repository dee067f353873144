package loadgen

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"stet/zerocopy/batch"
)

// Codec compresses the records of a batch.
type Codec struct {
	id   int16
	name string
	pack func(dst *bytes.Buffer, src []byte) error
}

// Codecs by their Kafka names.
func newCodec(name string) (*Codec, error) {
	switch name {
	case "", "none":
		return &Codec{id: batch.None, name: "none"}, nil
	case "gzip":
		w := gzip.NewWriter(nil)
		return &Codec{batch.Gzip, name, func(dst *bytes.Buffer, src []byte) error {
			w.Reset(dst)
			if _, err := w.Write(src); err != nil {
				return err
			}
			return w.Close()
		}}, nil
	case "snappy":
		return &Codec{batch.Snappy, name, func(dst *bytes.Buffer, src []byte) error {
			dst.Write(s2.EncodeSnappy(nil, src))
			return nil
		}}, nil
	case "lz4":
		w := lz4.NewWriter(nil)
		return &Codec{batch.LZ4, name, func(dst *bytes.Buffer, src []byte) error {
			w.Reset(dst)
			if _, err := w.Write(src); err != nil {
				return err
			}
			return w.Close()
		}}, nil
	case "zstd":
		w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
		if err != nil {
			return nil, err
		}
		return &Codec{batch.Zstd, name, func(dst *bytes.Buffer, src []byte) error {
			dst.Write(w.EncodeAll(src, nil))
			return nil
		}}, nil
	}
	return nil, fmt.Errorf("--compression %q; allowed are none, gzip, snappy, lz4 and zstd", name)
}

// batchBuilder makes batches of records of one size. The payload comes from a
// seeded block that compresses about two to one, as business data does.
type batchBuilder struct {
	codec   *Codec
	size    int // value bytes of a record
	block   []byte
	at      int
	records []byte
	packed  bytes.Buffer
	count   int
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func newBatchBuilder(codec *Codec, recordSize int, seed uint64) *batchBuilder {
	r := rand.New(rand.NewPCG(seed, 0x57e7))
	block := make([]byte, max(1<<20, 2*recordSize))
	for i := range block {
		if i%2 == 0 {
			block[i] = byte(r.Uint32())
		} else {
			block[i] = 'a' + byte(i/64%16)
		}
	}
	return &batchBuilder{codec: codec, size: recordSize, block: block}
}

// recordBytes is about what one record takes in a batch.
func (b *batchBuilder) recordBytes() int { return b.size + 10 }

func (b *batchBuilder) add() {
	if b.at+b.size > len(b.block) {
		b.at = (b.at * 7) % 64
	}
	value := b.block[b.at : b.at+b.size]
	b.at += b.size/2 + 1
	body := 1 + 1 + varintLen(int64(b.count)) + 1 + varintLen(int64(b.size)) + b.size + 1
	b.records = binary.AppendVarint(b.records, int64(body))
	b.records = append(b.records, 0, 0) // attributes, timestamp delta
	b.records = binary.AppendVarint(b.records, int64(b.count))
	b.records = append(b.records, 1) // null key
	b.records = binary.AppendVarint(b.records, int64(b.size))
	b.records = append(b.records, value...)
	b.records = append(b.records, 0) // no headers
	b.count++
}

func varintLen(v int64) int {
	var buf [binary.MaxVarintLen64]byte
	return binary.PutVarint(buf[:], v)
}

// finish appends the batch to dst and empties the builder.
func (b *batchBuilder) finish(dst []byte, timestamp int64) ([]byte, error) {
	records := b.records
	if b.codec.pack != nil {
		b.packed.Reset()
		if err := b.codec.pack(&b.packed, records); err != nil {
			return dst, err
		}
		records = b.packed.Bytes()
	}
	start := len(dst)
	be := binary.BigEndian
	dst = be.AppendUint64(dst, 0)
	dst = be.AppendUint32(dst, uint32(batch.HeaderSize-batch.LogOverhead+len(records)))
	dst = be.AppendUint32(dst, 0xffffffff) // leader epoch: the broker's
	dst = append(dst, 2)
	dst = be.AppendUint32(dst, 0) // CRC, below
	dst = be.AppendUint16(dst, uint16(b.codec.id))
	dst = be.AppendUint32(dst, uint32(b.count-1))
	dst = be.AppendUint64(dst, uint64(timestamp))
	dst = be.AppendUint64(dst, uint64(timestamp))
	dst = be.AppendUint64(dst, 1<<64-1) // no producer id
	dst = be.AppendUint16(dst, 0xffff)
	dst = be.AppendUint32(dst, 0xffffffff)
	dst = be.AppendUint32(dst, uint32(b.count))
	dst = append(dst, records...)
	be.PutUint32(dst[start+17:], crc32.Checksum(dst[start+21:], castagnoli))
	b.records, b.count = b.records[:0], 0
	return dst, nil
}
