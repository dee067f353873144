package loadgen

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// Options are common to the scenarios (CLI.md, "Common").
type Options struct {
	Rate        Rate
	RecordSize  int
	BatchSize   int
	Linger      time.Duration
	Compression string
	Acks        int16
	Partitions  int
	Create      bool
	Producers   int
	Duration    time.Duration
	Warmup      time.Duration
	Seed        uint64
	CPU         map[string]int // NAME -> PID
	// InFlight are the unanswered requests of a connection; 0: 5 at a rate, any number (256 MiB together) without one.
	InFlight int
	// MaxSlip bounds how late the generator itself may be in a valid run; 0: MaxSlip.
	MaxSlip time.Duration
	// Acked is told of every acknowledged batch, in no order between partitions; it may be nil.
	Acked func(partition int32, baseOffset int64, records, bytes int, at time.Time)
	// Progress gets a line now and then; it may be nil.
	Progress io.Writer
	// Redraw overwrites the line, for a terminal.
	Redraw bool
}

// Rate is bytes or records per second; the zero value means as fast as acknowledgements come.
type Rate struct {
	PerSecond float64
	Bytes     bool
}

// Records is the rate in records of a size; 0: unlimited.
func (r Rate) Records(recordSize int) float64 {
	if r.Bytes {
		return r.PerSecond / float64(recordSize)
	}
	return r.PerSecond
}

// Bounds of a rate. Beyond them a schedule cannot be kept, or even computed.
const (
	maxRecordRate = 1e9
	minRecordRate = 1e-3
	maxByteRate   = 1e12
)

// ParseRate reads "20MB" (bytes per second) or "5000" (records per second).
func ParseRate(s string) (Rate, error) {
	text := strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(s), "/s"))
	if n, err := strconv.ParseFloat(text, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		if !(n > 0 && n <= maxRecordRate) { // NaN is neither
			return Rate{}, fmt.Errorf("%q is not above 0 and at most %.0f records per second", s, maxRecordRate)
		}
		return Rate{PerSecond: n}, nil
	}
	b, err := ParseSize(text)
	if err != nil {
		return Rate{}, fmt.Errorf("%q is neither records per second nor a size per second such as 20MB", s)
	}
	if b <= 0 || float64(b) > maxByteRate {
		return Rate{}, fmt.Errorf("%q is not above 0 and at most 1TB per second", s)
	}
	return Rate{PerSecond: float64(b), Bytes: true}, nil
}

var units = []struct {
	suffix string
	factor float64
}{
	{"KiB", 1 << 10},
	{"MiB", 1 << 20},
	{"GiB", 1 << 30},
	{"TiB", 1 << 40},
	{"kB", 1e3},
	{"KB", 1e3},
	{"MB", 1e6},
	{"GB", 1e9},
	{"TB", 1e12},
	{"B", 1},
}

// ParseSize reads bytes: "64MiB", "1GB", "16384".
func ParseSize(s string) (int64, error) {
	text, factor := strings.TrimSpace(s), 1.0
	for _, u := range units {
		if cut, ok := strings.CutSuffix(text, u.suffix); ok {
			text, factor = cut, u.factor
			break
		}
	}
	text = strings.TrimSpace(text)
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || strings.Trim(text, "0123456789.") != "" || n*factor > 1<<62 { // digits only: no NaN, no hexadecimals
		return 0, fmt.Errorf("%q is not a size such as 64MiB, 1GB or 16384", s)
	}
	return int64(n * factor), nil
}

// maxDuration bounds a run, so that no sum of times overflows.
const maxDuration = 30 * 24 * time.Hour

// Check refuses what makes no sense, naming the flag.
func (o *Options) Check() error {
	switch {
	case o.RecordSize < 1 || o.RecordSize > 64<<20:
		return fmt.Errorf("--record-size %d; allowed are 1 to 64MiB", o.RecordSize)
	case o.BatchSize < 1 || o.BatchSize > 64<<20:
		return fmt.Errorf("--batch-size %d; allowed are 1 to 64MiB", o.BatchSize)
	case o.Producers < 1 || o.Producers > 1000:
		return fmt.Errorf("--producers %d; allowed are 1 to 1000", o.Producers)
	case o.Duration <= 0 || o.Duration > maxDuration:
		return fmt.Errorf("--duration %s is not above 0 and at most %s", o.Duration, maxDuration)
	case o.Warmup < 0 || o.Warmup > maxDuration:
		return fmt.Errorf("--warmup %s; allowed are 0 to %s", o.Warmup, maxDuration)
	case o.InFlight < 0 || o.InFlight > 10000:
		return fmt.Errorf("--in-flight %d; allowed are 0 (5 at a rate, else as many as fit into 256 MiB) to 10000", o.InFlight)
	case o.MaxSlip < 0:
		return fmt.Errorf("--max-slip %s is negative", o.MaxSlip)
	case o.Linger < 0 || o.Linger > time.Hour:
		return fmt.Errorf("--linger %s; allowed are 0 to 1h", o.Linger)
	case o.Acks < -1 || o.Acks > 1:
		return fmt.Errorf("--acks %d; allowed are all, 1 and 0", o.Acks)
	case o.Create && (o.Partitions < 1 || o.Partitions > 1_000_000):
		return fmt.Errorf("--partitions %d; allowed are 1 to 1000000", o.Partitions)
	}
	if n := o.Rate.Records(o.RecordSize); o.Rate.PerSecond != 0 && !(n >= minRecordRate && n <= maxRecordRate) {
		return fmt.Errorf("--rate: %.3g records of %d bytes per second; allowed are %g to %.0f", n, o.RecordSize, minRecordRate, maxRecordRate)
	}
	_, err := newCodec(o.Compression)
	return err
}
