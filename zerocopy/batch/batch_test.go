package batch

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func header(base int64) Header {
	return Header{BaseOffset: base, PartitionLeaderEpoch: 7, Timestamp: 1234, ProducerID: 55, ProducerEpoch: 3, BaseSequence: 10}
}

// TestBuildAgainstKmsg: what Build writes is what the generated decoder reads.
func TestBuildAgainstKmsg(t *testing.T) {
	raw := Build([]byte("before"), header(100), KV{Key: []byte("k"), Value: []byte("v")}, KV{}, KV{Key: []byte{}, Value: []byte("x")})
	raw = raw[len("before"):]
	b, rest, err := Next(raw)
	if err != nil || len(rest) != 0 {
		t.Fatal(err, len(rest))
	}
	if err := b.Check(); err != nil {
		t.Fatal(err)
	}
	var k kmsg.RecordBatch
	if err := k.ReadFrom(raw); err != nil {
		t.Fatal(err)
	}
	if b.BaseOffset() != k.FirstOffset || b.PartitionLeaderEpoch() != k.PartitionLeaderEpoch || b.Magic() != k.Magic || b.CRC() != uint32(k.CRC) ||
		b.Attributes() != k.Attributes || b.LastOffsetDelta() != k.LastOffsetDelta || b.FirstTimestamp() != k.FirstTimestamp || b.MaxTimestamp() != k.MaxTimestamp ||
		b.ProducerID() != k.ProducerID || b.ProducerEpoch() != k.ProducerEpoch || b.BaseSequence() != k.FirstSequence || b.NumRecords() != k.NumRecords {
		t.Errorf("view %d %d %d, kmsg %+v", b.BaseOffset(), b.LastOffsetDelta(), b.NumRecords(), k)
	}
	if b.NextOffset() != 103 || b.LastSequence() != 12 {
		t.Errorf("next offset %d, last sequence %d", b.NextOffset(), b.LastSequence())
	}
	var want [][2][]byte
	for body := k.Records; len(body) > 0; {
		var r kmsg.Record
		if err := r.ReadFrom(body); err != nil {
			t.Fatal(err)
		}
		want = append(want, [2][]byte{r.Key, r.Value})
		body = body[1+int(r.Length):]
	}
	if len(want) != 3 || string(want[0][0]) != "k" || want[1][0] != nil || want[1][1] != nil || want[2][0] == nil || string(want[2][1]) != "x" {
		t.Errorf("records %q", want)
	}
	key, value, err := b.FirstRecord()
	if err != nil || string(key) != "k" || string(value) != "v" {
		t.Errorf("first record %q %q %v", key, value, err)
	}
}

func TestSequencesWrapAsKafkas(t *testing.T) {
	h := header(0)
	h.BaseSequence = math.MaxInt32
	if got := Batch(Build(nil, h, KV{}, KV{}, KV{})).LastSequence(); got != 1 {
		t.Errorf("after the largest sequence come 0 and 1, not %d", got)
	}
	h.BaseSequence = -1
	if got := Batch(Build(nil, h, KV{}, KV{})).LastSequence(); got != -1 {
		t.Errorf("no sequence is %d", got)
	}
}

func TestMarkers(t *testing.T) {
	for commit, want := range map[bool]int16{true: ControlCommit, false: ControlAbort} {
		b := Batch(BuildEndTxn(nil, header(5), commit, 9))
		typ, err := b.ControlType()
		if err != nil || typ != want || !b.IsControl() || !b.IsTransactional() || b.BaseSequence() != -1 {
			t.Errorf("commit %t: type %d, %v", commit, typ, err)
		}
		var v kmsg.EndTxnMarker
		_, value, err := b.FirstRecord()
		if err != nil {
			t.Fatal(err)
		}
		if err := v.ReadFrom(value); err != nil || v.CoordinatorEpoch != 9 {
			t.Errorf("value %+v, %v", v, err)
		}
		if err := b.Check(); err != nil {
			t.Error(err)
		}
	}
}

// TestPatchesLeaveTheCRC: base offset and leader epoch lie before it, everything from the attributes on does not.
func TestPatchesLeaveTheCRC(t *testing.T) {
	b := Batch(Build(nil, header(0), KV{Value: []byte("v")}))
	b.SetBaseOffset(1 << 40)
	b.SetPartitionLeaderEpoch(-1)
	if err := b.Check(); err != nil || b.BaseOffset() != 1<<40 || b.PartitionLeaderEpoch() != -1 {
		t.Errorf("%v, %d, %d", err, b.BaseOffset(), b.PartitionLeaderEpoch())
	}
	for i := offAttributes; i < len(b); i++ {
		bad := Batch(bytes.Clone(b))
		bad[i] ^= 4
		if err := bad.CheckCRC(); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("byte %d flipped: %v", i, err)
		}
	}
}

func TestNextRefuses(t *testing.T) {
	good := Build(nil, header(42), KV{Value: []byte("v")})
	for n := range good {
		if _, rest, err := Next(good[:n]); !errors.Is(err, ErrIncomplete) || len(rest) != n {
			t.Fatalf("%d of %d bytes: %v, %d left", n, len(good), err, len(rest))
		}
	}
	change := func(at int, v ...byte) []byte {
		b := bytes.Clone(good)
		copy(b[at:], v)
		return b
	}
	for name, c := range map[string]struct {
		b    []byte
		want error
	}{
		"old format":      {change(offMagic, 1), ErrMagic},
		"negative length": {change(offLength, 0xff), ErrCorrupt},
		"short length":    {change(offLength, 0, 0, 0, 5), ErrCorrupt},
	} {
		if _, _, err := Next(c.b); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, b := range map[string][]byte{
		"negative base offset":     change(offBaseOffset, 0xff),
		"negative delta":           change(offLastOffsetDelta, 0xff),
		"more records than deltas": change(offNumRecords, 0, 0, 0, 2),
		"negative count":           change(offNumRecords, 0xff),
		"offset overflow":          change(offBaseOffset, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff),
		"cut off":                  good[:len(good)-1],
	} {
		if err := Batch(b).CheckHeader(); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzNext: no input makes the view panic or read beyond what it was given.
func FuzzNext(f *testing.F) {
	f.Add(Build(nil, header(1), KV{Key: []byte("k"), Value: []byte("v")}))
	f.Add(BuildEndTxn(Build(nil, header(1)), header(9), true, 2))
	f.Fuzz(func(t *testing.T, raw []byte) {
		rest := raw
		for {
			b, next, err := Next(rest)
			if err != nil {
				return
			}
			if len(b)+len(next) != len(rest) || len(b) < HeaderSize {
				t.Fatalf("%d bytes became %d and %d", len(rest), len(b), len(next))
			}
			if b.Check() == nil && b.NextOffset() <= b.BaseOffset() {
				t.Fatalf("a batch from %d to %d is fine", b.BaseOffset(), b.NextOffset())
			}
			if typ, err := b.ControlType(); err == nil && len(b) < HeaderSize+8 {
				t.Fatalf("control type %d in %d bytes", typ, len(b))
			}
			rest = next
		}
	})
}

func TestViewsDoNotAllocate(t *testing.T) {
	raw := Build(Build(nil, header(0), KV{Value: make([]byte, 1000)}), header(1), KV{Value: make([]byte, 1000)})
	if n := testing.AllocsPerRun(100, func() {
		for rest := raw; len(rest) > 0; {
			b, next, err := Next(rest)
			if err != nil || b.Check() != nil {
				t.Fatal(err)
			}
			rest = next
		}
	}); n != 0 {
		t.Errorf("%g allocations", n)
	}
}
