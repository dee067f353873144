package source

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/fetcher"
	"stet/zerocopy"
	"stet/zerocopy/frame"
)

// fetchOverhead is what a response may have beside the records that were asked for, in bytes: 10,000 partitions and aborted
// transactions. A response up to the asked size and this is reserved and allocated on the source's word. Only a
// single batch may be larger, and memory for that is taken as its bytes arrive.
const fetchOverhead = 1 << 20

// fetchConn implements fetcher.Conn.
type fetchConn struct {
	l       *link
	version int16
	timeout time.Duration
	wait    time.Duration // that the last request allowed the broker
	flex    bool
}

var _ fetcher.Leader = (*Source)(nil)

// Connect implements fetcher.Leader.
func (s *Source) Connect(ctx context.Context, broker int32, n int) (fetcher.Conn, error) {
	addr, err := s.address(ctx, broker)
	if err != nil {
		return nil, err
	}
	l, err := s.o.dial(ctx, addr, s.o.fetcherClientID(n), s.o.Pool, s.o.MaxFrame, fetchOverhead)
	if err != nil {
		s.doubt(broker) // it may live elsewhere now
		return nil, err
	}
	version, ok := l.version(int16(kmsg.Fetch), frame.MaxFetchVersion)
	if !ok || version < frame.MinFetchVersion {
		l.conn.Close()
		return nil, fmt.Errorf("broker %d (%s) has no version of Fetch from %d to %d; Apache Kafka 0.11 or newer is needed", broker, addr, frame.MinFetchVersion, frame.MaxFetchVersion)
	}
	if err := l.measure(ctx); err != nil {
		l.conn.Close()
		return nil, err
	}
	l.reader.Patience = s.o.RequestTimeout
	return &fetchConn{l: l, version: version, timeout: s.o.RequestTimeout}, nil
}

func (c *fetchConn) FetchVersion() int16 { return c.version }
func (c *fetchConn) RTT() time.Duration  { return c.l.rtt }
func (c *fetchConn) Close() error        { return c.l.conn.Close() }

func (c *fetchConn) Send(req *kmsg.FetchRequest) error {
	c.wait = time.Duration(req.MaxWaitMillis) * time.Millisecond
	c.flex = req.IsFlexible()
	c.l.reader.Expected = int(req.MaxBytes) + fetchOverhead
	c.l.reader.Eager = c.l.reader.Expected
	if err := c.l.conn.SetWriteDeadline(time.Now().Add(c.timeout)); err != nil {
		return err
	}
	return c.l.write(req)
}

func (c *fetchConn) Receive(ctx context.Context) (zerocopy.Lease, []byte, error) {
	undo := c.l.until(ctx, c.wait+c.timeout)
	defer undo()
	lease, body, err := c.l.read(ctx, c.flex)
	if err = contextError(ctx, err); errors.Is(err, os.ErrDeadlineExceeded) {
		return lease, nil, fmt.Errorf("%s: no whole answer to a fetch within %s: %w", c.l.addr, c.wait+c.timeout, err)
	} else if err != nil {
		return lease, nil, fmt.Errorf("%s: %w", c.l.addr, err)
	}
	return lease, body, nil
}
