package loadgen

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Recorder is a histogram of durations with three digits. HdrHistogram refuses
// negative values, and clock skew between machines makes some: they are kept in a
// second histogram of their absolute values and count in every figure.
// It is safe for concurrent use.
type Recorder struct {
	mu       sync.Mutex
	pos, neg *hdrhistogram.Histogram
	sum      float64 // µs
}

const (
	maxMicros = int64(2 * time.Hour / time.Microsecond)
	digits    = 3
)

// NewRecorder returns an empty recorder.
func NewRecorder() *Recorder {
	return &Recorder{pos: hdrhistogram.New(1, maxMicros, digits), neg: hdrhistogram.New(1, maxMicros, digits)}
}

// Record adds n samples of d.
func (r *Recorder) Record(d time.Duration, n int64) {
	us := d.Microseconds()
	r.mu.Lock()
	r.record(us, n)
	r.mu.Unlock()
}

func (r *Recorder) record(us, n int64) {
	h, v := r.pos, us
	if us < 0 {
		h, v = r.neg, -us
	}
	_ = h.RecordValues(min(v, maxMicros), n)
	r.sum += float64(us) * float64(n)
}

// RecordSpaced adds n samples that begin at d and grow by step: the records of a
// batch that were intended step apart and ended together.
func (r *Recorder) RecordSpaced(d, step time.Duration, n int) {
	r.mu.Lock()
	if step == 0 {
		r.record(d.Microseconds(), int64(n))
		n = 0
	}
	for range n {
		r.record(d.Microseconds(), 1)
		d += step
	}
	r.mu.Unlock()
}

// Merge adds all samples of o.
func (r *Recorder) Merge(o *Recorder) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pos.Merge(o.pos)
	r.neg.Merge(o.neg)
	r.sum += o.sum
}

// Count is the number of samples.
func (r *Recorder) Count() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pos.TotalCount() + r.neg.TotalCount()
}

// Quantile is the q-th (0..1) value in milliseconds; ok is false with too few
// samples to tell: at least one must lie above it.
func (r *Recorder) Quantile(q float64) (ms float64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.quantile(q)
}

func (r *Recorder) quantile(q float64) (float64, bool) {
	n, negs := r.pos.TotalCount(), r.neg.TotalCount()
	total := n + negs
	if float64(total)*(1-q) < 0.999999 {
		return 0, false
	}
	rank := q * float64(total)
	if rank <= float64(negs) && negs > 0 { // the lowest values have the largest absolute ones
		return -float64(r.neg.ValueAtQuantile(100*(1-rank/float64(negs)))) / 1000, true
	}
	if n == 0 {
		return 0, true
	}
	return float64(r.pos.ValueAtQuantile(100*(rank-float64(negs))/float64(n))) / 1000, true
}

// Summary is one histogram of a report.
type Summary struct {
	Unit     string   `json:"unit"`
	Count    int64    `json:"count"`
	Negative int64    `json:"negative,omitempty"`
	Min      *float64 `json:"min"`
	P50      *float64 `json:"p50"`
	P90      *float64 `json:"p90"`
	P99      *float64 `json:"p99"`
	P999     *float64 `json:"p999"`
	Max      *float64 `json:"max"`
	Mean     *float64 `json:"mean"`
}

// Summary returns the figures in milliseconds; a percentile with too few samples is nil.
func (r *Recorder) Summary() Summary {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := Summary{Unit: "ms", Count: r.pos.TotalCount() + r.neg.TotalCount(), Negative: r.neg.TotalCount()}
	if s.Count == 0 {
		return s
	}
	set := func(p **float64, v float64) { *p = &v }
	at := func(p **float64, q float64) {
		if v, ok := r.quantile(q); ok {
			set(p, v)
		}
	}
	at(&s.P50, .5)
	at(&s.P90, .9)
	at(&s.P99, .99)
	at(&s.P999, .999)
	lo, hi := float64(r.pos.Min())/1000, float64(r.pos.Max())/1000
	if s.Negative > 0 {
		lo = -float64(r.neg.Max()) / 1000
		if s.Negative == s.Count {
			hi = -float64(r.neg.Min()) / 1000
		}
	}
	set(&s.Min, lo)
	set(&s.Max, hi)
	set(&s.Mean, r.sum/float64(s.Count)/1000)
	return s
}

// curve is the distribution as [percentile, ms] pairs, no further into the tail than the samples reach.
func (r *Recorder) curve() [][2]float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out [][2]float64
	for _, q := range []float64{0, .1, .25, .5, .75, .9, .95, .98, .99, .995, .998, .999, .9995, .9998, .9999, .99995, .99999} {
		v, ok := r.quantile(q)
		if !ok {
			break
		}
		out = append(out, [2]float64{100 * q, v})
	}
	return out
}

// Positive is the histogram of the samples that are not negative, for an HdrHistogram log.
func (r *Recorder) Positive() *hdrhistogram.Histogram {
	r.mu.Lock()
	defer r.mu.Unlock()
	return hdrhistogram.Import(r.pos.Export())
}

// Negative is the histogram of the absolute values of the negative samples.
func (r *Recorder) Negative() *hdrhistogram.Histogram {
	r.mu.Lock()
	defer r.mu.Unlock()
	return hdrhistogram.Import(r.neg.Export())
}
