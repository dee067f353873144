package loadgen_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"stet/internal/testkit"
	"stet/loadgen"
)

func options() loadgen.Options {
	return loadgen.Options{
		Rate: loadgen.Rate{PerSecond: 2000}, RecordSize: 100, BatchSize: 4096, Linger: 2 * time.Millisecond, Compression: "zstd", Acks: -1,
		Partitions: 3, Create: true, Producers: 2, Duration: time.Second, Seed: 1, CPU: map[string]int{"self": os.Getpid()},
		MaxSlip: time.Minute, // tests share the machine
	}
}

// TestProduceReport runs a load and holds the report against CLI.md's schema.
func TestProduceReport(t *testing.T) {
	b := testkit.StartBroker(t, "")
	ctx := testkit.Context(t)
	file := filepath.Join(t.TempDir(), "manifest")
	m, err := loadgen.OpenManifest(file, "load")
	if err != nil {
		t.Fatal(err)
	}
	o := options()
	o.Acked = m.Acked
	r, err := loadgen.Produce(ctx, b.Addr(), "load", o)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if r.Load.Records < 1900 || r.Load.Records > 2100 || r.Load.Errors != 0 {
		t.Errorf("%d records, %d errors", r.Load.Records, r.Load.Errors)
	}
	if n := r.Histograms["response_ms"].Count; n != r.Load.Records {
		t.Errorf("%d response times of %d records", n, r.Load.Records)
	}
	c, err := loadgen.Consume(ctx, b.Addr(), "load", loadgen.Options{Duration: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	acked, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if batches := strings.Count(string(acked), "load "); batches == 0 || c.Load.Records < r.Load.Records {
		t.Errorf("%d acknowledged batches in the manifest, %d records read back", batches, c.Load.Records)
	}

	out := filepath.Join(t.TempDir(), "r.json")
	if err := r.WriteJSON(out); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if got["schema"] != "stet.loadgen/1" {
		t.Errorf("schema %v", got["schema"])
	}
	has := func(where string, v any, keys ...string) map[string]any {
		t.Helper()
		m, ok := v.(map[string]any)
		if !ok {
			t.Fatalf("%s is a %T", where, v)
		}
		for _, k := range keys {
			if _, ok := m[k]; !ok {
				t.Errorf("%s lacks %s", where, k)
			}
		}
		return m
	}
	has("report", got, "schema", "scenario", "command", "version", "started", "host", "parameters", "load", "throughput", "histograms", "checks")
	has("host", got["host"], "cpu", "cores", "kernel", "go")
	has("load", got["load"], "records", "bytes", "target_per_s", "achieved_per_s", "errors", "slip_ms")
	has("throughput", got["throughput"], "mb_per_s", "cpu_s_per_gib")
	h := has("histograms", got["histograms"], "response_ms", "service_ms", "slip_ms")
	for name := range h {
		s := has(name, h[name], "unit", "count", "min", "p50", "p90", "p99", "p999", "max", "mean")
		if s["unit"] != "ms" {
			t.Errorf("%s is in %v", name, s["unit"])
		}
	}
	for _, c := range got["checks"].([]any) {
		has("check", c, "name", "ok", "detail")
	}
	if err := r.WriteHDR(filepath.Join(t.TempDir(), "r.hlog")); err != nil {
		t.Error(err)
	}
}

func TestProduceRefusesAndFails(t *testing.T) {
	b := testkit.StartBroker(t, "", "auto.create.topics.enable=false")
	ctx := testkit.Context(t)
	o := options()
	o.Create = false
	if _, err := loadgen.Produce(ctx, b.Addr(), "nope", o); err == nil || !strings.Contains(err.Error(), "nope") {
		t.Errorf("a topic that is not there: %v", err)
	}
	for name, change := range map[string]func(*loadgen.Options){
		"--record-size": func(o *loadgen.Options) { o.RecordSize = 0 }, "--producers": func(o *loadgen.Options) { o.Producers = 0 },
		"--duration": func(o *loadgen.Options) { o.Duration = 0 }, "--compression": func(o *loadgen.Options) { o.Compression = "rar" },
		"--acks": func(o *loadgen.Options) { o.Acks = 7 }, "--linger": func(o *loadgen.Options) { o.Linger = -1 },
		"--batch-size": func(o *loadgen.Options) { o.BatchSize = -1 }, "--warmup": func(o *loadgen.Options) { o.Warmup = -1 },
	} {
		o := options()
		change(&o)
		if _, err := loadgen.Produce(ctx, b.Addr(), "t", o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	o = options()
	o.CPU = map[string]int{"gone": 1 << 30}
	if _, err := loadgen.Produce(ctx, b.Addr(), "t", o); err == nil || !strings.Contains(err.Error(), "--cpu") {
		t.Errorf("a process that is not there: %v", err)
	}
	if _, err := loadgen.Consume(ctx, b.Addr(), "t", loadgen.Options{Duration: time.Second}); err == nil {
		t.Error("an empty topic gave a report")
	}
}
