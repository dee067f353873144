package loadgen

import (
	"bytes"
	"fmt"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"stet/zerocopy/batch"
)

// Codec compresses the records of a batch.
type Codec struct {
	id   int16
	name string
	pack func(dst *bytes.Buffer, src []byte) error
}

// Codecs by their Kafka names.
func newCodec(name string) (*Codec, error) {
	switch name {
	case "", "none":
		return &Codec{id: batch.None, name: "none"}, nil
	case "gzip":
		w := gzip.NewWriter(nil)
		return &Codec{batch.Gzip, name, func(dst *bytes.Buffer, src []byte) error {
			w.Reset(dst)
			if _, err := w.Write(src); err != nil {
				return err
			}
			return w.Close()
		}}, nil
	case "snappy":
		return &Codec{batch.Snappy, name, func(dst *bytes.Buffer, src []byte) error {
			dst.Write(s2.EncodeSnappy(nil, src))
			return nil
		}}, nil
	case "lz4":
		w := lz4.NewWriter(nil)
		return &Codec{batch.LZ4, name, func(dst *bytes.Buffer, src []byte) error {
			w.Reset(dst)
			if _, err := w.Write(src); err != nil {
				return err
			}
			return w.Close()
		}}, nil
	case "zstd":
		w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
		if err != nil {
			return nil, err
		}
		return &Codec{batch.Zstd, name, func(dst *bytes.Buffer, src []byte) error {
			dst.Write(w.EncodeAll(src, nil))
			return nil
		}}, nil
	}
	return nil, fmt.Errorf("--compression %q; allowed are none, gzip, snappy, lz4 and zstd", name)
}
