package port

import (
	"net"
	"net/netip"
	"syscall"
	"testing"
)

// Hold returns an address of the loopback that the system gives to nobody until the test ends. Connecting to it is refused
// until somebody listens there by name, with SO_REUSEADDR as Go and Java do.
func Hold(t testing.TB) string {
	t.Helper()
	// A socket that is bound and never listens: the system leaves its port out when it chooses one, for a listener or for the
	// near end of a connection.
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		t.Fatal(err)
	}
	local := netip.MustParseAddr("127.0.0.1")
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: local.As4()}); err != nil {
		t.Fatal(err)
	}
	sa, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	at := sa.(*syscall.SockaddrInet4)
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(local, uint16(at.Port))).String()
}
