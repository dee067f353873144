package loadgen

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/zerocopy"
)

// conn is one pipelined connection to a broker. Requests are answered in order;
// a callback gets each answer's body on the reader's goroutine.
type conn struct {
	nc   net.Conn
	head []byte      // of the request that is written
	vec  net.Buffers // its pieces

	mu      sync.Mutex
	pending []pendingAnswer
	err     error
	next    int32
	done    chan struct{}
}

type pendingAnswer struct {
	correlation int32
	flexible    bool
	f           func(body []byte, at time.Time, err error)
}

const maxAnswer = 256 << 20

func dial(addr string) (*conn, error) {
	nc, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		return nil, plain(err)
	}
	if tcp, ok := nc.(*net.TCPConn); ok {
		zerocopy.Unpaced(tcp)
	}
	return newConn(nc), nil
}

func newConn(nc net.Conn) *conn {
	c := &conn{nc: nc, done: make(chan struct{})}
	go c.read()
	return c
}

// broken is what ended the connection, nil while it lives.
func (c *conn) broken() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *conn) close() {
	c.nc.Close()
	<-c.done
}

// send writes a request whose body is given; f is called exactly once, when the
// answer is there or, for a request without one, when it was written. Callers
// must not use one conn from two goroutines at once.
func (c *conn) send(key, version int16, flexible bool, body [][]byte, answered bool, f func([]byte, time.Time, error)) {
	c.mu.Lock()
	if c.err != nil {
		err := c.err
		c.mu.Unlock()
		f(nil, time.Now(), err)
		return
	}
	c.next++
	id := c.next
	if answered {
		c.pending = append(c.pending, pendingAnswer{id, flexible, f})
	}
	c.mu.Unlock()
	const client = "stet-loadgen"
	head := c.head[:0]
	head = binary.BigEndian.AppendUint32(head, 0)
	head = binary.BigEndian.AppendUint16(head, uint16(key))
	head = binary.BigEndian.AppendUint16(head, uint16(version))
	head = binary.BigEndian.AppendUint32(head, uint32(id))
	head = binary.BigEndian.AppendUint16(head, uint16(len(client)))
	head = append(head, client...)
	if flexible {
		head = append(head, 0)
	}
	c.head = head
	size := len(head) - 4
	vec := c.vec[:0]
	vec = append(vec, head)
	for _, b := range body {
		size += len(b)
		vec = append(vec, b)
	}
	binary.BigEndian.PutUint32(head, uint32(size))
	c.vec = vec
	_, err := vec.WriteTo(c.nc) // one writev, nothing is copied on the way
	if err != nil {
		err = plain(err)
		c.fail(err)
	}
	if !answered {
		f(nil, time.Now(), err)
	}
}

// requestAt sends a kmsg request, waits for the answer and tells when the answer's last byte was read. What resp refers to
// is valid until the next request.
func (c *conn) requestAt(req kmsg.Request, resp kmsg.Response, at *time.Time) error {
	result := make(chan error, 1)
	c.send(req.Key(), req.GetVersion(), req.IsFlexible(), [][]byte{req.AppendTo(nil)}, true, func(body []byte, when time.Time, err error) {
		if err == nil {
			*at = when
			resp.SetVersion(req.GetVersion())
			err = resp.ReadFrom(body)
		}
		result <- err
	})
	return <-result
}

// plain is a connection's error in words for a user: without addresses that say nothing, or the name of a function of ours.
func plain(err error) error {
	var op *net.OpError
	var sys syscall.Errno
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the server closed the connection")
	case errors.Is(err, net.ErrClosed):
		return errors.New("the connection was given up")
	case errors.As(err, &sys):
		return sys
	case errors.As(err, &op) && op.Timeout():
		return errors.New("no answer in time")
	case errors.As(err, &op) && op.Err != nil:
		return op.Err
	}
	return err
}

func (c *conn) fail(err error) {
	c.mu.Lock()
	if c.err == nil {
		c.err = err
	}
	c.mu.Unlock()
	c.nc.Close()
}

func (c *conn) read() {
	defer close(c.done)
	br := bufio.NewReaderSize(c.nc, 64<<10)
	var buf []byte
	for {
		body, err := readAnswer(br, &buf)
		if err != nil {
			err = plain(err)
		}
		at := time.Now()
		c.mu.Lock()
		if err == nil && len(c.pending) == 0 {
			err = errors.New("an answer that nobody asked for")
		}
		if err != nil {
			if c.err == nil {
				c.err = err
			}
			rest, why := c.pending, c.err
			c.pending = nil
			c.mu.Unlock()
			c.nc.Close()
			for _, p := range rest {
				p.f(nil, at, why)
			}
			return
		}
		p := c.pending[0]
		c.pending = c.pending[1:]
		c.mu.Unlock()
		if got := int32(binary.BigEndian.Uint32(body)); got != p.correlation {
			p.f(nil, at, fmt.Errorf("correlation id %d where %d is next", got, p.correlation))
			c.fail(errors.New("answers out of order"))
			continue
		}
		body = body[4:]
		if p.flexible {
			if len(body) == 0 || body[0] != 0 {
				p.f(nil, at, errors.New("unexpected tagged fields in a response header"))
				continue
			}
			body = body[1:]
		}
		p.f(body, at, nil)
	}
}

// readAnswer reads one frame into *buf, growing it by what is received.
func readAnswer(br *bufio.Reader, buf *[]byte) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(br, head[:]); err != nil {
		return nil, err
	}
	n := int(int32(binary.BigEndian.Uint32(head[:])))
	if n < 4 || n > maxAnswer {
		return nil, fmt.Errorf("an answer of %d bytes; not a Kafka broker?", n)
	}
	b := (*buf)[:0]
	for len(b) < n {
		if len(b) == cap(b) {
			grown := make([]byte, len(b), min(n, max(64<<10, 2*cap(b))))
			copy(grown, b)
			b = grown
		}
		k, err := io.ReadFull(br, b[len(b):min(n, cap(b))])
		b = b[:len(b)+k]
		if err != nil {
			return nil, err
		}
	}
	*buf = b
	return b, nil
}
