package zerocopy

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"testing"
)

// loopback returns both ends of a TCP connection.
func loopback(t *testing.T) (client, server net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err = net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

func randomFile(t *testing.T, n int) (*os.File, []byte) {
	t.Helper()
	b := make([]byte, n)
	rnd := rand.New(rand.NewPCG(1, uint64(n)))
	for i := range b {
		b[i] = byte(rnd.Uint32())
	}
	name := filepath.Join(t.TempDir(), "segment")
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f, b
}

// wrapped hides the TCP connection, as TLS does.
type wrapped struct{ net.Conn }

func TestWriterSendsPiecesInOrder(t *testing.T) {
	f, content := randomFile(t, 3<<20)
	for name, wrap := range map[string]func(net.Conn) net.Conn{
		"tcp":     func(c net.Conn) net.Conn { return c },
		"wrapped": func(c net.Conn) net.Conn { return wrapped{c} },
	} {
		t.Run(name, func(t *testing.T) {
			client, server := loopback(t)
			var counters Counters
			w := NewWriter(wrap(server), &counters)
			rnd := rand.New(rand.NewPCG(7, 8))
			for range 20 {
				var want []byte
				var sendfile, copied, memory int64
				counters = Counters{}
				for range 1 + rnd.IntN(8) {
					n := 1 + rnd.IntN(200<<10)
					if rnd.IntN(2) == 0 {
						n = 1 + rnd.IntN(2000)
					}
					if rnd.IntN(2) == 0 {
						p := content[:n]
						w.Bytes(p)
						want = append(want, p...)
						memory += int64(n)
						continue
					}
					pos := rnd.IntN(len(content) - n)
					w.Range(Range{File: f, Reader: f, Pos: int64(pos), Len: n})
					want = append(want, content[pos:pos+n]...)
					if n >= SendfileFrom && name == "tcp" && HaveSendfile {
						sendfile += int64(n)
					} else {
						copied += int64(n)
					}
				}
				if w.Queued() != len(want) {
					t.Fatalf("queued %d, want %d", w.Queued(), len(want))
				}
				got := make(chan []byte)
				go func() {
					b := make([]byte, len(want))
					_, _ = io.ReadFull(client, b) // what is missing differs below
					got <- b
				}()
				if err := w.Flush(); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(<-got, want) {
					t.Fatal("other bytes arrived")
				}
				if counters.SendfileBytes.Load() != sendfile || counters.CopiedBytes.Load() != copied || counters.MemoryBytes.Load() != memory {
					t.Fatalf("sendfile %d copied %d memory %d, want %d %d %d", counters.SendfileBytes.Load(), counters.CopiedBytes.Load(), counters.MemoryBytes.Load(), sendfile, copied, memory)
				}
			}
		})
	}
	if pos, _ := f.Seek(0, io.SeekCurrent); pos != 0 {
		t.Fatalf("the shared file position moved to %d", pos)
	}
}

// TestMostOfAFetchGoesBySendfile is G10's share for a response of 1 MiB.
func TestMostOfAFetchGoesBySendfile(t *testing.T) {
	if !HaveSendfile {
		t.Skip("no sendfile on this system")
	}
	f, _ := randomFile(t, 1<<20)
	client, server := loopback(t)
	go func() { _, _ = io.Copy(io.Discard, client) }()
	var c Counters
	w := NewWriter(server, &c)
	w.Bytes(make([]byte, 90))
	w.Range(Range{File: f, Len: 1 << 20})
	w.Bytes(make([]byte, 3))
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	all := c.SendfileBytes.Load() + c.CopiedBytes.Load() + c.MemoryBytes.Load()
	if c.SendfileBytes.Load() != 1<<20 || c.SendfileBytes.Load()*100 < all*99 {
		t.Fatalf("%d of %d bytes by sendfile", c.SendfileBytes.Load(), all)
	}
}

func TestShrunkenFileIsAnError(t *testing.T) {
	for _, n := range []int{1000, 1 << 20} { // by copy and by sendfile
		f, _ := randomFile(t, n)
		client, server := loopback(t)
		go func() { _, _ = io.Copy(io.Discard, client) }()
		if err := os.Truncate(f.Name(), int64(n/2)); err != nil {
			t.Fatal(err)
		}
		var c Counters
		w := NewWriter(server, &c)
		w.Range(Range{File: f, Len: n})
		if err := w.Flush(); !errors.Is(err, io.ErrUnexpectedEOF) || c.ShortFiles.Load() != 1 {
			t.Fatalf("%d bytes: %v, counted %d", n, err, c.ShortFiles.Load())
		}
		if w.Queued() != 0 {
			t.Fatal("the failed response is still queued")
		}
	}
}

func TestClosedConnectionIsAnError(t *testing.T) {
	f, _ := randomFile(t, 8<<20)
	client, server := loopback(t)
	client.Close()
	w := NewWriter(server, nil)
	w.Range(Range{File: f, Len: 8 << 20})
	if err := w.Flush(); err == nil {
		t.Fatal("8 MiB went to a closed connection")
	}
}
