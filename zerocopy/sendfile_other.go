//go:build !linux

package zerocopy

import (
	"errors"
	"os"
	"syscall"
)

// HaveSendfile says whether this build can send file ranges without copying them.
const HaveSendfile = false

// Sendfile is not available on this operating system; Writer reads into its buffer instead.
func Sendfile(syscall.RawConn, *os.File, int64, int) (int, error) { return 0, errors.ErrUnsupported }

type direct struct{}

func newDirect(syscall.RawConn, func()) *direct { return nil }

func (*direct) sendfile(*os.File, int64, int) (int, error) { return 0, errors.ErrUnsupported }

func (*direct) send([]byte, []byte, bool) error { return errors.ErrUnsupported }
