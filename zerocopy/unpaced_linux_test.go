package zerocopy

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// TestUnpaced: a connection within the machine is not paced, whatever the system's congestion control is.
func TestUnpaced(t *testing.T) {
	_, server := loopback(t)
	tcp := server.(*net.TCPConn)
	Unpaced(tcp)
	raw, err := tcp.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var name string
	var serr error
	if err := raw.Control(func(fd uintptr) { name, serr = unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION) }); err != nil || serr != nil {
		t.Fatal(err, serr)
	}
	if name != "reno" {
		t.Errorf("congestion control %q", name)
	}
}
