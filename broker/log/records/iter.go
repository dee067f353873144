package records

import (
	"errors"
	"fmt"
	"io"
	"math"
	"sync"

	"stet/zerocopy/batch"
)

// Header is one record header.
type Header struct {
	Key   string
	Value []byte // nil: null
}

// Record is one record of a batch.
type Record struct {
	Offset      int64
	OffsetDelta int32
	Timestamp   int64 // ms; the batch's max timestamp when it has LogAppendTime
	Sequence    int32 // -1 without a producer id
	KeySize     int   // -1: null
	ValueSize   int   // -1: null
	Key, Value  []byte
	Headers     []Header
	Body        []byte // with Raw: the record's bytes from the length of the key on
}

// Iter walks the records of one batch. Use it as
//
//	it := records.New(b, true)
//	defer it.Close()
//	for it.Next() { ... it.Record() ... }
//	err := it.Err()
type Iter struct {
	b     batch.Batch
	s     stream
	free  func()
	full  bool
	raw   bool
	index int32
	count int32
	rec   Record
	err   error
}

var iterPool = sync.Pool{New: func() any { return &Iter{s: stream{window: make([]byte, chunk)}} }}

// New starts at the first record of b. With full, key, value and headers are filled in and
// stay valid until the next call; without, they are skipped and only the sizes are known.
func New(b batch.Batch, full bool) *Iter {
	it := iterPool.Get().(*Iter)
	it.b, it.full, it.raw = b, full, false
	it.index, it.count = 0, b.NumRecords()
	it.err, it.free = nil, nil
	it.rec = Record{}
	it.s.buf, it.s.src, it.s.read = nil, nil, 0
	if codec := b.Compression(); codec == batch.None {
		it.s.buf = b.Records()
	} else if it.count > 0 {
		it.s.src, it.free, it.err = decompressor(codec, b.Records())
	}
	return it
}

// Raw is New for whoever writes records again: key and value are filled in, and Body, whose
// headers are passed over without being looked at.
func Raw(b batch.Batch) *Iter {
	it := New(b, true)
	it.raw = true
	return it
}

// Close gives buffers back. What Record returned is no longer valid.
func (it *Iter) Close() {
	if it.free != nil {
		it.free()
	}
	it.b, it.free, it.s.buf, it.s.src, it.rec = nil, nil, nil, nil, Record{}
	if cap(it.s.scratch) > 1<<20 {
		it.s.scratch = nil
	}
	iterPool.Put(it)
}

// Err is what ended the iteration, nil at the regular end.
func (it *Iter) Err() error { return it.err }

// Index is the position of the current record within the batch, or of the broken one.
func (it *Iter) Index() int32 { return max(it.index-1, 0) }

// Record is the current record.
func (it *Iter) Record() *Record { return &it.rec }

// Next goes to the next record. It returns false at the end and on an error. The end is
// regular only when the batch's count is reached and no byte is left.
func (it *Iter) Next() bool {
	if it.err != nil {
		return false
	}
	if it.index >= it.count {
		if err := it.s.fill(); err == nil {
			it.err = fmt.Errorf("data follows after %d records", it.count)
		} else if !errors.Is(err, io.EOF) {
			it.err = err
		}
		return false
	}
	it.index++
	if err := it.parse(); err != nil {
		it.err = fmt.Errorf("record %d: %w", it.index-1, err)
		return false
	}
	return true
}

func (it *Iter) parse() error {
	size, err := it.s.varint()
	if err != nil {
		return err
	}
	if size < 0 || size > math.MaxInt32 {
		return fmt.Errorf("length %d", size)
	}
	if it.full {
		// One gather per record, then the fields are cut out of it.
		body, err := it.s.gather(size)
		if err != nil {
			return err
		}
		sub := stream{buf: body}
		return it.fields(&sub, size)
	}
	return it.fields(&it.s, size)
}

func (it *Iter) fields(s *stream, size int64) error {
	end := s.read + size
	if _, err := s.byte(); err != nil { // attributes, unused
		return short(err)
	}
	ts, err := s.varint()
	if err != nil {
		return err
	}
	delta, err := s.varint()
	if err != nil {
		return err
	}
	if delta < math.MinInt32 || delta > math.MaxInt32 {
		return fmt.Errorf("offset delta %d", delta)
	}
	r := &it.rec
	r.OffsetDelta = int32(delta)
	r.Offset = it.b.BaseOffset() + delta
	r.Timestamp = it.b.FirstTimestamp() + ts
	if it.b.IsLogAppendTime() {
		r.Timestamp = it.b.MaxTimestamp()
	}
	r.Sequence = -1
	if base := it.b.BaseSequence(); base >= 0 {
		r.Sequence = int32((int64(base) + delta) & math.MaxInt32)
	}
	if it.raw {
		r.Body = s.buf
	}
	if r.Key, r.KeySize, err = it.field(s, end, "key"); err != nil {
		return err
	}
	if r.Value, r.ValueSize, err = it.field(s, end, "value"); err != nil {
		return err
	}
	if it.raw {
		return s.skip(end - s.read)
	}
	if err := it.headers(s, end); err != nil {
		return err
	}
	if s.read != end {
		return fmt.Errorf("length %d, but the fields take %d", size, size+s.read-end)
	}
	return nil
}

// field reads a nullable byte string of at most what is left of the record.
func (it *Iter) field(s *stream, end int64, what string) ([]byte, int, error) {
	n, err := s.varint()
	if err != nil {
		return nil, 0, err
	}
	if n < 0 {
		return nil, -1, nil
	}
	if n > end-s.read {
		return nil, 0, fmt.Errorf("%s of %d bytes is longer than the record", what, n)
	}
	if !it.full {
		return nil, int(n), s.skip(n)
	}
	b, err := s.gather(n)
	return b, int(n), err
}

func (it *Iter) headers(s *stream, end int64) error {
	n, err := s.varint()
	if err != nil {
		return err
	}
	if n < 0 || n > end-s.read {
		return fmt.Errorf("%d headers", n)
	}
	it.rec.Headers = it.rec.Headers[:0]
	for range n {
		key, size, err := it.field(s, end, "header key")
		if err != nil {
			return err
		}
		if size < 0 {
			return errors.New("header without a key")
		}
		value, _, err := it.field(s, end, "header value")
		if err != nil {
			return err
		}
		if it.full {
			it.rec.Headers = append(it.rec.Headers, Header{string(key), value})
		}
	}
	return nil
}
