package rawloop

import (
	"errors"
	"net"
	"os"
	"syscall"

	"stet/zerocopy"
)

// piece is what one sendfile call is asked for, as much as a Fetch of one partition returns.
const piece = 1 << 20

// Send writes the files to the connection one after the other by sendfile, and closes it.
func Send(conn *net.TCPConn, files []string) (sent int64, err error) {
	defer func() { err = errors.Join(err, conn.Close()) }()
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	for _, name := range files {
		n, err := sendFile(raw, name)
		sent += n
		if err != nil {
			return sent, err
		}
	}
	return sent, nil
}

func sendFile(raw syscall.RawConn, name string) (sent int64, err error) {
	f, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	for sent < st.Size() {
		n, err := zerocopy.Sendfile(raw, f, sent, int(min(piece, st.Size()-sent)))
		sent += int64(n)
		if err != nil {
			return sent, err
		}
	}
	return sent, nil
}
