package records

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"stet/zerocopy/batch"
)

// ErrCodec says that the attributes name a codec that does not exist.
var ErrCodec = errors.New("unknown compression codec")

// A zstd frame may ask for a window of 128 MiB (level 22). Frames up to smallWindow, which
// are all that the levels to 19 make, use pooled decoders; of the larger ones only one is
// decoded at a time, so that claims in headers cannot add up.
const (
	smallWindow = 8 << 20
	largeWindow = 128 << 20
)

var (
	gzipPool = sync.Pool{New: func() any { return new(gzip.Reader) }}
	lz4Pool  = sync.Pool{New: func() any { return lz4.NewReader(nil) }}
	zstdPool = sync.Pool{New: func() any { return newZstd(smallWindow) }}

	largeZstd sync.Mutex
)

func newZstd(window uint64) *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(window))
	if err != nil {
		panic("BUG: zstd decoder options: " + err.Error())
	}
	return d
}

// decompressor returns a reader of the plain bytes of p and a function that gives its
// resources back.
func decompressor(codec int, p []byte) (io.Reader, func(), error) {
	switch codec {
	case batch.Gzip:
		r := gzipPool.Get().(*gzip.Reader)
		if err := r.Reset(bytes.NewReader(p)); err != nil {
			gzipPool.Put(r)
			return nil, nil, fmt.Errorf("gzip: %w", eofIsShort(err))
		}
		return r, func() { gzipPool.Put(r) }, nil
	case batch.Snappy:
		return &snappyReader{in: p}, func() {}, nil
	case batch.LZ4:
		r := lz4Pool.Get().(*lz4.Reader)
		r.Reset(bytes.NewReader(p))
		return r, func() { lz4Pool.Put(r) }, nil
	case batch.Zstd:
		return zstdReader(p)
	}
	return nil, nil, fmt.Errorf("%w: %d", ErrCodec, codec)
}

func zstdReader(p []byte) (io.Reader, func(), error) {
	var h zstd.Header
	if err := h.Decode(p); err != nil {
		return nil, nil, fmt.Errorf("zstd: %w", eofIsShort(err))
	}
	if h.WindowSize <= smallWindow {
		d := zstdPool.Get().(*zstd.Decoder)
		if err := d.Reset(bytes.NewReader(p)); err != nil {
			zstdPool.Put(d)
			return nil, nil, fmt.Errorf("zstd: %w", err)
		}
		return d, func() { _ = d.Reset(nil); zstdPool.Put(d) }, nil
	}
	largeZstd.Lock()
	d := newZstd(largeWindow)
	if err := d.Reset(bytes.NewReader(p)); err != nil {
		d.Close()
		largeZstd.Unlock()
		return nil, nil, fmt.Errorf("zstd: %w", err)
	}
	return d, func() { d.Close(); largeZstd.Unlock() }, nil
}

func eofIsShort(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// snappyReader decodes both forms that clients send: one raw block, or the framing of
// snappy-java ("xerial": a 16-byte header, then blocks preceded by their length).
type snappyReader struct {
	in      []byte
	out     []byte
	buf     []byte
	started bool
	framed  bool
}

var xerialMagic = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

const xerialHeader = 16

// maxSnappyRatio bounds what a block can expand to: the best element is a three-byte copy
// of 64 bytes.
const maxSnappyRatio = 22

func (r *snappyReader) Read(p []byte) (int, error) {
	if !r.started {
		r.started = true
		if bytes.HasPrefix(r.in, xerialMagic) {
			if len(r.in) < xerialHeader {
				return 0, io.ErrUnexpectedEOF
			}
			r.framed, r.in = true, r.in[xerialHeader:]
		}
	}
	for len(r.out) == 0 {
		if len(r.in) == 0 {
			return 0, io.EOF
		}
		if err := r.block(); err != nil {
			return 0, fmt.Errorf("snappy: %w", err)
		}
	}
	n := copy(p, r.out)
	r.out = r.out[n:]
	return n, nil
}

func (r *snappyReader) block() error {
	blk := r.in
	if r.framed {
		if len(r.in) < 4 {
			return io.ErrUnexpectedEOF
		}
		n := binary.BigEndian.Uint32(r.in)
		if uint64(n) > uint64(len(r.in)-4) {
			return io.ErrUnexpectedEOF
		}
		blk = r.in[4 : 4+n]
		r.in = r.in[4+n:]
	} else {
		r.in = nil
	}
	size, err := snappy.DecodedLen(blk)
	if err != nil {
		return err
	}
	if size > maxSnappyRatio*len(blk)+64 {
		return fmt.Errorf("a block of %d bytes claims to hold %d", len(blk), size)
	}
	if cap(r.buf) < size {
		r.buf = make([]byte, size)
	}
	r.out, err = snappy.Decode(r.buf[:cap(r.buf)], blk)
	return err
}
