package zerocopy

import (
	"net"

	"golang.org/x/sys/unix"
)

// Unpaced takes a connection within this machine (a tool, a proxy beside the broker) out of a congestion control that
// paces, as BBR does: there is no network to be gentle to, and BBR's timer after every 64 KiB was more than half of
// what sending a fetch costs. Connections to other machines keep what the system has. reno is in every
// kernel and open to everybody; a kernel that refuses keeps its own as well.
func Unpaced(c *net.TCPConn) {
	peer, ok1 := c.RemoteAddr().(*net.TCPAddr)
	own, ok2 := c.LocalAddr().(*net.TCPAddr)
	if !ok1 || !ok2 || !peer.IP.IsLoopback() && !peer.IP.Equal(own.IP) {
		return
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, "reno")
	})
}
