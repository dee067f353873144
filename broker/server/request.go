package server

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
)

// Request is one request frame. Rest is valid until Serve returns.
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
}

// Handler answers requests. Serve queues the whole response frame on out and
// flushes it, or does nothing where the protocol has no answer (acks=0). An error
// closes the connection. ctx ends when the server shuts down. Serve is called
// from the connection's goroutine, one request at a time per connection.
type Handler interface {
	Serve(ctx context.Context, r *Request, out *Conn) error
}

// parse fills r from the frame, without copying. A client id that is the one of the request before costs nothing.
func (r *Request) parse(f []byte) error {
	be := binary.BigEndian
	r.Key = int16(be.Uint16(f))
	r.Version = int16(be.Uint16(f[2:]))
	r.CorrelationID = int32(be.Uint32(f[4:]))
	f = f[headerMin:]
	if len(f) < 2 {
		return fmt.Errorf("%w: key %d ends in the header", errFrame, r.Key)
	}
	n := int(int16(be.Uint16(f)))
	f = f[2:]
	r.HasClientID = n >= 0
	if n > len(f) {
		return fmt.Errorf("%w: key %d has a client id of %d bytes in a frame of %d", errFrame, r.Key, n, len(f))
	}
	n = max(n, 0)
	if string(f[:n]) != r.ClientID {
		r.ClientID = string(f[:n])
	}
	r.Rest = f[n:]
	return nil
}

// hostOf is the address without the port.
func hostOf(a net.Addr) string {
	if h, _, err := net.SplitHostPort(a.String()); err == nil {
		return h
	}
	return a.String()
}
