package verify

import (
	"errors"
	"fmt"
	"io"

	"stet/zerocopy/batch"
)

// Stream gives the batches of one partition in order. Next ends with io.EOF; a
// batch is valid until the following call.
type Stream interface {
	Next() (batch.Batch, error)
}

// Partition is the outcome for one partition.
type Partition struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	// From and To bound the common offset range [From, To).
	From    int64 `json:"from"`
	To      int64 `json:"to"`
	Batches int64 `json:"batches"`
	Bytes   int64 `json:"bytes"`
	// Ranges that only one side has, empty when From == To.
	Source      Range       `json:"source"`
	Destination Range       `json:"destination"`
	Difference  *Difference `json:"difference,omitempty"`
	// Note says why a partition was not compared, or what only one side has.
	Notes []string `json:"notes,omitempty"`
}

// Range is [Start, End) of offsets.
type Range struct {
	Start int64 `json:"start"`
	End   int64 `json:"end"`
}

// Difference is the first place where the sides disagree.
type Difference struct {
	Offset int64  `json:"offset"` // base offset of the batch
	Byte   int    `json:"byte"`   // within the batch; -1: the batch is there on one side only
	Text   string `json:"text"`
}

// compare walks both streams over [p.From, p.To) and fills p.
func compare(p *Partition, src, dst Stream) error {
	s, d := bounded{src, p.From, p.To}, bounded{dst, p.From, p.To}
	for {
		a, errA := s.next()
		b, errB := d.next()
		if err := real(errA); err != nil {
			return fmt.Errorf("source: %w", err)
		}
		if err := real(errB); err != nil {
			return fmt.Errorf("destination: %w", err)
		}
		switch {
		case a == nil && b == nil:
			return nil
		case a == nil:
			p.differ(b.BaseOffset(), -1, "only the destination has this batch")
			return nil
		case b == nil:
			p.differ(a.BaseOffset(), -1, "only the source has this batch")
			return nil
		case a.BaseOffset() != b.BaseOffset():
			p.differ(min(a.BaseOffset(), b.BaseOffset()), 0, fmt.Sprintf("source has a batch at %d, destination at %d", a.BaseOffset(), b.BaseOffset()))
			return nil
		}
		if i := firstDifference(a, b); i >= 0 {
			at := func(x batch.Batch) string {
				if i < len(x) {
					return fmt.Sprintf("0x%02x", x[i])
				}
				return "nothing"
			}
			p.differ(a.BaseOffset(), i, fmt.Sprintf("source %s, destination %s", at(a), at(b)))
			return nil
		}
		p.Batches++
		p.Bytes += int64(len(a))
	}
}

func (p *Partition) differ(offset int64, at int, text string) {
	p.Difference = &Difference{Offset: offset, Byte: at, Text: text}
}

// String is the text after "different: ".
func (p *Partition) differenceText() string {
	d := p.Difference
	if d.Byte < 0 {
		return fmt.Sprintf("%s-%d offset %d: %s", p.Topic, p.Partition, d.Offset, d.Text)
	}
	return fmt.Sprintf("%s-%d offset %d byte %d of the batch: %s", p.Topic, p.Partition, d.Offset, d.Byte, d.Text)
}

func firstDifference(a, b []byte) int {
	n := min(len(a), len(b))
	for i := 0; i < n; i++ {
		if a[i] != b[i] {
			return i
		}
	}
	if len(a) != len(b) {
		return n
	}
	return -1
}

func real(err error) error {
	if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

// bounded skips batches that end before from and stops at to.
type bounded struct {
	s        Stream
	from, to int64
}

func (b *bounded) next() (batch.Batch, error) {
	for {
		x, err := b.s.Next()
		if err != nil {
			return nil, err
		}
		if x.LastOffset() < b.from {
			continue
		}
		if x.BaseOffset() >= b.to {
			return nil, io.EOF
		}
		return x, nil
	}
}

// Report is the outcome of a comparison.
type Report struct {
	Partitions []Partition `json:"partitions"`
	Equal      bool        `json:"equal"`
}

// Conclude is the last line that `stet verify` prints.
func (r *Report) Conclude() string {
	var batches, bytes int64
	for i := range r.Partitions {
		p := &r.Partitions[i]
		if p.Difference != nil {
			return "different: " + p.differenceText()
		}
		batches += p.Batches
		bytes += p.Bytes
	}
	return fmt.Sprintf("equal: %d partitions, %d batches, %d bytes", len(r.Partitions), batches, bytes)
}

func (r *Report) finish() *Report {
	r.Equal = true
	for i := range r.Partitions {
		p := &r.Partitions[i]
		r.Equal = r.Equal && p.Difference == nil
		note := func(side string, have, other Range) {
			if have.Start < other.Start {
				p.Notes = append(p.Notes, fmt.Sprintf("only the %s has %d to %d (older)", side, have.Start, min(have.End, other.Start)-1))
			}
			if have.End > other.End {
				p.Notes = append(p.Notes, fmt.Sprintf("only the %s has %d to %d (newer)", side, max(have.Start, other.End), have.End-1))
			}
		}
		note("source", p.Source, p.Destination)
		note("destination", p.Destination, p.Source)
		if end := min(p.Source.End, p.Destination.End); p.To < end && p.Difference == nil {
			p.Notes = append(p.Notes, fmt.Sprintf("mirrored up to %d; from there on each side has records of its own", p.To))
		}
	}
	return r
}
