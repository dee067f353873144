//go:build !linux

package zerocopy

import "net"

// Unpaced does nothing on this operating system.
func Unpaced(*net.TCPConn) {}
