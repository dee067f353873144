package loadgen

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Schema is the name of the report format (CLI.md).
const Schema = "stet.loadgen/1"

// Report is the result of a scenario.
type Report struct {
	Schema     string             `json:"schema"`
	Scenario   string             `json:"scenario"`
	Command    string             `json:"command"`
	Version    string             `json:"version"`
	Started    time.Time          `json:"started"`
	Host       Host               `json:"host"`
	Parameters map[string]any     `json:"parameters"`
	Load       LoadResult         `json:"load"`
	Throughput Throughput         `json:"throughput"`
	Histograms map[string]Summary `json:"histograms"`
	Failover   *FailoverResult    `json:"failover,omitempty"`
	Throttle   []ThrottleResult   `json:"throttle,omitempty"`
	Checks     []Check            `json:"checks"`
	// NotValid says why the figures do not count; empty: they do.
	NotValid []string `json:"not_valid"`
	// Curves are the percentile curves of the histograms: [percentile, ms] pairs.
	Curves map[string][][2]float64 `json:"curves,omitempty"`
	// Series are values over the time of the run.
	Series map[string]*Series `json:"series,omitempty"`

	recorders map[string]*Recorder
}

// Host is the machine of the load generator.
type Host struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
}

// LoadResult is what was put on the target.
type LoadResult struct {
	Records        int64   `json:"records"`
	Bytes          int64   `json:"bytes"`
	TargetPerSec   float64 `json:"target_per_s"`   // records; 0: as fast as possible
	AchievedPerSec float64 `json:"achieved_per_s"` // records
	Errors         int64   `json:"errors"`
	SlipMs         float64 `json:"slip_ms"` // largest
}

// Throughput is of the measured time.
type Throughput struct {
	MBPerSec  float64            `json:"mb_per_s"`
	CPUPerGiB map[string]float64 `json:"cpu_s_per_gib"`
}

// FailoverResult sums up the rounds of a fail-over.
type FailoverResult struct {
	Rounds        int           `json:"rounds"`
	RecoveryPoint RecoveryPoint `json:"recovery_point"`
	Timeline      []Timeline    `json:"timeline,omitempty"`
}

// Timeline is one round of a fail-over: ms after the stop was sent, of the slowest partition.
type Timeline struct {
	StopAnsweredMs float64 `json:"stop_answered_ms"`
	FirstAckMs     float64 `json:"first_ack_ms"`
	FirstReadMs    float64 `json:"first_read_ms"`
}

// Series is a value over time.
type Series struct {
	Unit string    `json:"unit"`
	T    []float64 `json:"t"` // seconds since the start
	V    []float64 `json:"v"`
}

// RecoveryPoint is what was acknowledged at the source and is absent at the
// destination, over all rounds; Ms is the largest.
type RecoveryPoint struct {
	Records int64   `json:"records"`
	Bytes   int64   `json:"bytes"`
	Ms      float64 `json:"ms"`
}

// ThrottleResult is one step of a throttle scenario.
type ThrottleResult struct {
	Set      float64 `json:"set_bytes_per_s"`
	Achieved float64 `json:"achieved_bytes_per_s"`
	Error    float64 `json:"error_percent"`
	SettleMs float64 `json:"settle_ms"`
	Worst1s  float64 `json:"worst_1s_ratio"`
}

// Check is a verdict; one that is not ok makes the exit code 1.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	// Validity: one that is not ok makes the run not valid.
	Validity bool `json:"validity,omitempty"`
}

func newReport(scenario string, o Options) *Report {
	return &Report{
		Schema: Schema, Scenario: scenario, Started: time.Now().UTC(), Host: thisHost(),
		Parameters: map[string]any{
			"record_size": o.RecordSize, "batch_size": o.BatchSize, "linger_ms": o.Linger.Milliseconds(), "compression": o.Compression,
			"acks": o.Acks, "producers": o.Producers, "duration_s": o.Duration.Seconds(), "warmup_s": o.Warmup.Seconds(), "seed": o.Seed,
		},
		Throughput: Throughput{CPUPerGiB: map[string]float64{}},
		Histograms: map[string]Summary{}, Checks: []Check{}, NotValid: []string{}, recorders: map[string]*Recorder{},
		Curves: map[string][][2]float64{}, Series: map[string]*Series{},
	}
}

func (r *Report) add(name string, rec *Recorder) {
	r.recorders[name] = rec
	r.Histograms[name] = rec.Summary()
	if c := rec.curve(); len(c) > 0 {
		r.Curves[name] = c
	}
}

func (r *Report) check(name string, ok bool, format string, args ...any) {
	r.Checks = append(r.Checks, Check{Name: name, OK: ok, Detail: fmt.Sprintf(format, args...)})
}

// Recorder is the histogram behind one of Histograms, nil if there is none.
func (r *Report) Recorder(name string) *Recorder { return r.recorders[name] }

// OK says that the run is valid and every check is ok.
func (r *Report) OK() bool {
	if len(r.NotValid) > 0 {
		return false
	}
	for _, c := range r.Checks {
		if !c.OK {
			return false
		}
	}
	return true
}

// ReadReport reads what WriteJSON wrote.
func ReadReport(file string) (*Report, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r := &Report{}
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("%s is not a report: %w", file, err)
	}
	if r.Schema != Schema {
		return nil, fmt.Errorf("%s has schema %q, not %q", file, r.Schema, Schema)
	}
	return r, nil
}

// WriteJSON writes the report to a file.
func (r *Report) WriteJSON(file string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(b, '\n'), 0o644)
}

// WriteHDR writes the histograms as an HdrHistogram log (values in microseconds).
func (r *Report) WriteHDR(file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	w := hdrhistogram.NewHistogramLogWriter(f)
	if err := w.OutputLogFormatVersion(); err != nil {
		return err
	}
	if err := w.OutputStartTime(r.Started.UnixMilli()); err != nil {
		return err
	}
	if err := w.OutputLegend(); err != nil {
		return err
	}
	for name, rec := range r.recorders {
		h := rec.Positive()
		h.SetTag(name)
		h.SetStartTimeMs(r.Started.UnixMilli())
		h.SetEndTimeMs(time.Now().UnixMilli())
		if err := w.OutputIntervalHistogram(h); err != nil {
			return err
		}
	}
	return f.Close()
}

// WriteText prints the report for people.
func (r *Report) WriteText(w io.Writer) {
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
	names := []string{"response_ms", "service_ms", "slip_ms", "e2e_ms", "replication_lag_ms", "control_ms", "added_lag_ms", "stop_ms", "first_ack_ms", "first_read_ms", "write_gap_ms"}
	if len(r.Histograms) > 0 {
		fmt.Fprintf(w, "%-20s %10s %10s %10s %10s %10s %10s\n", "", "count", "p50", "p90", "p99", "p99.9", "max")
	}
	for _, n := range names {
		s, ok := r.Histograms[n]
		if !ok {
			continue
		}
		fmt.Fprintf(w, "%-20s %10d %10s %10s %10s %10s %10s\n", n, s.Count, ms(s.P50), ms(s.P90), ms(s.P99), ms(s.P999), ms(s.Max))
	}
	for name, v := range r.Throughput.CPUPerGiB {
		fmt.Fprintf(w, "cpu %s: %.2f s/GiB\n", name, v)
	}
	if f := r.Failover; f != nil {
		fmt.Fprintf(w, "recovery point: %d records, %d bytes, %.1f ms (%d rounds)\n", f.RecoveryPoint.Records, f.RecoveryPoint.Bytes, f.RecoveryPoint.Ms, f.Rounds)
	}
	for _, c := range r.Checks {
		word := "ok"
		if !c.OK {
			word = "NOT OK"
		}
		fmt.Fprintf(w, "check %s: %s (%s)\n", c.Name, word, c.Detail)
	}
}

func ms(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.2f", *v)
}

func thisHost() Host {
	h := Host{Cores: runtime.NumCPU(), Go: runtime.Version()}
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for _, line := range strings.Split(string(b), "\n") {
			if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
				h.CPU = strings.TrimSpace(v)
				break
			}
		}
	}
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		h.Kernel = strings.TrimSpace(string(b))
	}
	return h
}
