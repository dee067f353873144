package source_test

import (
	"context"
	"net"
	"testing"
	"time"

	"stet/benchmarks/wan"
	"stet/fetcher/source"
	"stet/internal/testkit/scripted"
)

// TestRoundTripTimeIsOfBytes: behind a proxy that answers the handshake itself, the
// round trip that the fetch limits grow with is that of the whole way (G5).
func TestRoundTripTimeIsOfBytes(t *testing.T) {
	c := scripted.NewCluster(t, 1)
	p, err := wan.Start("127.0.0.1:0", c.Bootstrap(), wan.Line{Delay: 30 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var d net.Dialer
	s := source.New(source.Options{
		Mirror: "m", Bootstrap: []string{c.Bootstrap()}, RequestTimeout: time.Minute, DialTimeout: time.Minute,
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return d.DialContext(ctx, network, p.Addr())
		},
	})
	defer s.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := s.Connect(ctx, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if rtt := conn.RTT(); rtt < 60*time.Millisecond {
		t.Errorf("round trip time %s on a line of 60 ms", rtt)
	}
}
