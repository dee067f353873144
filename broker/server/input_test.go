package server

import (
	"context"
	"encoding/binary"
	"net"
	"testing"
	"time"

	"pgregory.net/rapid"

	"stet/internal/invariant"
)

// fataler is a *testing.T or a *rapid.T.
type fataler interface {
	Fatal(...any)
	Cleanup(func())
}

// pair is a loopback connection and the input of its server side.
func pair(t fataler, mem *memory) (net.Conn, *input) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	nc, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); nc.Close() })
	in := &input{}
	in.start(nc, mem, time.Hour, time.Hour)
	return client, in
}

// TestFramesHoweverTheyArrive: frames of all sizes, cut anywhere, come out whole, and nothing stays admitted.
func TestFramesHoweverTheyArrive(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		mem := newMemory(64 << 20)
		client, in := pair(rt, mem)
		sizes := rapid.SliceOfN(rapid.OneOf(rapid.IntRange(headerMin, 300), rapid.IntRange(headerMin, inputBuffer+10), rapid.IntRange(inputBuffer-10, 5*inputBuffer)), 1, 8).Draw(rt, "sizes")
		var wire []byte
		for i, n := range sizes {
			wire = binary.BigEndian.AppendUint32(wire, uint32(n))
			for k := range n {
				wire = append(wire, byte(i*7+k*13))
			}
		}
		cuts := rapid.SliceOfN(rapid.OneOf(rapid.IntRange(1, 5), rapid.IntRange(1, inputBuffer*2)), 1, 40).Draw(rt, "cuts")
		go func() {
			for i, rest := 0, wire; len(rest) > 0; i++ {
				n := min(cuts[i%len(cuts)], len(rest))
				if i > 200 {
					n = len(rest)
				}
				if _, err := client.Write(rest[:n]); err != nil {
					return // the reader below fails
				}
				rest = rest[n:]
			}
		}()
		for i, n := range sizes {
			f, err := in.frame(context.Background(), 1<<20)
			if err != nil {
				rt.Fatal(err)
			}
			if len(f) != n {
				rt.Fatalf("frame %d has %d bytes, want %d", i, len(f), n)
			}
			for k, b := range f {
				if b != byte(i*7+k*13) {
					rt.Fatalf("frame %d differs at %d", i, k)
				}
			}
			in.done()
			if mem.inUse() != 0 {
				rt.Fatalf("%d bytes are admitted", mem.inUse())
			}
		}
		if in.buf != nil || in.parts != 0 {
			rt.Fatal("a connection without bytes holds a buffer")
		}
	})
}

// TestPassedDeadlineOfABusyConnection: the deadline of idleness passes while a client works, and does not end it.
func TestPassedDeadlineOfABusyConnection(t *testing.T) {
	client, in := pair(t, newMemory(1<<20))
	for range 3 {
		if _, err := client.Write(request(0, 1, "x")); err != nil {
			t.Fatal(err)
		}
		if _, err := in.frame(context.Background(), 1<<20); err != nil {
			t.Fatal(err)
		}
		in.done()
		in.last = time.Now()
		_ = in.nc.SetReadDeadline(time.Now().Add(-time.Second))
	}
	in.last = time.Now().Add(-2 * time.Hour)
	if _, err := in.frame(context.Background(), 1<<20); err == nil {
		t.Error("a connection that idled for two hours is kept")
	}
}

// TestRequestAllocations: reading a request and answering it allocates nothing.
func TestRequestAllocations(t *testing.T) {
	if invariant.Enabled {
		t.Skip("allocations are counted without -race and invariants")
	}
	client, in := pair(t, newMemory(1<<20))
	wire := append(request(0, 1, string(make([]byte, 16<<10))), request(0, 2, "b")...)
	var req Request
	if n := testing.AllocsPerRun(200, func() {
		if _, err := client.Write(wire); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			f, err := in.frame(context.Background(), 1<<20)
			if err == nil {
				err = req.parse(f)
			}
			if err != nil {
				t.Fatal(err)
			}
			in.done()
		}
	}); n > 0 {
		t.Errorf("%v allocations for two requests", n)
	}
}
