package loadgen

import (
	"sync"
	"time"
)

// sampleInterval is the distance of two points of a series.
const sampleInterval = 250 * time.Millisecond

// sample adds a series to the report, one value of f per interval, until the
// returned function is called. f gets the time since it was last asked.
func (r *Report) sample(name, unit string, f func(since time.Duration) float64) (stop func()) {
	s := &Series{Unit: unit, T: []float64{}, V: []float64{}}
	r.Series[name] = s
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Add(1)
	start := time.Now()
	go func() {
		defer wg.Done()
		t := time.NewTicker(sampleInterval)
		defer t.Stop()
		last := start
		for {
			select {
			case now := <-t.C:
				s.T = append(s.T, now.Sub(start).Seconds())
				s.V = append(s.V, f(now.Sub(last)))
				last = now
			case <-done:
				return
			}
		}
	}()
	return func() { close(done); wg.Wait() }
}

// rate turns a growing count of bytes into MB/s between two samples.
func rate(count func() int64) func(time.Duration) float64 {
	var last int64
	return func(since time.Duration) float64 {
		now := count()
		v := float64(now-last) / 1e6 / since.Seconds()
		last = now
		return v
	}
}
