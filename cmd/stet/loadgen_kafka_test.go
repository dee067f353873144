package main_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"stet/internal/testkit"
)

// kafkaReport is what TestLoadgenAgainstRealKafka looks at.
type kafkaReport struct {
	Scenario   string
	Load       struct{ Records, Bytes, Errors int64 }
	Throughput struct {
		MBPerSec float64            `json:"mb_per_s"`
		CPU      map[string]float64 `json:"cpu_s_per_gib"`
	}
	Histograms map[string]struct {
		Count int64
		P50   *float64
	}
	Failover *struct {
		Rounds        int
		RecoveryPoint struct{ Records int64 } `json:"recovery_point"`
		Timeline      []struct {
			FirstAckMs float64 `json:"first_ack_ms"`
		}
	}
	Throttle []struct {
		Set      float64 `json:"set_bytes_per_s"`
		Achieved float64 `json:"achieved_bytes_per_s"`
	}
	NotValid []string `json:"not_valid"`
	Series   map[string]struct{ T []float64 }
}

// TestLoadgenAgainstRealKafka runs the scenarios with real Kafka as source, and where no mirror is involved as target, and
// looks at the reports; then shows them side by side.
func TestLoadgenAgainstRealKafka(t *testing.T) {
	k := sharedKafka(t, testkit.Kafka43, 1)
	ctx := contextFor(t, 3*time.Minute)
	p := testkit.StartProcess(t, "", "mirror.metadata.refresh.interval.ms=500")
	createTopic(ctx, t, k.Bootstrap, "lg-mirrored", 2)
	mirror(t, p, "lg", k.Bootstrap, "lg-mirrored")
	waitFor(t, p, "lg", "lag-zero")
	dir := t.TempDir()
	var files []string
	run := func(scenario string, codes []int, args ...string) kafkaReport {
		t.Helper()
		file := filepath.Join(dir, scenario+".json")
		files = append(files, file)
		out, errs, code := testkit.Stet(t, append([]string{"loadgen", scenario, "--json", file}, args...)...)
		if !slices.Contains(codes, code) {
			t.Fatalf("loadgen %s: exit code %d\n%s%s", scenario, code, out, errs)
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var r kafkaReport
		if err := json.Unmarshal(b, &r); err != nil {
			t.Fatal(err)
		}
		if r.Scenario != scenario || len(r.NotValid) > 0 || r.Load.Errors != 0 || r.Load.Bytes == 0 {
			t.Fatalf("loadgen %s: %+v", scenario, r)
		}
		return r
	}
	has := func(r kafkaReport, count int64, histograms ...string) {
		t.Helper()
		for _, h := range histograms {
			if got := r.Histograms[h]; got.Count < count || got.P50 == nil {
				t.Errorf("%s: %d samples of %s, want %d", r.Scenario, got.Count, h, count)
			}
		}
	}
	slow := []string{"--rate", "1MB", "--duration", "1s", "--warmup", "0s", "--max-slip", "1m"}
	pair := []string{"--source", k.Bootstrap, "--destination", p.Addr}
	mirrored := append(slices.Clone(pair), "--mirror", "lg", "--topics", "lg-.*")

	target := []string{"--bootstrap-server", k.Bootstrap, "--topic", "lg-target", "--create", "--partitions", "2"}
	has(run("produce", []int{0}, slices.Concat(target, slow, []string{"--compression", "zstd", "--acks", "1"})...), 900, "response_ms", "service_ms", "slip_ms")
	has(run("e2e", []int{0}, slices.Concat(target, slow)...), 900, "e2e_ms")
	if r := run("consume", []int{0}, target[:4]...); r.Load.Records < 1900 {
		t.Errorf("consume: %d records", r.Load.Records)
	}
	has(run("lag", []int{0}, slices.Concat(pair, []string{"--topic", "lg-mirrored"}, slow)...), 900, "replication_lag_ms", "control_ms", "added_lag_ms")
	if r := run("catchup", []int{0}, append(mirrored, "--fill", "32MiB")...); r.Load.Bytes < 32<<20 || r.Throughput.MBPerSec <= 0 {
		t.Errorf("catchup: %+v", r.Load)
	}
	// Three seconds are too few for the tolerance of two per cent, which a check of the report holds: its verdict is not asked for here.
	r := run("throttle", []int{0, 1}, append(mirrored, "--rates", "4MB,8MB", "--each", "3s", "--fill", "128MiB")...)
	if len(r.Throttle) != 2 || len(r.Series["copied"].T) == 0 {
		t.Errorf("throttle: %+v", r)
	}
	for _, s := range r.Throttle {
		if s.Achieved > 1.3*s.Set || s.Achieved <= 0 {
			t.Errorf("throttle: %.0f bytes/s of %.0f", s.Achieved, s.Set)
		}
	}
	waitFor(t, p, "lg", "lag-zero")
	r = run("failover", []int{0}, slices.Concat(mirrored, slow, []string{"--rounds", "2"})...)
	has(r, 4, "first_ack_ms", "first_read_ms")
	if r.Failover == nil || r.Failover.Rounds != 2 || len(r.Failover.Timeline) != 2 || r.Failover.Timeline[0].FirstAckMs <= 0 {
		t.Errorf("failover: %+v", r.Failover)
	}
	if _, errs, code := testkit.Stet(t, append([]string{"loadgen", "failback"}, mirrored...)...); code != 1 || !strings.Contains(errs, "failback needs a source that mirrors") {
		t.Errorf("failback: exit code %d, %s", code, errs)
	}

	page := filepath.Join(dir, "all.html")
	out := testkit.MustStet(t, append([]string{"loadgen", "report", "--html", page}, files...)...)
	contains(t, "report", out, "run 0: "+files[0], "produce: ", "throttle 8.0 MB/s: ", "recovery point: ")
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	contains(t, "page", string(b), "loadgen failover", "worst second", "added_lag_ms")
}
