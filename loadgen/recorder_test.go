package loadgen

import (
	"math"
	"sort"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestRecorderAgainstASortedList: quantiles, extremes and mean of any samples, negative
// ones included, to the histogram's three digits; too few samples give no figure.
func TestRecorderAgainstASortedList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		samples := rapid.SliceOfN(rapid.Int64Range(-5_000_000, 60_000_000), 1, 300).Draw(t, "µs")
		r := NewRecorder()
		var sum float64
		for _, us := range samples {
			r.Record(time.Duration(us)*time.Microsecond, 1)
			sum += float64(us)
		}
		sort.Slice(samples, func(i, j int) bool { return samples[i] < samples[j] })
		near := func(what string, got float64, want int64) {
			w := float64(want) / 1000
			if math.Abs(got-w) > math.Abs(w)*0.002+0.002 {
				t.Fatalf("%s: %f ms, want %f", what, got, w)
			}
		}
		for _, q := range []float64{.5, .9, .99, .999} {
			got, ok := r.Quantile(q)
			if want := float64(len(samples))*(1-q) >= 0.999999; ok != want {
				t.Fatalf("quantile %g of %d samples: ok %t", q, len(samples), ok)
			}
			if !ok {
				continue
			}
			rank := int(math.Ceil(q*float64(len(samples)))) - 1
			lo, hi := samples[max(rank-1, 0)], samples[min(rank+1, len(samples)-1)]
			if w := got * 1000; w < float64(lo)-math.Abs(float64(lo))*0.002-2 || w > float64(hi)+math.Abs(float64(hi))*0.002+2 {
				t.Fatalf("quantile %g: %f ms is not between %d and %d µs", q, got, lo, hi)
			}
		}
		s := r.Summary()
		near("min", *s.Min, samples[0])
		near("max", *s.Max, samples[len(samples)-1])
		if mean := sum / float64(len(samples)) / 1000; math.Abs(*s.Mean-mean) > 0.001+math.Abs(mean)*1e-9 {
			t.Fatalf("mean %f, want %f", *s.Mean, mean)
		}
		o := NewRecorder()
		o.Merge(r)
		if o.Count() != int64(len(samples)) {
			t.Fatalf("%d samples after a merge, want %d", o.Count(), len(samples))
		}
	})
}

func TestScheduleNeverSkipsAndNeverMoves(t *testing.T) {
	start := time.Unix(1000, 0)
	s := NewSchedule(start, 1000)
	for k := range int64(5000) {
		if want := start.Add(time.Duration(k) * time.Millisecond); !s.At(k).Equal(want) {
			t.Fatalf("record %d is due at %s, want %s", k, s.At(k), want)
		}
	}
	if n := s.Due(start.Add(-time.Second)); n != 0 {
		t.Errorf("%d due before the start", n)
	}
	// A stall of three seconds: all of its slots are due at once, none was dropped.
	if n := s.Due(start.Add(3 * time.Second)); n != 3001 {
		t.Errorf("%d due after a stall, want 3001", n)
	}
}

func TestParse(t *testing.T) {
	for in, want := range map[string]int64{"16384": 16384, "64MiB": 64 << 20, "1GB": 1e9, "4GiB": 4 << 30, "1.5kB": 1500} {
		if got, err := ParseSize(in); err != nil || got != want {
			t.Errorf("size %q: %d, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "x", "-1", "5 apples", "1e99"} {
		if _, err := ParseSize(in); err == nil {
			t.Errorf("size %q was taken", in)
		}
	}
	if r, err := ParseRate("20MB"); err != nil || !r.Bytes || r.Records(1000) != 20000 {
		t.Errorf("20MB: %+v, %v", r, err)
	}
	if r, err := ParseRate("5000"); err != nil || r.Bytes || r.Records(1000) != 5000 {
		t.Errorf("5000: %+v, %v", r, err)
	}
	for _, in := range []string{"0", "-5", "fast", "0MB", "NaN", "Inf", "1e300"} {
		if _, err := ParseRate(in); err == nil {
			t.Errorf("rate %q was taken", in)
		}
	}
}
