package loadgen

import (
	"fmt"
	"io"
	"maps"
	"slices"
)

// histogramNames is the order of the histograms in a text (CLI.md).
var histogramNames = []string{
	"response_ms", "service_ms", "slip_ms", "e2e_ms", "replication_lag_ms", "control_ms", "added_lag_ms", "stop_ms", "first_ack_ms", "first_read_ms", "write_gap_ms",
}

// WriteText prints the report for people. Of a run that is not valid it says why instead of printing figures.
func (r *Report) WriteText(w io.Writer) {
	if len(r.NotValid) > 0 {
		fmt.Fprintf(w, "%s: NOT VALID, so no figures\n", r.Scenario)
		for _, why := range r.NotValid {
			fmt.Fprintf(w, "  %s\n", why)
		}
		fmt.Fprintf(w, "until then %d records, %.1f MB, %d errors; --json, --html and --hdr keep what was measured\n", r.Load.Records, float64(r.Load.Bytes)/1e6, r.Load.Errors)
	} else {
		r.writeFigures(w)
	}
	for _, c := range r.Checks {
		word := "ok"
		if !c.OK {
			word = "NOT OK"
		}
		fmt.Fprintf(w, "check %s: %s (%s)\n", c.Name, word, c.Detail)
	}
}

func (r *Report) writeFigures(w io.Writer) {
	fmt.Fprintf(w, "%s: %.1f MB", r.Scenario, float64(r.Load.Bytes)/1e6)
	if r.Load.Records > 0 {
		fmt.Fprintf(w, " in %d records", r.Load.Records)
	}
	if r.Throughput.MBPerSec > 0 {
		fmt.Fprintf(w, ", %.1f MB/s", r.Throughput.MBPerSec)
	}
	if r.Load.AchievedPerSec > 0 {
		fmt.Fprintf(w, ", %.0f records/s", r.Load.AchievedPerSec)
	}
	if r.Load.TargetPerSec > 0 {
		fmt.Fprintf(w, " of %.0f intended", r.Load.TargetPerSec)
	}
	fmt.Fprintf(w, ", %d errors\n", r.Load.Errors)
	if len(r.Histograms) > 0 {
		fmt.Fprintf(w, "%-20s %10s %10s %10s %10s %10s %10s %10s\n", "", "count", "min", "p50", "p90", "p99", "p99.9", "max")
	}
	refused, negative := false, false
	for _, n := range histogramNames {
		s, ok := r.Histograms[n]
		if !ok {
			continue
		}
		refused = refused || s.P50 == nil || s.P90 == nil || s.P99 == nil || s.P999 == nil
		fmt.Fprintf(w, "%-20s %10d %10s %10s %10s %10s %10s %10s", n, s.Count, ms(s.Min), ms(s.P50), ms(s.P90), ms(s.P99), ms(s.P999), ms(s.Max))
		if s.Negative > 0 {
			fmt.Fprintf(w, "  %d negative", s.Negative)
			negative = true
		}
		fmt.Fprintln(w)
	}
	if refused {
		fmt.Fprintln(w, "-: too few samples for that percentile")
	}
	if negative {
		fmt.Fprintln(w, "negative: seen before what it is measured from was seen (two readers of one machine, two clocks); counted in every figure")
	}
	for _, name := range slices.Sorted(maps.Keys(r.Throughput.CPUPerGiB)) {
		fmt.Fprintf(w, "cpu %s: %.2f s/GiB\n", name, r.Throughput.CPUPerGiB[name])
	}
	for _, t := range r.Throttle {
		fmt.Fprintf(w, "throttle %.1f MB/s: %.1f MB/s copied (%+.2f %%), settled after %s, worst second %.2f times the rate\n", t.Set/1e6, t.Achieved/1e6, t.Error, settled(t.SettleMs), t.Worst1s)
	}
	if f := r.Failover; f != nil {
		fmt.Fprintf(w, "recovery point: %d records, %d bytes, %.1f ms (%d rounds)\n", f.RecoveryPoint.Records, f.RecoveryPoint.Bytes, f.RecoveryPoint.Ms, f.Rounds)
	}
}

func settled(v float64) string {
	if v < 0 {
		return "never"
	}
	return fmt.Sprintf("%.0f ms", v)
}

func ms(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.2f", *v)
}
