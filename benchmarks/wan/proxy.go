package wan

import (
	"net"
	"sync"
	"time"
)

// Line describes a long line.
type Line struct {
	// Delay is the time that a byte takes one way; a round trip takes twice as long.
	Delay time.Duration
	// BytesPerSecond bounds each direction of each connection; 0: no bound.
	BytesPerSecond float64
	// Window bounds the bytes under way in each direction of a connection, as a TCP
	// window does on a real line; 0: 64 MiB.
	Window int
}

// Proxy forwards connections over a Line.
type Proxy struct {
	line   Line
	target string
	ln     net.Listener
	wg     sync.WaitGroup

	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]bool
}

// Start listens on listen (port 0: a free one) and forwards to target.
func Start(listen, target string, line Line) (*Proxy, error) {
	if line.Window <= 0 {
		line.Window = 64 << 20
	}
	ln, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, err
	}
	p := &Proxy{line: line, target: target, ln: ln, conns: map[net.Conn]bool{}}
	p.wg.Add(1)
	go p.accept()
	return p, nil
}

// Addr is where the proxy listens.
func (p *Proxy) Addr() string { return p.ln.Addr().String() }

// SetTarget changes where new connections go.
func (p *Proxy) SetTarget(target string) {
	p.mu.Lock()
	p.target = target
	p.mu.Unlock()
}

// Close ends all connections and waits for the goroutines.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	for c := range p.conns {
		c.Close()
	}
	p.mu.Unlock()
	p.ln.Close()
	p.wg.Wait()
}

func (p *Proxy) accept() {
	defer p.wg.Done()
	for {
		c, err := p.ln.Accept()
		if err != nil {
			return
		}
		p.wg.Add(1)
		go p.serve(c)
	}
}

// track reports false when the proxy is closed.
func (p *Proxy) track(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		c.Close()
		return false
	}
	p.conns[c] = true
	return true
}

func (p *Proxy) untrack(c net.Conn) {
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
	c.Close()
}

func (p *Proxy) serve(client net.Conn) {
	defer p.wg.Done()
	if !p.track(client) {
		return
	}
	defer p.untrack(client)
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	// The handshake crosses the line once each way before the client can send.
	server, err := net.DialTimeout("tcp", target, 10*time.Second)
	if err != nil {
		return
	}
	if !p.track(server) {
		return
	}
	defer p.untrack(server)
	var wg sync.WaitGroup
	wg.Add(2)
	go func() { defer wg.Done(); p.carry(server, client) }()
	go func() { defer wg.Done(); p.carry(client, server) }()
	wg.Wait()
}

// piece is a run of bytes and when it comes out of the line.
type piece struct {
	b  []byte
	at time.Time
}

const pieceSize = 64 << 10

// carry moves bytes one way. The pieces under way are bounded by the window: a full
// one stops the reading, as on a real line.
func (p *Proxy) carry(dst, src net.Conn) {
	under := make(chan piece, max(1, p.line.Window/pieceSize))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for x := range under {
			if d := time.Until(x.at); d > 0 {
				time.Sleep(d) // the line itself
			}
			if _, err := dst.Write(x.b); err != nil {
				src.Close() // ends the reader below
				for range under {
				}
				return
			}
		}
		if tcp, ok := dst.(*net.TCPConn); ok {
			_ = tcp.CloseWrite()
		}
	}()
	var free time.Time // when the line can take the next byte
	for {
		b := make([]byte, pieceSize)
		n, err := src.Read(b)
		if n > 0 {
			now := time.Now()
			if p.line.BytesPerSecond > 0 {
				if free.Before(now) {
					free = now
				}
				free = free.Add(time.Duration(float64(n) / p.line.BytesPerSecond * float64(time.Second)))
				now = free
			}
			under <- piece{b[:n], now.Add(p.line.Delay)}
		}
		if err != nil {
			break
		}
	}
	close(under)
	<-done
}
