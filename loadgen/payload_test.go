package loadgen

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"testing"

	"pgregory.net/rapid"

	"stet/zerocopy/batch"
)

func TestJoinCRC(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "a"), rapid.SliceOfN(rapid.Byte(), 0, 5000).Draw(t, "b")
		got := joinCRC(crc32.Checksum(a, castagnoli), crc32.Checksum(b, castagnoli), len(b))
		if want := crc32.Checksum(append(bytes.Clone(a), b...), castagnoli); got != want {
			t.Fatalf("%08x, want %08x", got, want)
		}
	})
}

// TestPayloadBatches: any batch of any codec is a whole one with a right checksum, the asked number of records and
// its own timestamp; uncompressed records are well formed, and of the asked size.
func TestPayloadBatches(t *testing.T) {
	codecs := map[string]*Codec{}
	for _, name := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		c, err := newCodec(name)
		if err != nil {
			t.Fatal(err)
		}
		codecs[name] = c
	}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom([]string{"none", "gzip", "snappy", "lz4", "zstd"}).Draw(t, "codec")
		size, batchSize := rapid.IntRange(1, 3000).Draw(t, "record"), rapid.IntRange(1, 8000).Draw(t, "batch")
		codec := codecs[name]
		p := newPayload(codec, size, batchSize, rapid.Uint64().Draw(t, "seed"))
		for range 3 {
			n, k, ts := rapid.IntRange(1, p.limit).Draw(t, "records"), rapid.IntRange(0, 1000).Draw(t, "k"), rapid.Int64Range(0, 1<<41).Draw(t, "timestamp")
			head, records, err := p.batch(nil, k, n, ts)
			if err != nil {
				t.Fatal(err)
			}
			b, rest, err := batch.Next(append(head, records...))
			if err != nil || len(rest) != 0 || b.Check() != nil {
				t.Fatalf("%d bytes left, %v, %v", len(rest), err, b.Check())
			}
			if int(b.NumRecords()) != n || b.FirstTimestamp() != ts || b.MaxTimestamp() != ts || int16(b.Compression()) != codec.id {
				t.Fatalf("%d records of %d, timestamps %d and %d of %d", b.NumRecords(), n, b.FirstTimestamp(), b.MaxTimestamp(), ts)
			}
			if name != "none" {
				continue
			}
			raw, values := b.Records(), 0
			for len(raw) > 0 {
				l, w := binary.Varint(raw)
				if l < int64(size) || int(l) > len(raw)-w {
					t.Fatalf("a record of %d bytes, %d are left", l, len(raw)-w)
				}
				raw = raw[w+int(l):]
				values++
			}
			if values != n {
				t.Fatalf("%d records, want %d", values, n)
			}
		}
	})
}

// TestPayloadAllocs: what a batch costs does not depend on its size.
func TestPayloadAllocs(t *testing.T) {
	codec, err := newCodec("none")
	if err != nil {
		t.Fatal(err)
	}
	p := newPayload(codec, 1000, 1<<20, 1)
	dst := make([]byte, 0, 128)
	if n := testing.AllocsPerRun(100, func() { _, _, _ = p.batch(dst, 3, p.limit, 1) }); n != 0 {
		t.Errorf("%.0f allocations per batch", n)
	}
}
