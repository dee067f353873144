package loadgen

import (
	"encoding/json"
	"math"
	"reflect"
	"sort"
	"strings"
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

// TestMergedIsNeverAveraged: recorders merged are the recorder of all samples together, to every figure; the mean of
// their percentiles is something else.
func TestMergedIsNeverAveraged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole, merged := NewRecorder(), NewRecorder()
		for range rapid.IntRange(1, 5).Draw(t, "recorders") {
			part := NewRecorder()
			for _, us := range rapid.SliceOfN(rapid.Int64Range(-50_000, 5_000_000), 0, 50).Draw(t, "µs") {
				n := rapid.Int64Range(1, 3).Draw(t, "n")
				part.Record(time.Duration(us)*time.Microsecond, n)
				whole.Record(time.Duration(us)*time.Microsecond, n)
			}
			merged.Merge(part)
		}
		if got, want := merged.Summary(), whole.Summary(); math.Abs(number(got.Mean)-number(want.Mean)) > 1e-6 {
			t.Fatalf("mean %f, want %f", number(got.Mean), number(want.Mean))
		} else if got.Mean, want.Mean = nil, nil; !reflect.DeepEqual(got, want) {
			t.Fatalf("merged %+v, together %+v", got, want)
		}
		if got, want := merged.curve(), whole.curve(); !reflect.DeepEqual(got, want) {
			t.Fatalf("merged %v, together %v", got, want)
		}
	})
	// A quick one of many samples, a slow one of few.
	quick, slow, both := samplesOf(9900, time.Millisecond), samplesOf(100, time.Second), NewRecorder()
	both.Merge(quick)
	both.Merge(slow)
	a, _ := quick.Quantile(.5)
	b, _ := slow.Quantile(.5)
	p50, _ := both.Quantile(.5)
	if math.Abs(p50-1) > 0.01 || math.Abs((a+b)/2-500) > 1 {
		t.Errorf("p50 of both %f ms; the mean of theirs is %f ms", p50, (a+b)/2)
	}
}

func number(v *float64) float64 {
	if v == nil {
		return 0
	}
	return *v
}

// TestSkewedClocks: a destination whose clock is behind, and one in front, give negative and positive lags; all of them
// count, and text, report and log show how many were negative.
func TestSkewedClocks(t *testing.T) {
	for _, c := range []struct {
		skew     time.Duration // of the destination's clock
		negative int64
		p50, min float64
	}{
		{0, 0, 4, 4}, {-3 * time.Millisecond, 0, 1, 1}, {-10 * time.Millisecond, 500, -6, -6}, {time.Hour, 0, 3600004, 3600004}, {-time.Hour, 500, -3599996, -3599996},
	} {
		track := newLagTracker()
		start := time.Unix(1_700_000_000, 0) // wall clocks: no monotonic reading hides the skew
		track.from = start
		for i := range 500 {
			at := start.Add(time.Duration(i) * time.Millisecond)
			key := lagKey{0, int64(i)}
			track.acked(0, int64(i), 1, at)
			track.note(key, 0, func(e *lagEntry) { e.source = at.Add(time.Millisecond) })
			track.note(key, 0, func(e *lagEntry) { e.destination = at.Add(4 * time.Millisecond).Add(c.skew) })
		}
		r := newReport("lag", Options{})
		r.add("replication_lag_ms", track.replication)
		h := r.Histograms["replication_lag_ms"]
		near := func(got *float64, want float64) bool {
			return got != nil && math.Abs(*got-want) <= math.Abs(want)*0.002
		}
		if h.Count != 500 || h.Negative != c.negative || !near(h.P50, c.p50) || !near(h.Min, c.min) || !near(h.Mean, c.p50) {
			t.Errorf("skew %s: %d samples, %d negative, p50 %f, min %f, mean %f", c.skew, h.Count, h.Negative, *h.P50, *h.Min, *h.Mean)
		}
		var text strings.Builder
		r.judge(evidence{})
		r.WriteText(&text)
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		shown := strings.Contains(text.String(), "  500 negative\n") && strings.Contains(text.String(), "\nnegative: seen before")
		if kept := strings.Contains(string(b), `"negative":500`); shown != (c.negative > 0) || kept != shown {
			t.Errorf("skew %s: %s\n%s", c.skew, text.String(), b)
		}
	}
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
	for in, want := range map[string]Rate{
		" 5": {PerSecond: 5}, "5 ": {PerSecond: 5}, "\t5000\n": {PerSecond: 5000}, "5/s": {PerSecond: 5}, " 1e3": {PerSecond: 1000},
		" 5MB": {PerSecond: 5e6, Bytes: true}, "5MB ": {PerSecond: 5e6, Bytes: true}, "5 MB/s ": {PerSecond: 5e6, Bytes: true}, " 5B": {PerSecond: 5, Bytes: true},
	} {
		if got, err := ParseRate(in); err != nil || got != want {
			t.Errorf("ParseRate(%q) = %+v, %v, want %+v", in, got, err, want)
		}
	}
	if n, err := ParseSize(" 64MiB "); err != nil || n != 64<<20 {
		t.Errorf("%d, %v", n, err)
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
