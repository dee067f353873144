package server

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Request is one request frame. Body and ClientID are valid until Serve returns.
type Request struct {
	Key           int16
	Version       int16
	CorrelationID int32
	ClientID      string
	HasClientID   bool
	// Rest is everything after the client id: the tagged fields of a flexible
	// header, then the body. Whether the header is flexible depends on key and
	// version, which the Handler knows.
	Rest []byte
	Conn *Conn
	// Received is when the last byte had arrived.
	Received time.Time
}

// Handler answers requests. Serve queues the whole response frame on out and
// flushes it, or does nothing where the protocol has no answer (acks=0). An error
// closes the connection. ctx ends when the server shuts down. Serve is called
// from the connection's goroutine, one request at a time per connection.
type Handler interface {
	Serve(ctx context.Context, r *Request, out *Conn) error
}

const (
	headerMin   = 8        // key, version, correlation id
	firstChunk  = 16 << 10 // admitted at once
	memPatience = 30 * time.Second
)

var errFrame = errors.New("not a Kafka request")

// bodies are reused between requests up to this size, so that a usual produce
// request costs no allocation.
const keepBody = 4 << 20

var bodyPool = sync.Pool{New: func() any { b := make([]byte, 0, firstChunk); return &b }}

// body is the bytes of one request and what was admitted for them.
type body struct {
	b        *[]byte
	admitted int64
	mem      *memory
}

func (b *body) release() {
	if b.b != nil && cap(*b.b) <= keepBody {
		*b.b = (*b.b)[:0]
		bodyPool.Put(b.b)
	}
	b.b = nil
	b.mem.release(b.admitted)
	b.admitted = 0
}

// readFrame reads one length-prefixed frame. The wait for the first byte is
// bounded by idle, every further piece by stall.
func (c *Conn) readFrame(ctx context.Context) (*body, error) {
	_ = c.nc.SetReadDeadline(time.Now().Add(c.srv.cfg.MaxIdle))
	var head [4]byte
	if _, err := io.ReadFull(c.br, head[:]); err != nil {
		return nil, err
	}
	size := int64(int32(binary.BigEndian.Uint32(head[:])))
	if size < headerMin || size > int64(c.srv.cfg.MaxRequestBytes) {
		return nil, fmt.Errorf("%w: a frame of %d bytes, allowed are %d to %d (socket.request.max.bytes)", errFrame, size, headerMin, c.srv.cfg.MaxRequestBytes)
	}
	b := &c.body
	b.mem = c.srv.mem
	step := min(size, firstChunk)
	if err := b.mem.acquire(ctx, step, memPatience); err != nil {
		return nil, err
	}
	b.admitted = step
	b.b = bodyPool.Get().(*[]byte)
	for int64(len(*b.b)) < size {
		have := int64(len(*b.b))
		if have == b.admitted { // what was admitted is full of real bytes: twice as much
			step = min(size-have, have)
			if err := b.mem.acquire(ctx, step, memPatience); err != nil {
				b.release()
				return nil, err
			}
			b.admitted += step
		}
		if int64(cap(*b.b)) < b.admitted {
			grown := make([]byte, have, b.admitted)
			copy(grown, *b.b)
			*b.b = grown
		}
		_ = c.nc.SetReadDeadline(time.Now().Add(c.srv.cfg.MaxStall))
		n, err := io.ReadFull(c.br, (*b.b)[have:b.admitted])
		*b.b = (*b.b)[:have+int64(n)]
		if err != nil {
			b.release()
			return nil, err
		}
	}
	return b, nil
}

// parse fills r from the frame, without copying.
func (r *Request) parse(f []byte) error {
	be := binary.BigEndian
	r.Key = int16(be.Uint16(f))
	r.Version = int16(be.Uint16(f[2:]))
	r.CorrelationID = int32(be.Uint32(f[4:]))
	r.ClientID, r.HasClientID = "", false
	f = f[headerMin:]
	if len(f) < 2 {
		return fmt.Errorf("%w: key %d ends in the header", errFrame, r.Key)
	}
	n := int(int16(be.Uint16(f)))
	f = f[2:]
	if n >= 0 {
		if n > len(f) {
			return fmt.Errorf("%w: key %d has a client id of %d bytes in a frame of %d", errFrame, r.Key, n, len(f))
		}
		r.ClientID, r.HasClientID = string(f[:n]), true
		f = f[n:]
	}
	r.Rest = f
	return nil
}

// hostOf is the address without the port.
func hostOf(a net.Addr) string {
	if h, _, err := net.SplitHostPort(a.String()); err == nil {
		return h
	}
	return a.String()
}
