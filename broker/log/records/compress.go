package records

import (
	"encoding/binary"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"stet/zerocopy/batch"
)

// Pools of encoders at the level that Kafka's brokers use when they are not told any.
var (
	gzipWriters = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}
	lz4Writers  = sync.Pool{New: func() any {
		w := lz4.NewWriter(nil)
		// Blocks must be independent of each other, or Kafka's Java clients refuse them.
		if err := w.Apply(lz4.BlockSizeOption(lz4.Block64Kb), lz4.ChecksumOption(false)); err != nil {
			panic("BUG: lz4 options: " + err.Error())
		}
		return w
	}}
	zstdWriters = sync.Pool{New: func() any {
		w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true))
		if err != nil {
			panic("BUG: zstd options: " + err.Error())
		}
		return w
	}}
)

// sink collects what a compressor writes.
type sink struct{ b []byte }

func (s *sink) Write(p []byte) (int, error) {
	s.b = append(s.b, p...)
	return len(p), nil
}

// Compress appends p to dst as the records of a batch with the codec.
func Compress(dst []byte, codec int, p []byte) ([]byte, error) {
	out := &sink{dst}
	switch codec {
	case batch.None:
		return append(dst, p...), nil
	case batch.Snappy:
		return appendSnappy(dst, p), nil
	case batch.Gzip:
		w := gzipWriters.Get().(*gzip.Writer)
		defer gzipWriters.Put(w)
		w.Reset(out)
		return finish(out, w, p)
	case batch.LZ4:
		w := lz4Writers.Get().(*lz4.Writer)
		defer lz4Writers.Put(w)
		w.Reset(out)
		return finish(out, w, p)
	case batch.Zstd:
		w := zstdWriters.Get().(*zstd.Encoder)
		defer zstdWriters.Put(w)
		w.Reset(out)
		return finish(out, w, p)
	}
	return dst, fmt.Errorf("%w: %d", ErrCodec, codec)
}

func finish(out *sink, w io.WriteCloser, p []byte) ([]byte, error) {
	if _, err := w.Write(p); err != nil {
		return out.b, err
	}
	err := w.Close()
	return out.b, err
}

// snappyBlock is how much Kafka's Java clients put into one block.
const snappyBlock = 32 << 10

// appendSnappy writes the framing of snappy-java, which every client reads: the magic, two
// versions, then blocks preceded by their length.
func appendSnappy(dst, p []byte) []byte {
	dst = append(dst, xerialMagic...)
	dst = binary.BigEndian.AppendUint32(dst, 1)
	dst = binary.BigEndian.AppendUint32(dst, 1)
	for len(p) > 0 {
		n := min(len(p), snappyBlock)
		block := snappy.Encode(nil, p[:n])
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(block)))
		dst = append(dst, block...)
		p = p[n:]
	}
	return dst
}
