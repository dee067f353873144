package log

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"stet/internal/vfs"
)

// handles keeps the number of open segment files below a limit: files are opened when they
// are used, and the ones that were not used for longest, roughly, are closed again.
type handles struct {
	fs     vfs.FS
	max    int
	logger *slog.Logger

	mu   sync.Mutex
	open []*handle
	hand int // where the search for one to close goes on
}

func newHandles(fsys vfs.FS, limit int, logger *slog.Logger) *handles {
	return &handles{fs: fsys, max: max(limit, 16), logger: logger}
}

// handle is a segment file that may be closed while nobody uses it. It implements vfs.File;
// its name must stay that of the file while it is not kept.
type handle struct {
	c    *handles
	mu   sync.RWMutex // held for reading while f is used, for writing while it is opened or closed
	name string
	flag int
	f    vfs.File // nil: closed
	kept bool     // stays open until Close: its name is not its own any more
	gone bool     // Close was called
	at   int      // place in handles.open, while f is open; guarded by handles.mu
	pins atomic.Int32
	used atomic.Bool
}

func (c *handles) file(name string) *handle { return &handle{c: c, name: name, flag: os.O_RDWR} }

// create makes a new, empty file and leaves it open.
func (c *handles) create(name string) (*handle, error) {
	h := c.file(name)
	h.flag |= os.O_CREATE | os.O_TRUNC
	h.mu.Lock()
	err := h.openLocked()
	h.flag = os.O_RDWR
	h.mu.Unlock()
	return h, err
}

// use opens the file if need be and holds it. The caller calls h.mu.RUnlock unless there is an error.
func (h *handle) use() (vfs.File, error) {
	h.mu.RLock()
	for h.f == nil {
		h.mu.RUnlock()
		h.mu.Lock()
		err := h.openLocked()
		h.mu.Unlock()
		if err != nil {
			return nil, err
		}
		h.mu.RLock()
	}
	if !h.used.Load() {
		h.used.Store(true)
	}
	return h.f, nil
}

func (h *handle) openLocked() error {
	if h.f != nil {
		return nil
	}
	if h.gone {
		return &fs.PathError{Op: "open", Path: h.name, Err: fs.ErrClosed}
	}
	h.c.makeRoom(1)
	f, err := h.c.fs.OpenFile(h.name, h.flag, 0o644)
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		h.c.makeRoom(h.c.max/4 + 1)
		f, err = h.c.fs.OpenFile(h.name, h.flag, 0o644)
	}
	if err != nil {
		return err
	}
	h.f = f
	h.used.Store(true)
	h.c.mu.Lock()
	h.at = len(h.c.open)
	h.c.open = append(h.c.open, h)
	h.c.mu.Unlock()
	return nil
}

// makeRoom closes files until n more may be opened. Those that are in use are passed over: the
// limit is one of the files that nobody needs.
func (c *handles) makeRoom(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for tries := 2 * len(c.open); len(c.open)+n > c.max && tries > 0 && len(c.open) > 0; tries-- {
		if c.hand >= len(c.open) {
			c.hand = 0
		}
		h := c.open[c.hand]
		if h.used.Swap(false) || !h.mu.TryLock() {
			c.hand++
			continue
		}
		if h.kept || h.pins.Load() > 0 || h.f == nil {
			h.mu.Unlock()
			c.hand++
			continue
		}
		_ = h.f.Close() // nothing is buffered in it; what the disk could not write the next sync tells
		h.f = nil
		c.removeLocked(c.hand)
		h.mu.Unlock()
	}
}

func (c *handles) removeLocked(i int) {
	last := len(c.open) - 1
	c.open[i] = c.open[last]
	c.open[i].at = i
	c.open[last] = nil
	c.open = c.open[:last]
}

// pin keeps the file open until unpin, and returns it.
func (h *handle) pin() (vfs.File, error) {
	f, err := h.use()
	if err != nil {
		return nil, err
	}
	h.pins.Add(1)
	h.mu.RUnlock()
	return f, nil
}

func (h *handle) unpin() { h.pins.Add(-1) }

// keep opens the file for good: it is about to lose its name.
func (h *handle) keep() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kept = true
	return h.openLocked()
}

// renamed is the end of keep for a file that got a name of its own.
func (h *handle) renamed(name string) {
	h.mu.Lock()
	h.name, h.kept = name, false
	h.mu.Unlock()
}

func (h *handle) ReadAt(p []byte, off int64) (int, error) {
	f, err := h.use()
	if err != nil {
		return 0, err
	}
	defer h.mu.RUnlock()
	return f.ReadAt(p, off)
}

func (h *handle) WriteAt(p []byte, off int64) (int, error) {
	f, err := h.use()
	if err != nil {
		return 0, err
	}
	defer h.mu.RUnlock()
	return f.WriteAt(p, off)
}

// Close implements io.Closer: the file is not opened again.
func (h *handle) Close() error {
	h.mu.Lock()
	f := h.f
	h.f, h.gone = nil, true
	h.mu.Unlock()
	if f == nil {
		return nil
	}
	h.c.mu.Lock()
	h.c.removeLocked(h.at)
	h.c.mu.Unlock()
	return f.Close()
}

func (h *handle) Name() string {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.name
}

func (h *handle) Truncate(size int64) error {
	f, err := h.use()
	if err != nil {
		return err
	}
	defer h.mu.RUnlock()
	return f.Truncate(size)
}

func (h *handle) Stat() (fs.FileInfo, error) {
	f, err := h.use()
	if err != nil {
		return nil, err
	}
	defer h.mu.RUnlock()
	return f.Stat()
}

func (h *handle) Sync() error {
	f, err := h.use()
	if err != nil {
		return err
	}
	defer h.mu.RUnlock()
	return f.Sync()
}

// OSFile implements vfs.File; who needs it pins the handle and takes that file's.
func (h *handle) OSFile() *os.File { return nil }

// preallocate reserves blocks where the file system can.
func (h *handle) preallocate(size int64) error {
	f, err := h.use()
	if err != nil {
		return err
	}
	defer h.mu.RUnlock()
	if p, ok := f.(vfs.Preallocator); ok {
		if err := p.Preallocate(size); !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
	}
	return nil
}

// WriteBack implements vfs.WriteBacker.
func (h *handle) WriteBack(off, n int64) error {
	f, err := h.use()
	if err != nil {
		return err
	}
	defer h.mu.RUnlock()
	if w, ok := f.(vfs.WriteBacker); ok {
		return w.WriteBack(off, n)
	}
	return nil
}
