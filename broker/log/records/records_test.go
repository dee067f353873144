package records

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"stet/zerocopy/batch"
)

// rec is a record to encode.
type rec struct {
	ts      int64
	key     []byte
	value   []byte
	headers []Header
}

func encode(rs []rec) []byte {
	var out []byte
	field := func(b, f []byte) []byte {
		if f == nil {
			return binary.AppendVarint(b, -1)
		}
		return append(binary.AppendVarint(b, int64(len(f))), f...)
	}
	for i, r := range rs {
		b := []byte{0}
		b = binary.AppendVarint(b, r.ts)
		b = binary.AppendVarint(b, int64(i))
		b = field(b, r.key)
		b = field(b, r.value)
		b = binary.AppendVarint(b, int64(len(r.headers)))
		for _, h := range r.headers {
			b = field(b, []byte(h.Key))
			b = field(b, h.Value)
		}
		out = append(binary.AppendVarint(out, int64(len(b))), b...)
	}
	return out
}

func compress(t testing.TB, codec int, p []byte) []byte {
	var out bytes.Buffer
	var w io.WriteCloser
	switch codec {
	case batch.None:
		return p
	case batch.Gzip:
		w = gzip.NewWriter(&out)
	case batch.Snappy:
		return snappy.Encode(nil, p)
	case batch.LZ4:
		w = lz4.NewWriter(&out)
	case batch.Zstd:
		var err error
		if w, err = zstd.NewWriter(&out); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Write(p); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// wrap puts a batch header before the bytes of its records.
func wrap(codec, count int, records []byte) batch.Batch {
	b := batch.Build(nil, batch.Header{BaseOffset: 1000, Timestamp: 5000, ProducerID: 1, BaseSequence: 0x7ffffffe})
	b = append(b, records...)
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-12))
	binary.BigEndian.PutUint16(b[21:], uint16(codec))
	binary.BigEndian.PutUint32(b[23:], uint32(max(count, 1)-1))
	binary.BigEndian.PutUint32(b[57:], uint32(count))
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

func sample() []rec {
	big := make([]byte, 200_000)
	for i := range big {
		big[i] = byte(i * i >> 7)
	}
	return []rec{
		{0, []byte("k"), []byte("v"), nil},
		{1, nil, []byte{}, []Header{{"h", []byte("x")}, {"", nil}, {"e", []byte{}}}},
		{-7, []byte{}, nil, nil},
		{3, []byte("big"), big, []Header{{"z", big[:70_000]}}},
		{4, nil, nil, nil},
	}
}

func TestEveryCodec(t *testing.T) {
	rs := sample()
	for codec := batch.None; codec <= batch.Zstd; codec++ {
		t.Run(fmt.Sprint(codec), func(t *testing.T) {
			b := wrap(codec, len(rs), compress(t, codec, encode(rs)))
			for _, full := range []bool{true, false} {
				it := New(b, full)
				for i, want := range rs {
					if !it.Next() {
						t.Fatalf("record %d: %v", i, it.Err())
					}
					r := it.Record()
					size := func(p []byte) int {
						if p == nil {
							return -1
						}
						return len(p)
					}
					if r.Offset != 1000+int64(i) || r.Timestamp != 5000+want.ts || r.KeySize != size(want.key) || r.ValueSize != size(want.value) {
						t.Fatalf("record %d: %+v", i, r)
					}
					if seq := []int32{0x7ffffffe, 0x7fffffff, 0, 1, 2}[i]; r.Sequence != seq {
						t.Fatalf("record %d: sequence %d", i, r.Sequence)
					}
					if !full {
						continue
					}
					if !bytes.Equal(r.Key, want.key) || !bytes.Equal(r.Value, want.value) || (r.Key == nil) != (want.key == nil) || (r.Value == nil) != (want.value == nil) {
						t.Fatalf("record %d: other bytes", i)
					}
					if !slices.EqualFunc(r.Headers, want.headers, func(a, b Header) bool {
						return a.Key == b.Key && bytes.Equal(a.Value, b.Value) && (a.Value == nil) == (b.Value == nil)
					}) {
						t.Fatalf("record %d: headers", i)
					}
				}
				if it.Next() || it.Err() != nil {
					t.Fatal(it.Err())
				}
				it.Close()
			}
		})
	}
}

func TestLogAppendTime(t *testing.T) {
	b := wrap(0, 1, encode(sample()[:1]))
	binary.BigEndian.PutUint16(b[21:], 8)
	binary.BigEndian.PutUint64(b[35:], 777)
	it := New(b, false)
	defer it.Close()
	if !it.Next() || it.Record().Timestamp != 777 {
		t.Fatal(it.Record().Timestamp, it.Err())
	}
}

func TestBroken(t *testing.T) {
	good := encode(sample()[:3])
	v := func(ns ...int64) (b []byte) {
		for _, n := range ns {
			b = binary.AppendVarint(b, n)
		}
		return b
	}
	for name, c := range map[string]struct {
		codec, count int
		p            []byte
		want         string
	}{
		"unknown codec":      {5, 3, good, "codec"},
		"ends early":         {0, 3, good[:len(good)-1], "ends early"},
		"fewer records":      {0, 4, good, "ends early"},
		"more records":       {0, 2, good, "follows"},
		"empty":              {0, 1, nil, "ends early"},
		"negative length":    {0, 1, v(-1), "length"},
		"huge length":        {0, 1, v(1 << 40), "length"},
		"length too small":   {0, 1, append(v(3), 0, 0, 0, 1, 1, 0), ""},
		"endless varint":     {0, 1, bytes.Repeat([]byte{0xff}, 20), "ten bytes"},
		"key too long":       {0, 1, append(v(8), append([]byte{0}, v(0, 0, 1<<30)...)...), ""},
		"header count":       {0, 1, append(v(9), append([]byte{0}, v(0, 0, -1, -1, 1<<20)...)...), "headers"},
		"header without key": {0, 1, append(v(7), append([]byte{0}, v(0, 0, -1, -1, 1, -1)...)...), "without a key"},
		"length too large":   {0, 1, append(v(8), append([]byte{0}, v(0, 0, -1, -1, 0, 0, 0)...)...), "take"},
		"gzip":               {1, 1, []byte("not gzip at all, not at all"), "gzip"},
		"snappy":             {2, 1, []byte{0xff, 0xff, 0xff, 0xff, 0x0f, 1, 2}, "snappy"},
		"snappy frame":       {2, 1, append([]byte("\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"), 0x7f, 0xff, 0xff, 0xff, 1), "snappy"},
		"snappy header":      {2, 1, []byte("\x82SNAPPY\x00\x00"), ""},
		"lz4":                {3, 1, []byte("not lz4 either"), ""},
		"zstd":               {4, 1, []byte("nor zstd, of course"), "zstd"},
		"zstd empty":         {4, 1, nil, "zstd"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, full := range []bool{true, false} {
				it := New(wrap(c.codec, c.count, c.p), full)
				for it.Next() {
				}
				if it.Err() == nil || !strings.Contains(it.Err().Error(), c.want) {
					t.Errorf("full %v: %v", full, it.Err())
				}
				if c.codec == 5 && !errors.Is(it.Err(), ErrCodec) {
					t.Errorf("%v", it.Err())
				}
				it.Close()
			}
		})
	}
	// A cut-off stream of every codec.
	for codec := batch.Gzip; codec <= batch.Zstd; codec++ {
		p := compress(t, codec, encode(sample()))
		it := New(wrap(codec, 5, p[:len(p)/2]), false)
		for it.Next() {
		}
		if it.Err() == nil {
			t.Errorf("codec %d: a cut-off stream was not noticed", codec)
		}
		it.Close()
	}
}

// TestClaimsAreNotAllocated: lengths that the data claims cost no memory.
func TestClaimsAreNotAllocated(t *testing.T) {
	claims := map[string]batch.Batch{
		"record length": wrap(0, 1, binary.AppendVarint(nil, 0x7fffffff)),
		"snappy block":  wrap(2, 1, binary.AppendUvarint(nil, 0xfffffff0)),
		"gzip bomb":     wrap(1, 1, compress(t, 1, append(binary.AppendVarint(nil, 100<<20), make([]byte, 100<<20)...))),
	}
	for name, b := range claims {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		it := New(b, false)
		for it.Next() {
		}
		it.Close()
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 4<<20 {
			t.Errorf("%s: %d bytes were allocated for a batch of %d", name, n, len(b))
		}
	}
}

// FuzzIter feeds bytes as records of every codec. Both ways of iterating agree, and nothing panics.
func FuzzIter(f *testing.F) {
	rs := encode(sample()[:3])
	for codec := range 5 {
		f.Add(codec, 3, compress(f, codec, rs))
	}
	f.Fuzz(func(t *testing.T, codec, count int, p []byte) {
		b := wrap(codec&7, count&0xffff, p)
		var sizes [2][]int
		var failed [2]bool
		for i, full := range []bool{true, false} {
			it := New(b, full)
			for it.Next() {
				sizes[i] = append(sizes[i], it.Record().KeySize, it.Record().ValueSize)
			}
			failed[i] = it.Err() != nil
			it.Close()
		}
		if failed[0] != failed[1] || (!failed[0] && !slices.Equal(sizes[0], sizes[1])) {
			t.Fatalf("full: %v %v; sizes only: %v %v", sizes[0], failed[0], sizes[1], failed[1])
		}
	})
}
