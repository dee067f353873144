package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/zerocopy"
	"stet/zerocopy/frame"
)

// ErrProtocol says that a peer answers something that is not the Kafka protocol, or not as the protocol has it.
var ErrProtocol = errors.New("protocol error")

// Largest frame of a control response in bytes, and the part of a frame that is allocated on the peer's word.
const (
	maxControlFrame = 64 << 20
	controlEager    = 64 << 10
)

// link is a connection after negotiation.
type link struct {
	conn      net.Conn
	addr      string
	rtt       time.Duration
	versions  map[int16]versionRange
	formatter *kmsg.RequestFormatter
	reader    frame.Reader
	buf       []byte // of the request
	next      int32  // correlation id
	http      atomic.Bool
}

type versionRange struct{ min, max int16 }

// dial connects to addr and learns its versions.
func (o *Options) dial(ctx context.Context, addr, clientID string, pool *zerocopy.Pool, limit, eager int) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, o.DialTimeout)
	defer cancel()
	conn, err := o.Dial(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("cannot connect to %s: %w", addr, plainError(err))
	}
	l := &link{
		conn: conn, addr: addr, formatter: kmsg.NewRequestFormatter(kmsg.FormatterClientID(clientID)),
		reader: frame.Reader{R: conn, Pool: pool, Limit: limit, Eager: eager},
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		if o.SendBuffer > 0 {
			_ = tcp.SetWriteBuffer(o.SendBuffer) // a wish; the system's default serves as well
		}
		if o.ReceiveBuffer > 0 {
			_ = tcp.SetReadBuffer(o.ReceiveBuffer)
		}
	}
	doubt := time.AfterFunc(silence, func() {
		if o.speaksHTTP(ctx, addr) {
			l.http.Store(true)
			_ = conn.SetDeadline(time.Unix(1, 0))
		}
	})
	defer doubt.Stop()
	if err := l.negotiate(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return l, nil
}

// silence is how long a peer may think about its versions before we ask ourselves what it is. HTTP servers wait
// for the end of a line that never comes.
const silence = 1500 * time.Millisecond

// httpPatience bounds our asking.
const httpPatience = 10 * time.Second

// speaksHTTP asks on a connection of its own.
func (o *Options) speaksHTTP(ctx context.Context, addr string) bool {
	conn, err := o.Dial(ctx, "tcp", addr)
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(httpPatience))
	var first [4]byte
	if _, err := io.WriteString(conn, "GET / HTTP/1.0\r\n\r\n"); err != nil {
		return false
	}
	_, err = io.ReadFull(conn, first[:])
	return err == nil && string(first[:]) == "HTTP"
}

// negotiate asks for the versions, first with the version that names our software (KIP-511).
func (l *link) negotiate(ctx context.Context) error {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "stet", "1"
	for _, version := range []int16{3, 0} {
		req.SetVersion(version)
		start := time.Now()
		lease, body, err := l.exchange(ctx, req)
		if err != nil {
			return l.explain(err)
		}
		l.rtt = time.Since(start) // of bytes: a proxy on the way answers the handshake itself
		resp := kmsg.NewPtrApiVersionsResponse()
		resp.SetVersion(version)
		if len(body) >= 2 && int16(body[0])<<8|int16(body[1]) == kerr.UnsupportedVersion.Code {
			resp.SetVersion(0) // what a broker answers that does not know the version
		}
		err = resp.ReadFrom(body)
		lease.Release()
		switch {
		case err != nil:
			return fmt.Errorf("%s does not speak the Kafka protocol: %w: ApiVersions: %w", l.addr, ErrProtocol, err)
		case resp.ErrorCode == kerr.UnsupportedVersion.Code && version > 0:
			continue
		case resp.ErrorCode != 0:
			return fmt.Errorf("%s refuses ApiVersions: %w", l.addr, kerr.ErrorForCode(resp.ErrorCode))
		}
		l.versions = make(map[int16]versionRange, len(resp.ApiKeys))
		for _, k := range resp.ApiKeys {
			l.versions[k.ApiKey] = versionRange{k.MinVersion, k.MaxVersion}
		}
		return nil
	}
	panic("BUG: version 0 of ApiVersions was not the last")
}

// near is a round trip time for which nothing depends on the exact value.
const near = 2 * time.Millisecond

// measure asks for the versions again where the way looks long: a busy machine makes one exchange slow, a long way each.
func (l *link) measure(ctx context.Context) error {
	for range 2 {
		if l.rtt < near {
			break
		}
		req := kmsg.NewPtrApiVersionsRequest()
		start := time.Now()
		lease, _, err := l.exchange(ctx, req)
		if err != nil {
			return fmt.Errorf("%s: %w", l.addr, err)
		}
		lease.Release()
		l.rtt = min(l.rtt, time.Since(start))
	}
	return nil
}

// explain says what a peer is that fails the first exchange.
func (l *link) explain(err error) error {
	var size *frame.SizeError
	var netErr net.Error
	switch {
	case l.http.Load():
		return fmt.Errorf("%s does not speak the Kafka protocol: it answered with HTTP", l.addr)
	case errors.As(err, &size):
		first := string(size.First[:])
		switch {
		case first == "HTTP":
			return fmt.Errorf("%s does not speak the Kafka protocol: it answered with HTTP", l.addr)
		case first[0] == 0x15 && first[1] == 0x03:
			return fmt.Errorf("%s speaks TLS, but security.protocol is PLAINTEXT", l.addr)
		case strings.IndexFunc(first, func(r rune) bool { return r < 0x20 || r > 0x7e }) < 0:
			return fmt.Errorf("%s does not speak the Kafka protocol: its answer begins with %q", l.addr, first)
		}
		return fmt.Errorf("%s does not speak the Kafka protocol: %w", l.addr, err)
	case errors.As(err, &netErr) && netErr.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s accepts connections but does not answer; does it speak the Kafka protocol?", l.addr)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), strings.Contains(err.Error(), "connection reset"):
		return fmt.Errorf("%s closed the connection during the first request; does it expect TLS or authentication, or not speak the Kafka protocol?", l.addr)
	case errors.Is(err, context.Canceled):
		return err
	}
	return fmt.Errorf("%s does not speak the Kafka protocol: %w", l.addr, err)
}

// version picks the newest version of a key that both sides know, at most limit.
func (l *link) version(key, limit int16) (int16, bool) {
	r, ok := l.versions[key]
	v := min(r.max, limit)
	return v, ok && v >= r.min
}

// write sends a request. It is encoded into a buffer that is used again.
func (l *link) write(req kmsg.Request) error {
	l.next++
	l.buf = l.formatter.AppendRequest(l.buf[:0], req, l.next)
	_, err := l.conn.Write(l.buf)
	return err
}

// read returns the body of the response to the last request.
func (l *link) read(ctx context.Context, flexible bool) (zerocopy.Lease, []byte, error) {
	lease, err := l.reader.Next(ctx)
	if err != nil {
		return zerocopy.Lease{}, nil, err
	}
	id, body, err := frame.ParseResponseHeader(lease.Bytes(), flexible)
	if err == nil && id != l.next {
		err = fmt.Errorf("%w: correlation id %d instead of %d", ErrProtocol, id, l.next)
	}
	if err != nil {
		lease.Release()
		return zerocopy.Lease{}, nil, err
	}
	return lease, body, nil
}

// until makes reads and writes end with the context. The result undoes that.
func (l *link) until(ctx context.Context, limit time.Duration) (undo func() bool) {
	deadline := time.Now().Add(limit)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	_ = l.conn.SetDeadline(deadline) // a closed connection says so at the next read
	return context.AfterFunc(ctx, func() { _ = l.conn.SetDeadline(time.Unix(1, 0)) })
}

// exchange sends one request and reads its response.
func (l *link) exchange(ctx context.Context, req kmsg.Request) (zerocopy.Lease, []byte, error) {
	undo := l.until(ctx, time.Hour)
	defer undo()
	if err := l.write(req); err != nil {
		return zerocopy.Lease{}, nil, contextError(ctx, err)
	}
	// Only ApiVersions keeps the old response header in flexible versions.
	lease, body, err := l.read(ctx, req.IsFlexible() && req.Key() != int16(kmsg.ApiVersions))
	return lease, body, contextError(ctx, err)
}

// contextError prefers the reason why we ended a connection to how that looked.
func contextError(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		return ctx.Err()
	}
	return err
}

// plainError drops the "dial tcp 127.0.0.1:1:" in front of what the system said.
func plainError(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		var sys *os.SyscallError
		if errors.As(op.Err, &sys) {
			return sys.Err
		}
		return op.Err
	}
	return err
}
