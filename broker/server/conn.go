package server

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"stet/zerocopy"
)

// Conn is one client connection.
type Conn struct {
	srv      *Server
	nc       net.Conn
	in       input
	w        *zerocopy.Writer
	req      Request
	Listener string // name of the listener that accepted it
	Host     string // remote address without the port
	// Local is the address that the client reached.
	Local net.Addr
	// Session is for the handler: what it knows of this client (software name, principal).
	Session any

	state atomic.Int32 // idle, busy or closed
	slow  bool         // Flush has set a write deadline
}

// States of a connection. A shutdown closes idle ones at once; busy ones are answered first.
const (
	stateIdle int32 = iota
	stateBusy
	stateClosed
)

// serve runs the connection until it ends; it owns the goroutine.
func (c *Conn) serve(ctx context.Context) {
	defer c.srv.forget(c)
	defer c.in.done()
	c.in.start(c.nc, c.srv.mem, c.srv.cfg.MaxIdle, c.srv.cfg.MaxStall)
	c.w = zerocopy.NewWriter(c.nc, &c.srv.Sent)
	c.w.Blocked = c.waitsForClient
	c.req.Conn = c
	for {
		f, err := c.in.frame(ctx, c.srv.cfg.MaxRequestBytes)
		if err != nil {
			c.ended(err)
			return
		}
		if !c.srv.begin(c) { // shutting down: what was not begun is not begun
			return
		}
		err = c.req.parse(f)
		if err == nil {
			err = c.srv.handler.Serve(ctx, &c.req, c)
		}
		c.req.Rest = nil
		c.in.done()
		c.in.last = time.Now()
		if !c.srv.end(c) || err != nil {
			c.ended(err)
			return
		}
	}
}

// Bytes queues p, which must not change until Flush returns.
func (c *Conn) Bytes(p []byte) { c.w.Bytes(p) }

// Range queues a part of a file, which must stay open until Flush returns.
func (c *Conn) Range(r zerocopy.Range) { c.w.Range(r) }

// Flush sends what is queued. A client that does not take it in time is an error.
func (c *Conn) Flush() error {
	err := c.w.Flush()
	if c.slow {
		c.slow = false
		_ = c.nc.SetWriteDeadline(time.Time{})
	}
	return err
}

// waitsForClient bounds the wait for a client that does not take its answer.
func (c *Conn) waitsForClient() {
	c.slow = true
	_ = c.nc.SetWriteDeadline(time.Now().Add(c.srv.cfg.MaxIdle))
}

// ended says why a connection was closed, where that is worth a line.
func (c *Conn) ended(err error) {
	switch {
	case err == nil, errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed), errors.Is(err, context.Canceled), errors.Is(err, os.ErrDeadlineExceeded):
		return
	case errors.Is(err, errFrame), errors.Is(err, errMemoryWait):
		c.srv.log.Warn("connection closed", "client", c.nc.RemoteAddr().String(), "listener", c.Listener, "err", err)
	default:
		c.srv.log.Debug("connection closed", "client", c.nc.RemoteAddr().String(), "listener", c.Listener, "err", err)
	}
}
