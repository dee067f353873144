package frame

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"testing"
	"testing/iotest"
	"time"

	"stet/zerocopy"
)

func framed(body []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

func TestReaderReadsFrames(t *testing.T) {
	pool := zerocopy.NewPool(1 << 20)
	for _, n := range []int{0, 1, 4095, 4096, 4097, 100_000} {
		body := bytes.Repeat([]byte{byte(n), 1, 2}, n)[:n]
		r := Reader{R: iotest.HalfReader(bytes.NewReader(append(framed(body), framed(body)...))), Pool: pool, Limit: 100_000}
		for range 2 {
			l, err := r.Next(context.Background())
			if err != nil || !bytes.Equal(l.Bytes(), body) {
				t.Fatalf("%d bytes: %v", n, err)
			}
			l.Release()
		}
		if _, err := r.Next(context.Background()); !errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("after the last frame: %v", err)
		}
	}
	if pool.Leased() != 0 {
		t.Fatal("leak")
	}
}

func TestReaderRefusesClaims(t *testing.T) {
	pool := zerocopy.NewPool(1 << 20)
	for _, first := range []string{"\xff\xff\xff\xff", "\x80\x00\x00\x00", "HTTP", "\x7f\xff\xff\xff"} {
		r := Reader{R: bytes.NewReader([]byte(first + "more")), Pool: pool, Limit: 64 << 20}
		_, err := r.Next(context.Background())
		var size *SizeError
		if !errors.As(err, &size) || string(size.First[:]) != first {
			t.Fatalf("%q: %v", first, err)
		}
	}
}

// TestReaderAllocatesWhatArrives: a claim of the limit followed by few bytes costs few bytes.
func TestReaderAllocatesWhatArrives(t *testing.T) {
	pool := zerocopy.NewPool(64 << 20)
	claim := binary.BigEndian.AppendUint32(nil, 40<<20)
	claim = append(claim, make([]byte, 10_000)...)
	r := Reader{R: bytes.NewReader(claim), Pool: pool, Limit: 64 << 20}
	res := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			r.R = bytes.NewReader(claim)
			if _, err := r.Next(context.Background()); !errors.Is(err, io.ErrUnexpectedEOF) {
				b.Fatal(err)
			}
		}
	})
	if res.AllocedBytesPerOp() > 100_000 {
		t.Fatalf("%d bytes were allocated for 10,000 received ones", res.AllocedBytesPerOp())
	}
	if pool.Leased() != 0 {
		t.Fatal("leak")
	}
}

func TestHeaders(t *testing.T) {
	flexible := func(_, v int16) bool { return v >= 12 }
	for _, in := range []struct {
		b    string
		want RequestHeader
		rest string
	}{
		{"\x00\x01\x00\x04\x00\x00\x00\x07\x00\x02idBODY", RequestHeader{1, 4, 7, "id"}, "BODY"},
		{"\x00\x01\x00\x04\x00\x00\x00\x07\xff\xffBODY", RequestHeader{1, 4, 7, ""}, "BODY"},
		{"\x00\x01\x00\x0c\x00\x00\x00\x07\x00\x00\x01\x05\x02xyBODY", RequestHeader{1, 12, 7, ""}, "BODY"},
	} {
		h, rest, err := ParseRequestHeader([]byte(in.b), flexible)
		if err != nil || h != in.want || string(rest) != in.rest {
			t.Fatalf("%q: %+v %q %v", in.b, h, rest, err)
		}
		for n := range len(in.b) - len(in.rest) {
			if _, _, err := ParseRequestHeader([]byte(in.b[:n]), flexible); !errors.Is(err, ErrHeader) {
				t.Fatalf("%q: %v", in.b[:n], err)
			}
		}
	}
	for _, flex := range []bool{false, true} {
		b := AppendResponseHeader(nil, 77, flex)
		id, rest, err := ParseResponseHeader(append(b, 'x'), flex)
		if err != nil || id != 77 || string(rest) != "x" {
			t.Fatalf("%d %q %v", id, rest, err)
		}
		if _, _, err := ParseResponseHeader(b[:len(b)-1], flex); err == nil {
			t.Fatal("a short header was read")
		}
	}
}

// TestClaimBeyondTheExpectedReservesWhatArrives: a frame larger than expected takes from the budget what its bytes show, and arrives whole.
func TestClaimBeyondTheExpectedReservesWhatArrives(t *testing.T) {
	const size, expected = 900_000, 100_000
	body := bytes.Repeat([]byte("0123456789"), size/10)
	pool := zerocopy.NewPool(512 << 10) // smaller than the frame
	in, out := io.Pipe()
	r := Reader{R: in, Pool: pool, Limit: 1 << 20, Expected: expected, Eager: expected, Patience: time.Hour}
	go func() {
		raw := framed(body)
		for i := 0; i < len(raw); i += 50_000 {
			if arrived := int64(i); pool.Leased() > max(2*arrived, expected)*3/2 {
				t.Errorf("%d bytes are reserved for %d that have arrived", pool.Leased(), arrived)
			}
			if _, err := out.Write(raw[i:min(i+50_000, len(raw))]); err != nil {
				t.Error(err)
			}
		}
	}()
	l, err := r.Next(context.Background())
	if err != nil || !bytes.Equal(l.Bytes(), body) {
		t.Fatalf("%d bytes, %v", len(l.Bytes()), err)
	}
	l.Release()
	if pool.Leased() != 0 {
		t.Fatal("leak")
	}
}
