package port_test

import (
	"errors"
	"net"
	"syscall"
	"testing"

	"stet/internal/testkit/port"
)

// TestHold: an address is refused, listened on by name, connected to, and free again, any number of times; and the system gives it to nobody else.
func TestHold(t *testing.T) {
	addr := port.Hold(t)
	for range 3 {
		if c, err := net.Dial("tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatal(c, err)
		}
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(l.Close(), c.Close()); err != nil {
			t.Fatal(err)
		}
	}
	var all []net.Listener
	for range 500 { // it was tried with all there are
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
		if l.Addr().String() == addr {
			t.Error("the port is given to somebody else")
			break
		}
	}
	for _, l := range all {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
