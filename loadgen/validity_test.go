package loadgen

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// samplesOf is a recorder with n samples of d.
func samplesOf(n int64, d time.Duration) *Recorder {
	r := NewRecorder()
	if n > 0 {
		r.Record(d, n)
	}
	return r
}

// TestValidity holds the rules on both sides of every bound: which run is valid, and what the others are told.
func TestValidity(t *testing.T) {
	good := func() evidence {
		return evidence{
			late: samplesOf(1000, time.Millisecond), maxSlip: 100 * time.Millisecond, target: 1000, records: 10000, duration: 10 * time.Second, took: 10 * time.Second,
			samplesOf: "response_ms", samples: 10000, waitingFor: "were not read back",
		}
	}
	for _, c := range []struct {
		name   string
		change func(*evidence)
		want   []string // of NotValid; none: valid
	}{
		{"nothing wrong", func(*evidence) {}, nil},
		{"one error", func(e *evidence) { e.errors, e.lastErr = 1, "NOT_LEADER" }, []string{"errors: 1, the last: NOT_LEADER"}},
		{"slip at the bound", func(e *evidence) { e.late = samplesOf(1000, 100*time.Millisecond) }, nil},
		{"slip beyond it", func(e *evidence) { e.late = samplesOf(1000, 101*time.Millisecond) }, []string{"slip: the generator itself was late by 101", "(p99), at most 100ms is valid"}},
		{"a hundredth beyond it", func(e *evidence) { e.late.Record(time.Second, 9) }, nil},
		{"more than a hundredth beyond it", func(e *evidence) { e.late.Record(time.Second, 12) }, []string{"slip: "}},
		{"few samples of slip", func(e *evidence) { e.late = samplesOf(50, 200*time.Millisecond) }, []string{"(largest)"}},
		{"slip without a rate", func(e *evidence) { e.late, e.target = samplesOf(1000, time.Second), 0 }, nil},
		{"99 % of the rate", func(e *evidence) { e.records = 9900 }, nil},
		{"less", func(e *evidence) { e.records = 9880 }, []string{"rate: 988 records/s of 1000 intended", "at least 99 %"}},
		{"more", func(e *evidence) { e.records = 10001 }, nil},
		{"all, a second late", func(e *evidence) { e.took += time.Second }, nil},
		{"all, later than that", func(e *evidence) { e.took += 1100 * time.Millisecond }, []string{"the last 1.1s after the end"}},
		{"later, where more slip is allowed", func(e *evidence) { e.took, e.maxSlip = e.took+1100*time.Millisecond, time.Minute }, nil},
		{"late, but 99 % of the rate all the same", func(e *evidence) { e.duration, e.took, e.records = 1000*time.Second, 1005*time.Second, 1e6 }, nil},
		{"no rate", func(e *evidence) { e.target, e.records = 0, 1 }, nil},
		{"a record short of a slow rate", func(e *evidence) { e.target, e.records = 1, 9 }, nil},
		{"100 samples", func(e *evidence) { e.samples = 100 }, nil},
		{"99 samples", func(e *evidence) { e.samples = 99 }, []string{"samples: 99 of response_ms, at least 100 are needed for a p99"}},
		{"no samples needed", func(e *evidence) { e.samplesOf, e.samples = "", 0 }, nil},
		{"a batch is missing", func(e *evidence) { e.waiting = 3 }, []string{"complete: 3 acknowledged batches were not read back"}},
		{"records not sent", func(e *evidence) { e.unsent = 7 }, []string{"schedule: 7 records were due and not sent"}},
		{"interrupted", func(e *evidence) { e.cancelled = true }, []string{"ended: early: interrupted"}},
		{"lost", func(e *evidence) { e.ended, e.cancelled = errors.New("the leader was lost"), true }, []string{"ended: early: the leader was lost"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := good()
			c.change(&e)
			r := newReport("produce", Options{})
			r.Load.Records, r.Throughput.MBPerSec = 4711, 333.3
			r.add("response_ms", samplesOf(4711, 5*time.Millisecond))
			r.judge(e)
			all := strings.Join(r.NotValid, "; ")
			if (all == "") != (len(c.want) == 0) || r.OK() != (len(c.want) == 0) {
				t.Fatalf("not valid: %q, ok %t", all, r.OK())
			}
			for _, w := range c.want {
				if !strings.Contains(all, w) {
					t.Errorf("%q lacks %q", all, w)
				}
			}
			var text strings.Builder
			r.WriteText(&text)
			figures := strings.Contains(text.String(), "333.3") && strings.Contains(text.String(), "5.0")
			if valid := len(c.want) == 0; figures != valid || strings.Contains(text.String(), "NOT VALID") == valid {
				t.Errorf("valid %t, and the text is:\n%s", valid, text.String())
			}
		})
	}
}

// TestTooFewSamplesGiveNoPercentile: a dash instead of a number, and what it means.
func TestTooFewSamplesGiveNoPercentile(t *testing.T) {
	r := newReport("failover", Options{})
	r.add("stop_ms", samplesOf(9, 5*time.Millisecond))
	r.judge(evidence{})
	var text strings.Builder
	r.WriteText(&text)
	want := "stop_ms                       9       5.00       5.00          -          -          -       5.00\n-: too few samples"
	if !strings.Contains(text.String(), want) {
		t.Errorf("the text is:\n%s", text.String())
	}
}

// dead is a server that takes everything and answers nothing, for good.
func dead(c net.Conn) {
	buf := make([]byte, 1<<16)
	for {
		if _, err := c.Read(buf); err != nil {
			return
		}
	}
}

// TestATargetThatStopsAnswering: the run ends a bounded time after its end, or after it was cancelled, and says so.
func TestATargetThatStopsAnswering(t *testing.T) {
	for _, cancelled := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			o := Options{Rate: Rate{PerSecond: 100}, RecordSize: 100, BatchSize: 1, Acks: -1, Producers: 2, Duration: time.Minute, Seed: 1}
			l, err := newLoad(&layout{topic: "t", leaders: []string{"here"}}, o)
			if err != nil {
				t.Fatal(err)
			}
			l.dial = func(string) (*conn, error) {
				ours, theirs := net.Pipe()
				go dead(theirs)
				return newConn(ours), nil
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			start, most := time.Now(), time.Minute+latePatience+time.Second
			if cancelled {
				time.AfterFunc(10*time.Second, cancel)
				most = 10*time.Second + cancelPatience + time.Second
			}
			err = l.run(ctx)
			if took := time.Since(start); took > most {
				t.Errorf("it took %s, want at most %s", took, most)
			}
			if (err == nil) != cancelled {
				t.Errorf("cancelled %t: %v", cancelled, err)
			}
			// Five requests of one record each are under way per producer, the rest of what was due never went.
			if n := l.errors.Load(); n < 10 || n > 12 || l.records.Load() != 0 {
				t.Errorf("%d requests without an answer, %d records acknowledged", n, l.records.Load())
			}
			if !cancelled && l.unsent.Load() < 5900 {
				t.Errorf("%d records count as not sent", l.unsent.Load())
			}
		})
	}
}
