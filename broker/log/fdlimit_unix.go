//go:build unix

package log

import "syscall"

// openFilesLimit is half of what the process may open, which the Go runtime raises to the
// hard limit when it starts; connections and metadata need the other half.
func openFilesLimit() int {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return 512
	}
	return int(min(r.Cur/2, 1<<20))
}
