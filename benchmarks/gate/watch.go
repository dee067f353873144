package gate

import (
	"context"
	"io/fs"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"stet/internal/vfs"
)

// watch knows which memory holds bytes that came from a connection and have not been stored yet.
type watch struct {
	socketBytes atomic.Int64 // read from connections
	storedBytes atomic.Int64 // written to .log files
	strayBytes  atomic.Int64 // of these, from other memory than they were read into

	mu    sync.Mutex
	fresh []span // in order, apart
	spare []span // the list before, so that watching allocates nothing
}

// span is memory from lo up to hi.
type span struct{ lo, hi uintptr }

func spanOf(p []byte) span {
	if len(p) == 0 {
		return span{}
	}
	lo := uintptr(unsafe.Pointer(unsafe.SliceData(p)))
	return span{lo, lo + uintptr(len(p))}
}

// cut takes s out of the list and returns how many of its bytes were in it.
func (w *watch) cut(s span) (had uintptr) {
	keep := w.spare[:0]
	for _, f := range w.fresh {
		lo, hi := max(f.lo, s.lo), min(f.hi, s.hi)
		if lo >= hi {
			keep = append(keep, f)
			continue
		}
		had += hi - lo
		if f.lo < lo {
			keep = append(keep, span{f.lo, lo})
		}
		if hi < f.hi {
			keep = append(keep, span{hi, f.hi})
		}
	}
	w.fresh, w.spare = keep, w.fresh
	return had
}

func (w *watch) received(p []byte) {
	w.socketBytes.Add(int64(len(p)))
	s := spanOf(p)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut(s)
	at, _ := slices.BinarySearchFunc(w.fresh, s, func(a, b span) int {
		if a.lo < b.lo {
			return -1
		}
		return 1
	})
	if at > 0 && w.fresh[at-1].hi == s.lo {
		w.fresh[at-1].hi = s.hi
		return
	}
	w.fresh = slices.Insert(w.fresh, at, s)
}

func (w *watch) stored(p []byte) {
	w.storedBytes.Add(int64(len(p)))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.strayBytes.Add(int64(len(p)) - int64(w.cut(spanOf(p))))
}

// dial makes connections that are watched.
func (w *watch) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &conn{c, w}, nil
}

type conn struct {
	net.Conn
	w *watch
}

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.w.received(p[:n])
	return n, err
}

// fileSystem is the operating system's, watched.
type fileSystem struct {
	vfs.FS
	w *watch
}

func (f fileSystem) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	x, err := f.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &file{x, f.w, strings.HasSuffix(name, ".log")}, nil
}

type file struct {
	vfs.File
	w   *watch
	log bool
}

func (f *file) WriteAt(p []byte, off int64) (int, error) {
	if f.log {
		f.w.stored(p)
	}
	return f.File.WriteAt(p, off)
}

// WriteBack passes on what the file can do.
func (f *file) WriteBack(off, n int64) error {
	if b, ok := f.File.(vfs.WriteBacker); ok {
		return b.WriteBack(off, n)
	}
	return nil
}
