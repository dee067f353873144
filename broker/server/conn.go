package server

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"time"

	"stet/zerocopy"
)

// Conn is one client connection.
type Conn struct {
	srv      *Server
	nc       net.Conn
	br       *bufio.Reader
	w        *zerocopy.Writer
	body     body
	req      Request
	Listener string // name of the listener that accepted it
	Host     string // remote address without the port
	// Local is the address that the client reached.
	Local net.Addr
	// Session is for the handler: what it knows of this client (software name, principal).
	Session any
	busy    bool // guarded by srv.mu: a request is in work
}

const readBuffer = 4 << 10

// serve runs the connection until it ends; it owns the goroutine.
func (c *Conn) serve(ctx context.Context) {
	defer c.srv.forget(c)
	c.w = zerocopy.NewWriter(c.nc, &c.srv.Sent)
	for {
		f, err := c.readFrame(ctx)
		if err != nil {
			c.ended(err)
			return
		}
		if !c.srv.begin(c) { // shutting down: what was not begun is not begun
			f.release()
			return
		}
		c.req = Request{Conn: c, Received: time.Now()}
		err = c.req.parse(*f.b)
		if err == nil {
			err = c.srv.handler.Serve(ctx, &c.req, c)
		}
		f.release()
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
	_ = c.nc.SetWriteDeadline(time.Now().Add(c.srv.cfg.MaxIdle))
	return c.w.Flush()
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
