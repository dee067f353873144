package main_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"stet/internal/testkit"
)

// reportSchema is the report of CLI.md: every object with all of its keys; "?" marks those that a scenario may lack.
var reportSchema = map[string]string{
	"":             "schema scenario command version started host parameters load throughput histograms checks",
	"host":         "cpu cores kernel go",
	"load":         "records bytes target_per_s achieved_per_s errors slip_ms",
	"throughput":   "mb_per_s cpu_s_per_gib",
	"failover":     "rounds recovery_point",
	"histogram":    "unit count min p50 p90 p99 p999 max mean",
	"check":        "name ok detail",
	"recovery":     "records bytes ms",
	"histograms":   "response_ms? service_ms? slip_ms? e2e_ms? replication_lag_ms? control_ms? added_lag_ms? stop_ms? first_ack_ms? first_read_ms? write_gap_ms?",
	"cpu_of_named": "stet",
}

// hasKeys checks the keys of an object.
func hasKeys(t *testing.T, where, schema string, v any) map[string]any {
	t.Helper()
	m, ok := v.(map[string]any)
	if !ok {
		t.Fatalf("%s is a %T", where, v)
	}
	var known []string
	for _, k := range strings.Fields(reportSchema[schema]) {
		name, optional := strings.CutSuffix(k, "?")
		known = append(known, name)
		if _, ok := m[name]; !ok && !optional {
			t.Errorf("%s lacks %s", where, name)
		}
	}
	for k := range m { // what helps may be added, but not new histograms
		if schema == "histograms" && !slices.Contains(known, k) {
			t.Errorf("%s has %s, which CLI.md does not know", where, k)
		}
	}
	return m
}

// TestLoadgenReports runs the scenarios as a user does and holds each report against CLI.md.
func TestLoadgenReports(t *testing.T) {
	ctx := contextFor(t, 2*time.Minute)
	src := testkit.StartProcess(t, "")
	p := testkit.StartProcess(t, "", "mirror.metadata.refresh.interval.ms=500")
	createTopic(ctx, t, src.Addr, "load", 2)
	mirror(t, p, "m", src.Addr, "load")
	waitFor(t, p, "m", "lag-zero")
	common := []string{"--rate", "500", "--record-size", "200", "--duration", "1s", "--warmup", "0s", "--max-slip", "1m"} // tests share the machine
	pair := []string{"--source", src.Addr, "--destination", p.Addr}
	for _, c := range []struct {
		scenario   string
		args       []string
		histograms string
	}{
		{"produce", slices.Concat([]string{"--bootstrap-server", src.Addr, "--topic", "load", "--cpu", "stet=" + strconv.Itoa(src.Pid)}, common), "response_ms service_ms slip_ms"},
		{"consume", []string{"--bootstrap-server", src.Addr, "--topic", "load", "--duration", "10s"}, ""},
		{"lag", slices.Concat(pair, []string{"--topic", "load"}, common), "replication_lag_ms control_ms added_lag_ms"},
		{"failover", slices.Concat(pair, []string{"--mirror", "m", "--topics", "load", "--rounds", "2"}, common), "stop_ms first_ack_ms first_read_ms"},
	} {
		t.Run(c.scenario, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "report.json")
			args := append([]string{"loadgen", c.scenario, "--json", file}, c.args...)
			testkit.MustStet(t, args...)
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var v any
			if err := json.Unmarshal(text, &v); err != nil {
				t.Fatal(err)
			}
			r := hasKeys(t, "the report", "", v)
			if r["schema"] != "stet.loadgen/1" || r["scenario"] != c.scenario || !strings.Contains(r["command"].(string), "loadgen "+c.scenario) {
				t.Errorf("schema %v, scenario %v, command %v", r["schema"], r["scenario"], r["command"])
			}
			if _, err := time.Parse(time.RFC3339, r["started"].(string)); err != nil {
				t.Error(err)
			}
			hasKeys(t, "host", "host", r["host"])
			if load := hasKeys(t, "load", "load", r["load"]); load["records"].(float64) <= 0 || load["errors"].(float64) != 0 {
				t.Errorf("load %v", load)
			}
			through := hasKeys(t, "throughput", "throughput", r["throughput"])
			if c.scenario == "produce" {
				hasKeys(t, "cpu_s_per_gib", "cpu_of_named", through["cpu_s_per_gib"])
			}
			hs := hasKeys(t, "histograms", "histograms", r["histograms"])
			for _, name := range strings.Fields(c.histograms) {
				h := hasKeys(t, name, "histogram", hs[name])
				if h["unit"] != "ms" || h["count"].(float64) == 0 {
					t.Errorf("%s: %v", name, h)
				}
				if n := h["count"].(float64); n < 1000 && h["p999"] != nil {
					t.Errorf("%s: p999 of %.0f samples is %v, want null", name, n, h["p999"])
				}
			}
			for _, ch := range r["checks"].([]any) {
				if ch := hasKeys(t, "check", "check", ch); ch["ok"] != true {
					t.Errorf("exit code 0 with %v", ch)
				}
			}
			if c.scenario == "failover" {
				f := hasKeys(t, "failover", "failover", r["failover"])
				hasKeys(t, "recovery_point", "recovery", f["recovery_point"])
			} else if r["failover"] != nil {
				t.Errorf("a %s with failover %v", c.scenario, r["failover"])
			}
		})
	}
}
