package log

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"testing"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/twmb/franz-go/pkg/kerr"

	"stet/zerocopy/batch"
)

// compressed is b with its records compressed.
func compressed(t testing.TB, b []byte, codec int) []byte {
	t.Helper()
	plain := batch.Batch(b).Records()
	var out bytes.Buffer
	var w io.WriteCloser
	var err error
	switch codec {
	case batch.None:
		return withRecords(b, plain, codec)
	case batch.Snappy:
		return withRecords(b, snappy.Encode(nil, plain), codec)
	case batch.Gzip:
		w = gzip.NewWriter(&out)
	case batch.LZ4:
		w = lz4.NewWriter(&out)
	case batch.Zstd:
		w, err = zstd.NewWriter(&out)
	}
	if err == nil {
		_, err = w.Write(plain)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return withRecords(b, out.Bytes(), codec)
}

// xerial is b with its records in the framing of snappy-java.
func xerial(b []byte) []byte {
	out := append([]byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}, 0, 0, 0, 1, 0, 0, 0, 1)
	for rest := batch.Batch(b).Records(); len(rest) > 0; {
		n := min(len(rest), 100)
		blk := snappy.Encode(nil, rest[:n])
		out = binary.BigEndian.AppendUint32(out, uint32(len(blk)))
		out = append(out, blk...)
		rest = rest[n:]
	}
	return withRecords(b, out, batch.Snappy)
}

func withRecords(b, records []byte, codec int) []byte {
	n := append(slices.Clone(b[:batch.HeaderSize]), records...)
	be.PutUint32(n[8:], uint32(len(n)-batch.LogOverhead))
	be.PutUint16(n[attributesOffset:], be.Uint16(n[attributesOffset:])&^7|uint16(codec))
	sign(n)
	return n
}

func TestLeaderTakesEveryCodec(t *testing.T) {
	e := newEnv(t)
	l := e.create()
	var want []byte
	for codec := batch.None; codec <= batch.Zstd; codec++ {
		b := compressed(t, plain(40, fmt.Sprint("codec", codec)), codec)
		r := e.lead(l, b, 1, OriginClient)
		if r.LastOffset-r.FirstOffset != 39 {
			t.Fatalf("codec %d: %+v", codec, r)
		}
		want = append(want, b...)
	}
	b := xerial(plain(40, "xerial"))
	e.lead(l, b, 1, OriginClient)
	want = append(want, b...)
	if got := readAll(t, l, 0, noOffset); !bytes.Equal(got, want) {
		t.Fatal("bytes differ")
	}
	// A lookup by time has to decompress.
	h := hdr()
	h.Timestamp += 5000
	e.lead(l, compressed(t, batch.Build(nil, h, kvs(3, "later")...), batch.Zstd), 1, OriginClient)
	if o, ts, epoch, err := l.OffsetForTimestamp(h.Timestamp); o != 240 || ts != h.Timestamp || epoch != 1 || err != nil {
		t.Fatalf("%d %d %d %v", o, ts, epoch, err)
	}
}

func TestLeaderRefuses(t *testing.T) {
	now := t0.UnixMilli()
	patch := func(b []byte, at int, v ...byte) []byte {
		b = slices.Clone(b)
		copy(b[at:], v)
		sign(b)
		return b
	}
	withTs := func(ts int64) []byte {
		h := hdr()
		h.Timestamp = ts
		return batch.Build(nil, h, kvs(2, "ts")...)
	}
	good := plain(3, "good")
	cases := []struct {
		name string
		b    []byte
		want error
		code *kerr.Error
		cfg  func(*Config)
	}{
		{"empty", nil, ErrInvalidRecord, kerr.InvalidRecord, nil},
		{"half a header", good[:30], ErrCorruptMessage, kerr.CorruptMessage, nil},
		{"cut off", good[:len(good)-1], ErrCorruptMessage, kerr.CorruptMessage, nil},
		{"crc", append(slices.Clone(good[:len(good)-1]), 0xff), ErrCorruptMessage, kerr.CorruptMessage, nil},
		{"magic 1", patch(good, 16, 1), ErrUnsupportedFormat, kerr.UnsupportedForMessageFormat, nil},
		{"magic 3", patch(good, 16, 3), ErrUnsupportedFormat, kerr.UnsupportedForMessageFormat, nil},
		{"two batches", append(slices.Clone(good), good...), ErrInvalidRecord, kerr.InvalidRecord, nil},
		{"negative length", patch(good, 8, 0xff, 0xff, 0xff, 0xff), ErrCorruptMessage, kerr.CorruptMessage, nil},
		{"huge length", patch(good, 8, 0x7f, 0xff, 0xff, 0xff), ErrCorruptMessage, kerr.CorruptMessage, nil},
		{"too large", good, ErrMessageTooLarge, kerr.MessageTooLarge, func(c *Config) { c.MaxMessageBytes = int32(len(good)) - 1 }},
		{"base offset", patch(good, 0, 0, 0, 0, 0, 0, 0, 0, 5), ErrInvalidRecord, kerr.InvalidRecord, nil},
		{"count above delta", patch(good, 57, 0, 0, 0, 4), ErrInvalidRecord, kerr.InvalidRecord, nil},
		{"count 0", patch(good, 57, 0, 0, 0, 0), ErrInvalidRecord, kerr.InvalidRecord, nil},
		{"fewer records than the count", patch(patch(good, 57, 0, 0, 0, 4), 23, 0, 0, 0, 3), ErrInvalidRecord, kerr.InvalidRecord, nil},
		{"more records than the count", patch(patch(good, 57, 0, 0, 0, 2), 23, 0, 0, 0, 1), ErrInvalidRecord, kerr.InvalidRecord, nil},
		{"negative delta", patch(good, 23, 0xff, 0xff, 0xff, 0xfe), ErrInvalidRecord, kerr.InvalidRecord, nil},
		{"control", patch(good, 21, 0, batch.AttrControl), ErrInvalidRecord, kerr.InvalidRecord, nil},
		{"codec 5", patch(good, 21, 0, 5), ErrUnsupportedCompression, kerr.UnsupportedCompressionType, nil},
		{"not gzip", patch(good, 21, 0, batch.Gzip), ErrInvalidRecord, kerr.InvalidRecord, nil},
		{"not snappy", patch(good, 21, 0, batch.Snappy), ErrInvalidRecord, kerr.InvalidRecord, nil},
		{"not lz4", patch(good, 21, 0, batch.LZ4), ErrInvalidRecord, kerr.InvalidRecord, nil},
		{"not zstd", patch(good, 21, 0, batch.Zstd), ErrInvalidRecord, kerr.InvalidRecord, nil},
		{"producer without sequence", patch(good, 43, 0, 0, 0, 0, 0, 0, 0, 1), ErrInvalidRecord, kerr.InvalidRecord, nil},
		{"transactional without producer", patch(good, 21, 0, batch.AttrTransactional), ErrInvalidRecord, kerr.InvalidRecord, nil},
		{"producer's LogAppendTime", patch(good, 21, 0, attrLogAppendTime), ErrInvalidTimestamp, kerr.InvalidTimestamp, nil},
		{"too old", withTs(now - 1001), ErrInvalidTimestamp, kerr.InvalidTimestamp, func(c *Config) { c.TimestampBeforeMaxMs = 1000 }},
		{"too new", withTs(now + 3600001), ErrInvalidTimestamp, kerr.InvalidTimestamp, nil},
		{"no key, compacted", batch.Build(nil, hdr(), batch.KV{Value: []byte("v")}), ErrInvalidRecord, kerr.InvalidRecord, func(c *Config) { c.CleanupPolicy = "compact" }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			e := newEnv(t)
			if c.cfg != nil {
				c.cfg(&e.cfg)
			}
			l := e.create()
			_, err := l.AppendAsLeader(slices.Clone(c.b), 1, OriginClient)
			if !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			var code *kerr.Error
			if !errors.As(err, &code) || code != c.code {
				t.Fatalf("wire code %v, want %v", code, c.code)
			}
			if l.LogEndOffset() != 0 || l.Size() != 0 || l.Err() != nil {
				t.Fatalf("a refused batch left traces: end %d, size %d, %v", l.LogEndOffset(), l.Size(), l.Err())
			}
		})
	}
	// The bounds themselves are allowed, and so is no timestamp at all.
	e := newEnv(t)
	e.cfg.TimestampBeforeMaxMs = 1000
	l := e.create()
	for _, ts := range []int64{now - 1000, now + 3600000, -1} {
		e.lead(l, withTs(ts), 1, OriginClient)
	}
}

func TestInvalidRecordNamesTheRecord(t *testing.T) {
	e := newEnv(t)
	e.cfg.CleanupPolicy = "compact"
	l := e.create()
	_, err := l.AppendAsLeader(batch.Build(nil, hdr(), batch.KV{Key: []byte("k")}, batch.KV{Key: []byte{}}, batch.KV{Value: []byte("v")}), 1, OriginClient)
	var bad *InvalidRecordError
	if !errors.As(err, &bad) || bad.Index != 2 {
		t.Fatalf("%v", err)
	}
}

func TestLogAppendTime(t *testing.T) {
	e := newEnv(t)
	e.cfg.TimestampTypeLogAppend = true
	l := e.create()
	h := hdr()
	h.Timestamp = 5 // far outside any bound: it is replaced
	r := e.lead(l, batch.Build(nil, h, kvs(2, "x")...), 1, OriginClient)
	if r.LogAppendTime != t0.UnixMilli() || r.MaxTimestamp != r.LogAppendTime {
		t.Fatalf("%+v", r)
	}
	b := batch.Batch(readAll(t, l, 0, noOffset))
	if !b.IsLogAppendTime() || b.MaxTimestamp() != t0.UnixMilli() || b.Check() != nil {
		t.Fatalf("%v %d %v", b.IsLogAppendTime(), b.MaxTimestamp(), b.Check())
	}
	// C11: a follower leaves the values alone, whatever the topic says.
	h.BaseOffset = 2
	old := batch.Build(nil, h, kvs(1, "y")...)
	e.follow(l, old)
	if got := readAll(t, l, 2, noOffset); !bytes.Equal(got, old) {
		t.Fatal("a follower's batch was stamped")
	}
}

func TestWrongMaxTimestampIsMended(t *testing.T) {
	e := newEnv(t)
	l := e.create()
	b := plain(2, "x")
	be.PutUint64(b[maxTimestampOffset:], uint64(t0.UnixMilli()+99999))
	sign(b)
	e.lead(l, b, 1, OriginClient)
	got := batch.Batch(readAll(t, l, 0, noOffset))
	if got.MaxTimestamp() != t0.UnixMilli() || got.Check() != nil {
		t.Fatalf("%d %v", got.MaxTimestamp(), got.Check())
	}
}

// TestFollowerKeepsWhatALeaderWouldRefuse: C11 and C12. Old and future timestamps, emptied
// batches, null keys, large and tiny records, every codec: equal bytes, also after a restart
// and after a crash.
func TestFollowerKeepsWhatALeaderWouldRefuse(t *testing.T) {
	e := newEnv(t)
	e.cfg.TimestampBeforeMaxMs, e.cfg.TimestampAfterMaxMs, e.cfg.MaxMessageBytes = 1, 1, 10
	e.cfg.CleanupPolicy = "compact"
	e.cfg.SegmentBytes = 1 << 20
	l := e.create()
	var want []byte
	next := int64(0)
	add := func(b []byte) {
		x := batch.Batch(b)
		x.SetBaseOffset(next)
		x.SetPartitionLeaderEpoch(4)
		next = x.NextOffset()
		want = append(want, b...)
		e.follow(l, b)
	}
	for codec := batch.None; codec <= batch.Zstd; codec++ {
		add(compressed(t, batch.Build(nil, hdr(), batch.KV{Key: nil, Value: []byte{}}, batch.KV{Key: []byte("k"), Value: nil}, batch.KV{Key: []byte{}, Value: []byte{1}}), codec))
	}
	h := hdr()
	for _, ts := range []int64{t0.UnixMilli() - 30*24*3600*1000, t0.UnixMilli() + 1e9, -1, math.MaxInt64, 0} {
		h.Timestamp = ts
		add(batch.Build(nil, h, batch.KV{Value: []byte("v")}))
	}
	empty := batch.Build(nil, hdr())
	be.PutUint32(empty[23:], 41) // compaction removed 42 records
	sign(empty)
	add(empty)
	big := make([]byte, 20<<20)
	for i := range big {
		big[i] = byte(i * i >> 8)
	}
	add(batch.Build(nil, hdr(), batch.KV{Value: big}))
	add(batch.Build(nil, hdr(), batch.KV{Value: []byte{0}}))
	check := func(l *Log) {
		t.Helper()
		if got := readAll(t, l, 0, noOffset); !bytes.Equal(got, want) || l.LogEndOffset() != next {
			t.Fatalf("%d bytes, want %d; end %d, want %d", len(got), len(want), l.LogEndOffset(), next)
		}
	}
	check(l)
	check(e.reopen())
	check(e.crash(e.mem.Clone()))
}
