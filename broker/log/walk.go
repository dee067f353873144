package log

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sync"

	"stet/zerocopy/batch"
)

// walkWindow is how much a walker reads at a time.
const walkWindow = 256 << 10

var windowPool = sync.Pool{New: func() any { return new([walkWindow]byte) }}

// walker goes over the batches of a segment file from pos to limit. It allocates nothing
// that the file does not hold: a batch longer than the window is only read whole if it
// fits below limit.
type walker struct {
	f     io.ReaderAt
	pos   int64
	limit int64
	pool  *[walkWindow]byte
	buf   []byte
	at    int64 // file position of win
	win   []byte

	bad    []*CorruptBatchError // known ones, that are passed over
	strict bool                 // or returned
}

func newWalker(f io.ReaderAt, pos, limit int64) *walker {
	p := windowPool.Get().(*[walkWindow]byte)
	return &walker{f: f, pos: pos, limit: limit, pool: p, buf: p[:]}
}

// setWindow reads n bytes at a time; 0: walkWindow. It is called before the first read.
func (w *walker) setWindow(n int) {
	switch {
	case n == 0:
	case n <= walkWindow:
		w.buf = w.buf[:n]
	default:
		w.buf = make([]byte, n)
	}
}

func (w *walker) close() {
	if w.pool != nil {
		windowPool.Put(w.pool)
		w.pool, w.buf, w.win = nil, nil, nil
	}
}

// peek returns at least need bytes at pos.
func (w *walker) peek(need int64) ([]byte, error) {
	if w.pos+need > w.limit {
		return nil, batch.ErrIncomplete
	}
	if off := w.pos - w.at; off >= 0 && off+need <= int64(len(w.win)) {
		return w.win[off:], nil
	}
	if need > int64(len(w.buf)) {
		w.buf = make([]byte, need)
	}
	n := min(int64(len(w.buf)), w.limit-w.pos)
	got, err := w.f.ReadAt(w.buf[:n], w.pos)
	w.at, w.win = w.pos, w.buf[:got]
	if int64(got) < need {
		if err == nil || errors.Is(err, io.EOF) {
			return nil, batch.ErrIncomplete
		}
		return nil, err
	}
	return w.win, nil
}

// header returns the header of the batch at pos after checking its frame: size, magic and
// that it ends below limit. io.EOF means that pos is limit. The slice is valid until the next call.
func (w *walker) header() (batch.Batch, error) {
	if err := w.pass(); err != nil {
		return nil, err
	}
	p, err := w.peek(batch.HeaderSize)
	if err != nil {
		return nil, err
	}
	h := batch.Batch(p[:batch.HeaderSize])
	size := batch.SizeOf(h)
	if h.Magic() != 2 {
		return nil, fmt.Errorf("%w: position %d: magic %d", batch.ErrMagic, w.pos, h.Magic())
	}
	if size < batch.HeaderSize {
		return nil, fmt.Errorf("%w: position %d: size %d", batch.ErrCorrupt, w.pos, size)
	}
	if w.pos+size > w.limit {
		return nil, batch.ErrIncomplete
	}
	return h, nil
}

// whole returns the batch at pos with its records.
func (w *walker) whole() (batch.Batch, error) {
	h, err := w.header()
	if err != nil {
		return nil, err
	}
	size := batch.SizeOf(h)
	p, err := w.peek(size)
	if err != nil {
		return nil, err
	}
	return batch.Batch(p[:size:size]), nil
}

// forState returns what the producer state needs of the batch at pos: control batches
// whole, of others the header.
func (w *walker) forState() (batch.Batch, error) {
	h, err := w.header()
	if err != nil || !h.IsControl() {
		return h, err
	}
	return w.whole()
}

// legacy says that a message of format 0 or 1 lies at pos: its CRC32 agrees. It tells an
// old log, which must not be touched, from a torn write.
func (w *walker) legacy() bool {
	const overhead, crcAt, magicAt, minSize = 12, 12, 16, 26
	p, err := w.peek(minSize)
	if err != nil {
		return false
	}
	size := batch.SizeOf(p)
	if m := p[magicAt]; m > 1 || size < minSize || w.pos+size > w.limit {
		return false
	}
	if p, err = w.peek(size); err != nil {
		return false
	}
	return crc32.ChecksumIEEE(p[magicAt:size]) == be.Uint32(p[crcAt:])
}
