package metrics

import (
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.uber.org/atomic"
)

// Emit reports one value during a scrape; labels in the order of the declaration.
type Emit func(d *Desc, value float64, labels ...string)

// Registry collects the values of a process. The zero value is not usable.
type Registry struct {
	prom *prometheus.Registry // histograms, runtime and process

	mu      sync.Mutex
	sources []func(Emit)
}

// New returns an empty registry.
func New() *Registry {
	r := &Registry{prom: prometheus.NewRegistry()}
	r.prom.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// Source adds a function that is asked at each scrape.
func (r *Registry) Source(f func(Emit)) {
	r.mu.Lock()
	r.sources = append(r.sources, f)
	r.mu.Unlock()
}

// durations are buckets from a tenth of a millisecond to a minute.
var durations = []float64{.0001, .0002, .0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 20, 60}

// Durations makes the histogram of a declared *_duration_seconds metric. Call it once per metric.
func (r *Registry) Durations(d *Desc) *Timings {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: d.Name, Help: d.Help, Buckets: durations}, d.Labels)
	r.prom.MustRegister(v)
	return &Timings{v}
}

// Totals makes the counter of a declared *_total metric that is counted as it happens.
func (r *Registry) Totals(d *Desc) *Totals {
	t := &Totals{d: d, values: map[string]*total{}}
	r.Source(t.emit)
	return t
}

// Totals is a counter with labels.
type Totals struct {
	d      *Desc
	mu     sync.Mutex
	values map[string]*total
}

type total struct {
	labels []string
	value  atomic.Float64
}

// Add counts v, which must not be negative.
func (t *Totals) Add(v float64, labels ...string) {
	key := strings.Join(labels, "\x00")
	t.mu.Lock()
	x := t.values[key]
	if x == nil {
		x = &total{labels: labels}
		t.values[key] = x
	}
	t.mu.Unlock()
	x.value.Add(v)
}

func (t *Totals) emit(emit Emit) {
	t.mu.Lock()
	all := make([]*total, 0, len(t.values))
	for _, x := range t.values {
		all = append(all, x)
	}
	t.mu.Unlock()
	for _, x := range all {
		emit(t.d, x.value.Load(), x.labels...)
	}
}

// Timings is a histogram of durations with labels.
type Timings struct{ v *prometheus.HistogramVec }

// Observe records one duration.
func (t *Timings) Observe(d time.Duration, labels ...string) {
	t.v.WithLabelValues(labels...).Observe(d.Seconds())
}

// Forget drops the series of labels, for example of a deleted mirror.
func (t *Timings) Forget(labels ...string) { t.v.DeleteLabelValues(labels...) }
