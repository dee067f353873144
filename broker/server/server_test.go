package server

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// echo answers with the correlation id and the rest; key 1 waits for the shutdown first.
type echo struct{ waiting chan struct{} }

func (e echo) Serve(ctx context.Context, r *Request, out *Conn) error {
	if r.Key == 1 {
		e.waiting <- struct{}{}
		<-ctx.Done()
	}
	b := binary.BigEndian.AppendUint32(nil, uint32(4+len(r.Rest)))
	b = binary.BigEndian.AppendUint32(b, uint32(r.CorrelationID))
	out.Bytes(append(b, r.Rest...))
	return out.Flush()
}

func fixture(t *testing.T, change func(*Config)) (*Server, string, echo) {
	t.Helper()
	many := func() int { return 1 << 30 }
	cfg := Config{MaxRequestBytes: 100 << 20, MemoryBytes: 64 << 20, MaxIdle: time.Minute, MaxStall: time.Minute, MaxConnections: many, MaxPerHost: many}
	if change != nil {
		change(&cfg)
	}
	h := echo{make(chan struct{}, 1)}
	s := New(cfg, h, slog.New(slog.DiscardHandler))
	ln, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.Serve("PLAINTEXT", ln)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		s.Shutdown(ctx)
	})
	return s, ln.Addr().String(), h
}

func dialTo(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return c
}

func request(key int16, id int32, rest string) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(10+len(rest)))
	b = binary.BigEndian.AppendUint16(b, uint16(key))
	b = binary.BigEndian.AppendUint16(b, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(id))
	b = binary.BigEndian.AppendUint16(b, 0xffff) // no client id
	return append(b, rest...)
}

func answer(t *testing.T, c net.Conn) (int32, string) {
	t.Helper()
	var head [8]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		t.Fatal(err)
	}
	rest := make([]byte, binary.BigEndian.Uint32(head[:])-4)
	if _, err := io.ReadFull(c, rest); err != nil {
		t.Fatal(err)
	}
	return int32(binary.BigEndian.Uint32(head[4:])), string(rest)
}

// closed says that the peer ends the connection before the deadline.
func closed(t *testing.T, what string, c net.Conn) {
	t.Helper()
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%s: the connection is not closed: %v", what, err)
	}
}

func TestLargeAndPipelinedRequests(t *testing.T) {
	_, addr, _ := fixture(t, nil)
	c := dialTo(t, addr)
	big := string(make([]byte, 5<<20))
	go func() {
		for _, b := range [][]byte{request(0, 1, "a"), request(0, 2, big), request(0, 3, "c")} {
			if _, err := c.Write(b); err != nil {
				return // the reader below fails
			}
		}
	}()
	for i, want := range []string{"a", big, "c"} {
		if id, rest := answer(t, c); id != int32(i+1) || rest != want {
			t.Fatalf("answer %d has id %d and %d bytes", i+1, id, len(rest))
		}
	}
}

// TestClaimsCostNothing: a hundred claims of 100 MB admit what has arrived, not what was claimed.
func TestClaimsCostNothing(t *testing.T) {
	s, addr, _ := fixture(t, nil)
	for range 100 {
		c := dialTo(t, addr)
		if _, err := c.Write(binary.BigEndian.AppendUint32(nil, 100<<20)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	for s.Stats().RequestMemory < 100*firstChunk { // until all have begun
		if s.Stats().RequestMemory > 100*firstChunk {
			break
		}
		<-time.After(time.Millisecond)
	}
	if m := s.Stats().RequestMemory; m > 100*firstChunk {
		t.Errorf("%d bytes are admitted for 100,000 received", m)
	}
	ok := dialTo(t, addr)
	if _, err := ok.Write(request(0, 9, "x")); err != nil {
		t.Fatal(err)
	}
	if id, _ := answer(t, ok); id != 9 {
		t.Error("a proper client is not served beside them")
	}
}

func TestIdleAndStalledConnectionsAreClosed(t *testing.T) {
	s, addr, _ := fixture(t, func(c *Config) { c.MaxIdle, c.MaxStall = 100*time.Millisecond, 100*time.Millisecond })
	closed(t, "idle", dialTo(t, addr))
	half := dialTo(t, addr)
	if _, err := half.Write(request(0, 1, "half")[:9]); err != nil {
		t.Fatal(err)
	}
	closed(t, "half a frame", half)
	if m := s.Stats().RequestMemory; m != 0 {
		t.Errorf("%d bytes are still admitted", m)
	}
}

func TestConnectionLimits(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"max.connections":        func(c *Config) { c.MaxConnections = func() int { return 2 } },
		"max.connections.per.ip": func(c *Config) { c.MaxPerHost = func() int { return 2 } },
	} {
		t.Run(name, func(t *testing.T) {
			s, addr, _ := fixture(t, change)
			first := dialTo(t, addr)
			for _, c := range []net.Conn{first, dialTo(t, addr)} {
				if _, err := c.Write(request(0, 1, "")); err != nil {
					t.Fatal(err)
				}
				answer(t, c)
			}
			closed(t, "the third", dialTo(t, addr))
			if n := s.Stats().Refused; n != 1 {
				t.Errorf("%d refused", n)
			}
			first.Close()
			for s.Stats().Connections > 1 {
				<-time.After(time.Millisecond)
			}
			again := dialTo(t, addr)
			if _, err := again.Write(request(0, 2, "")); err != nil {
				t.Fatal(err)
			}
			answer(t, again)
		})
	}
}

// TestShutdownAnswersWhatIsInWork: a long poll ends and is answered, an idle
// connection is closed at once, nothing is accepted any more.
func TestShutdownAnswersWhatIsInWork(t *testing.T) {
	s, addr, h := fixture(t, nil)
	idle, busy := dialTo(t, addr), dialTo(t, addr)
	if _, err := busy.Write(request(1, 5, "poll")); err != nil {
		t.Fatal(err)
	}
	<-h.waiting
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	s.Shutdown(ctx)
	if id, rest := answer(t, busy); id != 5 || rest != "poll" {
		t.Errorf("the long poll got %d %q", id, rest)
	}
	closed(t, "busy", busy)
	closed(t, "idle", idle)
	if c, err := net.Dial("tcp", addr); err == nil {
		c.Close()
		t.Error("the listener still accepts")
	}
}

// TestMemoryBudget: whatever is acquired and released, the budget holds, nobody
// waits for ever, and all comes back.
func TestMemoryBudget(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			limit := rapid.Int64Range(1, 100).Draw(rt, "limit")
			m := newMemory(limit)
			sizes := rapid.SliceOfN(rapid.Int64Range(1, 150), 1, 30).Draw(rt, "sizes")
			done := make(chan bool, len(sizes))
			for i, n := range sizes {
				go func() {
					time.Sleep(time.Duration(i) * time.Millisecond) // synctest's clock: the order of arrival
					err := m.acquire(context.Background(), n, time.Hour)
					if err == nil {
						if used := m.inUse(); used > limit && used != n {
							t.Errorf("%d of %d in use", used, limit)
						}
						time.Sleep(10 * time.Millisecond)
						m.release(n)
					}
					done <- err == nil
				}()
			}
			for range sizes {
				if !<-done {
					t.Error("a request was never admitted")
				}
			}
			if m.inUse() != 0 || len(m.waiters) != 0 {
				t.Errorf("%d bytes and %d waiters are left", m.inUse(), len(m.waiters))
			}
			big := m.acquire(context.Background(), 2*limit, time.Second)
			if late := m.acquire(context.Background(), 1, time.Second); big != nil || !errors.Is(late, errMemoryWait) {
				t.Errorf("alone and too large: %v; beside it: %v", big, late)
			}
		})
	})
}
