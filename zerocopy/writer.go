package zerocopy

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
)

// SendfileFrom is the size in bytes from which a file range goes out by sendfile. Below it one
// system call per range costs more than a copy into the buffer (ARCHITECTURE, "The way of a byte").
const SendfileFrom = 32 << 10

// stageSize is the size of a Writer's buffer. Memory pieces from directFrom up bypass it.
const (
	stageSize  = 128 << 10
	directFrom = 16 << 10
)

// Counters count bytes exactly. One value may be shared by all writers of a process.
type Counters struct {
	// SendfileBytes went from file to socket inside the kernel.
	SendfileBytes atomic.Int64
	// CopiedBytes are file bytes that were read into memory before they were sent.
	CopiedBytes atomic.Int64
	// MemoryBytes were in memory already (headers, small fields).
	MemoryBytes atomic.Int64
	// ShortFiles counts responses that broke off because a file shrank under them.
	ShortFiles atomic.Int64
}

// Range is a part of a file to send. Reader is used where sendfile is not possible or not worth
// it, File (may be nil) where it is; both take positions of the whole file.
type Range struct {
	File   *os.File
	Reader io.ReaderAt
	Pos    int64
	Len    int
}

// Writer sends responses that consist of memory pieces and file ranges. Pieces are queued by
// Bytes and Range and sent by Flush; what they refer to must stay unchanged until Flush
// returns. Ranges of SendfileFrom bytes and more are sent by sendfile on a plain TCP
// connection of a Linux build, everything else is read into a buffer that the
// Writer owns. After an error of Flush part of the response may be out: the connection must be closed.
type Writer struct {
	// Blocked, if set, is called before Flush waits for the peer to take bytes, once per system call that did
	// not get rid of all: the place to set a write deadline, which costs more than a small response otherwise.
	Blocked func()

	conn     net.Conn
	direct   *direct // nil: no direct system calls on this connection
	counters *Counters
	pieces   []piece
	queued   int
	stage    []byte
}

type piece struct {
	mem []byte
	rng Range
}

// NewWriter returns a writer for conn. counters may be nil.
func NewWriter(conn net.Conn, counters *Counters) *Writer {
	if counters == nil {
		counters = &Counters{}
	}
	w := &Writer{conn: conn, counters: counters}
	// Only the plain type: a wrapper (TLS, a test's fault injector) must see every byte.
	if tcp, ok := conn.(*net.TCPConn); ok && HaveSendfile {
		if raw, err := tcp.SyscallConn(); err == nil {
			w.direct = newDirect(raw, func() { w.blocked() })
		}
	}
	return w
}

func (w *Writer) blocked() {
	if w.Blocked != nil {
		w.Blocked()
	}
}

// Bytes queues p, which is sent as it is at Flush.
func (w *Writer) Bytes(p []byte) {
	if len(p) > 0 {
		w.pieces = append(w.pieces, piece{mem: p})
		w.queued += len(p)
	}
}

// Range queues a part of a file.
func (w *Writer) Range(r Range) {
	if r.Len > 0 {
		w.pieces = append(w.pieces, piece{rng: r})
		w.queued += r.Len
	}
}

// Queued is the number of bytes that Flush will send.
func (w *Writer) Queued() int { return w.queued }

// Reset forgets what is queued.
func (w *Writer) Reset() {
	clear(w.pieces)
	w.pieces = w.pieces[:0]
	w.queued = 0
}

// Flush sends everything that is queued and forgets it.
func (w *Writer) Flush() error {
	defer w.Reset()
	if len(w.pieces) == 1 && w.pieces[0].mem != nil { // a usual response: nothing to gather
		p := w.pieces[0].mem
		w.counters.MemoryBytes.Add(int64(len(p)))
		return w.drain(p, false)
	}
	if w.stage == nil {
		w.stage = make([]byte, 0, stageSize)
	}
	w.stage = w.stage[:0]
	for i := range w.pieces {
		last := i == len(w.pieces)-1
		p := &w.pieces[i]
		var err error
		switch {
		case p.mem != nil:
			err = w.memory(p.mem, last)
		case w.direct != nil && p.rng.File != nil && p.rng.Len >= SendfileFrom:
			err = w.file(p.rng)
		default:
			err = w.copyRange(p.rng)
		}
		if err != nil {
			return err
		}
	}
	return w.drain(nil, false)
}

// Release gives the writer's buffer to the garbage collector, for a connection that idles.
func (w *Writer) Release() { w.stage = nil }

func (w *Writer) memory(p []byte, last bool) error {
	w.counters.MemoryBytes.Add(int64(len(p)))
	if len(p) >= directFrom {
		return w.drain(p, !last)
	}
	if len(w.stage)+len(p) > cap(w.stage) {
		if err := w.drain(nil, true); err != nil {
			return err
		}
	}
	w.stage = append(w.stage, p...)
	return nil
}

func (w *Writer) file(r Range) error {
	if err := w.drain(nil, true); err != nil {
		return err
	}
	n, err := w.direct.sendfile(r.File, r.Pos, r.Len)
	w.counters.SendfileBytes.Add(int64(n))
	if errors.Is(err, io.ErrUnexpectedEOF) {
		w.counters.ShortFiles.Add(1)
	}
	return err
}

func (w *Writer) copyRange(r Range) error {
	if r.Reader == nil {
		if r.File == nil {
			panic("BUG: a file range without a file")
		}
		r.Reader = r.File
	}
	for r.Len > 0 {
		room := cap(w.stage) - len(w.stage)
		if room == 0 {
			if err := w.drain(nil, true); err != nil {
				return err
			}
			continue
		}
		n := min(room, r.Len)
		at := len(w.stage)
		w.stage = w.stage[:at+n]
		m, err := r.Reader.ReadAt(w.stage[at:], r.Pos)
		if m < n {
			w.stage = w.stage[:at]
			if err == nil || errors.Is(err, io.EOF) {
				w.counters.ShortFiles.Add(1)
				err = fmt.Errorf("file ends %d bytes before the end of the response: %w", r.Len-m, io.ErrUnexpectedEOF)
			}
			return err
		}
		w.counters.CopiedBytes.Add(int64(n))
		r.Pos += int64(n)
		r.Len -= n
	}
	return nil
}

// drain sends the stage and then p.
func (w *Writer) drain(p []byte, more bool) error {
	if len(w.stage)+len(p) == 0 {
		return nil
	}
	stage := w.stage
	w.stage = w.stage[:0]
	if w.direct != nil {
		return w.direct.send(stage, p, more)
	}
	w.blocked()
	for _, b := range [][]byte{stage, p} {
		if len(b) > 0 {
			if _, err := w.conn.Write(b); err != nil {
				return err
			}
		}
	}
	return nil
}
