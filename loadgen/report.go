package loadgen

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
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
	// Left says in which state the mirror was left, where it is not as it was before, with the command that changes that.
	Left []string `json:"left,omitempty"`
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
