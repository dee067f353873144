package loadgen

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Bounds of a valid run. What lies beyond them is said instead of a number.
const (
	// MaxSlip is the default of Options.MaxSlip.
	MaxSlip = 100 * time.Millisecond
	// MinSamples is how many samples a run needs: fewer have no p99.
	MinSamples = 100
	// minRate is the share of the intended rate that must be reached.
	minRate = 0.99
	// maxOverrun is how much later than its end a run may be with that: the queue that it may end with.
	maxOverrun = time.Second
)

// evidence is what decides whether a run is valid. A field that does not apply is zero.
type evidence struct {
	errors         int64 // failed requests
	lastErr        string
	unsent         int64 // records that were due and not sent
	late           *Recorder
	maxSlip        time.Duration
	target         float64 // records per second; 0: none
	records        int64   // acknowledged
	duration, took time.Duration
	samplesOf      string // a histogram that must have samples, and their number
	samples        int64
	waiting        int    // acknowledged batches that did not come out
	waitingFor     string // empty: nothing is waited for
	cancelled      bool
	ended          error // what ended it early
}

// judge applies the rules. Every check says what was found and, where there is one, the bound.
func judge(e evidence) []Check {
	var out []Check
	rule := func(name string, ok bool, format string, args ...any) {
		out = append(out, Check{Name: name, OK: ok, Detail: fmt.Sprintf(format, args...), Validity: true})
	}
	switch {
	case e.cancelled && (e.ended == nil || errors.Is(e.ended, context.Canceled)):
		rule("ended", false, "early: interrupted")
	case e.ended != nil:
		rule("ended", false, "early: %v", e.ended)
	}
	if e.errors > 0 {
		rule("errors", false, "%d, the last: %s", e.errors, e.lastErr)
	} else {
		rule("errors", true, "none")
	}
	if e.unsent > 0 {
		rule("schedule", false, "%d records were due and not sent", e.unsent)
	}
	if e.target > 0 {
		if e.late != nil && e.late.Count() > 0 {
			worst, what := e.late.worst()
			rule("slip", worst <= e.maxSlip, "the generator itself was late by %s (%s), at most %s is valid; the rest of slip_ms waited for answers", worst, what, e.maxSlip)
		}
		// One record more or less is a matter of rounding.
		over, needed := max(0, e.took-e.duration), minRate*e.target
		allowed := max(maxOverrun, e.maxSlip) // who allows more slip knows that the machine is busy
		reached := func(in time.Duration) bool { return float64(e.records+1)/in.Seconds() >= needed }
		rule("rate", reached(e.took) || reached(e.duration) && over <= allowed,
			"%.0f records/s of %.0f intended, the last %s after the end; at least %.0f %%, or at most %s after the end, is valid",
			float64(e.records)/e.took.Seconds(), e.target, over.Round(time.Millisecond), 100*minRate, allowed)
	}
	if e.samplesOf != "" && e.samples < MinSamples {
		rule("samples", false, "%d of %s, at least %d are needed for a p99", e.samples, e.samplesOf, MinSamples)
	}
	if e.waitingFor != "" {
		rule("complete", e.waiting == 0, "%d acknowledged batches %s", e.waiting, e.waitingFor)
	}
	return out
}

// worst is the p99 of the samples, or the largest where a p99 cannot be told.
func (r *Recorder) worst() (time.Duration, string) {
	what := "p99"
	v, ok := r.Quantile(.99)
	if !ok {
		what = "largest"
		if s := r.Summary(); s.Max != nil {
			v = *s.Max
		}
	}
	return time.Duration(v * float64(time.Millisecond)).Round(100 * time.Microsecond), what
}

// judge adds the checks of a run's validity to the report.
func (r *Report) judge(e evidence) {
	for _, c := range judge(e) {
		r.Checks = append(r.Checks, c)
		if !c.OK {
			r.NotValid = append(r.NotValid, c.Name+": "+c.Detail)
		}
	}
}

// evidence is what a load knows of its validity.
func (l *load) evidence(ctx context.Context, ended error) evidence {
	e := evidence{
		errors: l.errors.Load(), unsent: l.unsent.Load(), late: l.late, maxSlip: l.o.MaxSlip, target: l.o.Rate.Records(l.o.RecordSize),
		records: l.records.Load(), duration: l.o.Duration, took: l.took(), cancelled: ctx.Err() != nil, ended: ended,
	}
	if e.maxSlip == 0 {
		e.maxSlip = MaxSlip
	}
	if s, ok := l.lastErr.Load().(string); ok {
		e.lastErr = s
	}
	return e
}
