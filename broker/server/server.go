package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"stet/zerocopy"
)

// Config bounds what clients can cost.
type Config struct {
	// MaxRequestBytes is the largest frame (socket.request.max.bytes).
	MaxRequestBytes int32
	// MemoryBytes is the budget of all requests being read or served (queued.max.request.bytes).
	MemoryBytes int64
	// MaxIdle closes a connection without a request, or that does not take its answer (connections.max.idle.ms).
	MaxIdle time.Duration
	// MaxStall closes a connection that stops in the middle of a request.
	MaxStall time.Duration
	// MaxConnections and MaxPerHost refuse more connections (max.connections,
	// max.connections.per.ip); they are asked at each new one.
	MaxConnections, MaxPerHost func() int
	// SendBuffer and ReceiveBuffer are SO_SNDBUF and SO_RCVBUF; 0: the system's, which grow with the way.
	SendBuffer, ReceiveBuffer int
}

// Server accepts connections. Make it with New, add listeners, then Shutdown.
type Server struct {
	cfg     Config
	handler Handler
	log     *slog.Logger
	mem     *memory
	ctx     context.Context // ends at shutdown
	cancel  context.CancelFunc

	mu        sync.Mutex
	listeners []net.Listener
	conns     map[*Conn]struct{}
	perHost   map[string]int
	closing   atomic.Bool // set under mu
	wg        sync.WaitGroup

	// Sent counts the bytes of all responses by the way they went.
	Sent zerocopy.Counters

	accepted atomic.Int64
	refused  atomic.Int64
	requests atomic.Int64
}

// New returns a server that hands requests to h.
func New(cfg Config, h Handler, log *slog.Logger) *Server {
	s := &Server{cfg: cfg, handler: h, log: log, mem: newMemory(cfg.MemoryBytes), conns: map[*Conn]struct{}{}, perHost: map[string]int{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Listen binds addr (host:port, port 0 takes a free one) without serving yet,
// so that a port in use is found before anything else starts.
func Listen(addr string) (net.Listener, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listeners: cannot listen on %s: %w", addr, unwrapOp(err))
	}
	return ln, nil
}

func unwrapOp(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}

// Serve starts to accept on ln, in a goroutine of its own.
func (s *Server) Serve(name string, ln net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Load() {
		ln.Close()
		return
	}
	s.listeners = append(s.listeners, ln)
	s.wg.Add(1)
	go s.accept(name, ln)
}

func (s *Server) accept(name string, ln net.Listener) {
	defer s.wg.Done()
	backoff := time.Millisecond
	for {
		nc, err := ln.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) || s.ctx.Err() != nil {
				return
			}
			// Out of descriptors or a reset before accept: neither ends the listener.
			s.log.Warn("accept failed", "listener", name, "err", err)
			select {
			case <-time.After(backoff):
			case <-s.ctx.Done():
				return
			}
			backoff = min(backoff*2, time.Second)
			continue
		}
		backoff = time.Millisecond
		s.start(name, nc)
	}
}

func (s *Server) start(name string, nc net.Conn) {
	c := &Conn{srv: s, nc: nc, Listener: name, Host: hostOf(nc.RemoteAddr()), Local: nc.LocalAddr()}
	if tcp, ok := nc.(*net.TCPConn); ok { // a wish; a system that refuses serves as well with its own
		zerocopy.Unpaced(tcp)
		if s.cfg.SendBuffer > 0 {
			_ = tcp.SetWriteBuffer(s.cfg.SendBuffer)
		}
		if s.cfg.ReceiveBuffer > 0 {
			_ = tcp.SetReadBuffer(s.cfg.ReceiveBuffer)
		}
	}
	all, host := s.cfg.MaxConnections(), s.cfg.MaxPerHost()
	s.mu.Lock()
	why := ""
	switch {
	case len(s.conns) >= all:
		why = "max.connections"
	case s.perHost[c.Host] >= host:
		why = "max.connections.per.ip"
	}
	if s.closing.Load() || why != "" {
		s.mu.Unlock()
		if why != "" {
			s.refused.Add(1) // before the client can see it
		}
		nc.Close()
		if why != "" {
			s.log.Warn("connection refused: "+why+" reached", "client", nc.RemoteAddr().String(), "listener", name)
		}
		return
	}
	s.conns[c] = struct{}{}
	s.perHost[c.Host]++
	s.wg.Add(1)
	s.mu.Unlock()
	s.accepted.Add(1)
	go func() {
		defer s.wg.Done()
		c.serve(s.ctx)
	}()
}

// begin marks a connection as having a request in work; false: the server is closing.
func (s *Server) begin(c *Conn) bool {
	if !c.state.CompareAndSwap(stateIdle, stateBusy) || s.closing.Load() {
		return false
	}
	s.requests.Add(1)
	return true
}

// end marks it idle again; false: the server is closing. Shutdown says that it is closing before it looks at states, so
// either it sees an idle connection or end sees that it is closing.
func (s *Server) end(c *Conn) bool {
	c.state.Store(stateIdle)
	return !s.closing.Load()
}

func (s *Server) forget(c *Conn) {
	c.nc.Close()
	s.mu.Lock()
	delete(s.conns, c)
	if s.perHost[c.Host]--; s.perHost[c.Host] == 0 {
		delete(s.perHost, c.Host)
	}
	s.mu.Unlock()
}

// Stats are counts since the start, and what is open now.
type Stats struct {
	Connections, Accepted, Refused, Requests, RequestMemory int64
}

// Stats returns the counts.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	open := len(s.conns)
	s.mu.Unlock()
	return Stats{int64(open), s.accepted.Load(), s.refused.Load(), s.requests.Load(), s.mem.inUse()}
}

// Shutdown closes listeners and idle connections at once, ends long polls, lets
// requests in work be answered, and closes the rest when ctx ends.
func (s *Server) Shutdown(ctx context.Context) {
	s.mu.Lock()
	s.closing.Store(true)
	for _, ln := range s.listeners {
		ln.Close()
	}
	for c := range s.conns {
		if c.state.CompareAndSwap(stateIdle, stateClosed) {
			c.nc.Close()
		}
	}
	s.mu.Unlock()
	s.cancel()
	done := make(chan struct{})
	go func() { s.wg.Wait(); close(done) }()
	select {
	case <-done:
		return
	case <-ctx.Done():
	}
	s.mu.Lock()
	for c := range s.conns {
		c.nc.Close()
	}
	s.mu.Unlock()
	<-done
}
