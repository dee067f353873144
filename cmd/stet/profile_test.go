package main_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"stet/benchmarks/growth"
	"stet/internal/testkit"
)

// TestProfileCompare: exit codes and both forms of what is printed.
func TestProfileCompare(t *testing.T) {
	record := func(allocs float64) string {
		dir := t.TempDir()
		run := growth.Run{Scenario: "s", Bytes: 1 << 30, Batches: 1000, Counts: map[string]float64{"allocs": allocs}}
		if err := run.Save(dir); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	budgets := filepath.Join(t.TempDir(), "b.json")
	if err := os.WriteFile(budgets, []byte(`{"schema":"stet.budgets/1","budgets":[{"name":"allocs_per_batch","limit":0.05}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	good, bad := record(10), record(1010)
	if out, errs, code := testkit.Stet(t, "profile", "compare", good, good, "--budgets", budgets); code != 0 || !strings.Contains(out, "ok") {
		t.Errorf("exit %d: %s %s", code, out, errs)
	}
	if out, errs, code := testkit.Stet(t, "profile", "compare", good, bad, "--budgets", budgets); code != 1 || !strings.Contains(out, "BEYOND") || errs != "stet: beyond a budget\n" {
		t.Errorf("exit %d: %s %s", code, out, errs)
	}
	out, errs, code := testkit.Stet(t, "profile", "compare", good, bad, "--budgets", budgets, "--json")
	var r growth.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 1 || r.Schema != growth.Schema || len(r.Budgets) != 1 || r.Budgets[0].OK {
		t.Errorf("exit %d, %v: %s %s", code, err, out, errs)
	}
	if _, errs, code := testkit.Stet(t, "profile", "compare", good); code != 2 || !strings.Contains(errs, "BASE and HEAD") {
		t.Errorf("exit %d: %s", code, errs)
	}
	if _, errs, code := testkit.Stet(t, "profile", "compare", good, filepath.Join(good, "absent")); code != 1 || !strings.Contains(errs, "no such file") {
		t.Errorf("exit %d: %s", code, errs)
	}
}
