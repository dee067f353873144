package wan

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"
)

func echoServer(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				c.Close()
			}()
		}
	}()
	return ln.Addr().String()
}

// TestRoundTripAndContents: a round trip takes at least twice the delay, and what
// goes in comes out, whole and in order.
func TestRoundTripAndContents(t *testing.T) {
	p, err := Start("127.0.0.1:0", echoServer(t), Line{Delay: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 3 {
		start := time.Now()
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d < 40*time.Millisecond {
			t.Errorf("a round trip took %s", d)
		}
	}
	want := make([]byte, 3<<20)
	for i := range want {
		want[i] = byte(i * 7 >> 3)
	}
	go func() {
		_, _ = c.Write(want)
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	got, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d of %d bytes came back, or other ones: %v", len(got), len(want), err)
	}
}

func TestBandwidth(t *testing.T) {
	p, err := Start("127.0.0.1:0", echoServer(t), Line{BytesPerSecond: 10e6})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const n = 2 << 20
	start := time.Now()
	go func() { _, _ = c.Write(make([]byte, n)) }()
	if _, err := io.ReadFull(c, make([]byte, n)); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(start); d < 180*time.Millisecond { // 2 MiB at 10 MB/s, and the way back at the same time
		t.Errorf("%d bytes took %s at 10 MB/s", n, d)
	}
}

func TestCloseEndsEverything(t *testing.T) {
	p, err := Start("127.0.0.1:0", echoServer(t), Line{Delay: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	p.Close() // waits for all goroutines
	_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is still open")
	}
}
