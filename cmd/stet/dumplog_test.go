package main_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"stet/internal/testkit"
)

// TestDumpLogCommand: the flags, both outputs and the exit codes.
func TestDumpLogCommand(t *testing.T) {
	kafkas, err := filepath.Abs(filepath.Join("..", "..", "broker", "log", "testdata", "kafka-4.3.1"))
	if err != nil {
		t.Fatal(err)
	}
	contains(t, "text", testkit.MustStet(t, "dump-log", "--files", kafkas, "--print-data-log"), "Dumping "+kafkas, "baseOffset: 0 ", "endTxnMarker: ABORT", "payload: ", "topic: txns partition: 0 offset: ")
	for l := range strings.Lines(testkit.MustStet(t, "dump-log", "--json", "--offsets-decoder", "--files", kafkas)) {
		if !json.Valid([]byte(l)) {
			t.Fatal(l)
		}
	}
	bad := t.TempDir()
	if err := os.CopyFS(bad, os.DirFS(kafkas)); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(bad, "txns-0", "00000000000000000000.timeindex")
	p, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	p[7] ^= 1
	if err := os.WriteFile(name, p, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{}, {"--verify-index-only"}, {"--index-sanity-check"}} {
		_, errs, code := testkit.Stet(t, append([]string{"dump-log", "--files", bad}, args...)...)
		if code != 1 || !strings.Contains(errs, name+" is bad at position 0, entry 0: ") || !strings.Contains(errs, "\nstet: bad files: ") {
			t.Errorf("%v: exit code %d\n%s", args, code, errs)
		}
	}
	out, _, code := testkit.Stet(t, "dump-log", "--json", "--files", bad)
	if code != 1 || !strings.Contains(out, `"type":"finding","file":"`+name+`","position":0,"offset":null,"entry":0,`) {
		t.Errorf("--json: exit code %d\n%s", code, out)
	}
	for want, args := range map[string][]string{
		"dump-log needs --files":  nil,
		"exclude each other":      {"--files", bad, "--offsets-decoder", "--mirror-state-decoder"},
		"dump-log --files " + bad: {bad},
		"--max-bytes 0":           {"--files", bad, "--max-bytes", "0"},
	} {
		if _, errs, code := testkit.Stet(t, append([]string{"dump-log"}, args...)...); code != 2 || !strings.Contains(errs, want) {
			t.Errorf("%v: exit code %d, %s", args, code, errs)
		}
	}
	if _, errs, code := testkit.Stet(t, "dump-log", "--files", filepath.Join(bad, "meta.properties")); code != 1 || !strings.Contains(errs, "dump-log reads .log, .index") {
		t.Errorf("a file of another kind: exit code %d, %s", code, errs)
	}
}
