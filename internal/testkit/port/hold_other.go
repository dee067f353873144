//go:build !linux

package port

import (
	"net"
	"testing"
)

// Hold returns an address of the loopback that was free just now.
func Hold(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
