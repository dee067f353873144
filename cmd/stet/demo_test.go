package main_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"stet/internal/testkit"
	"stet/internal/testkit/port"
)

// demoSays checks what `make run` is to end with, and that it leaves nothing behind.
func demoSays(t *testing.T, args ...string) string {
	t.Helper()
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	out, errs, code := testkit.Stet(t, append([]string{"demo", "--duration", "4s"}, args...)...)
	if code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, out, errs)
	}
	for what, re := range map[string]string{
		"where things run": `(?m)^source: +\S+:\d+ .*\n(.*\n)*?destination: +\S+:\d+`,
		"a live table":     `(?s)(TOPIC|topic).*MIRRORING`,
		"lag in the end":   `(?i)lag.*p50.*p99.*max`,
		"fail-over time":   `(?i)fail-?over.*\d+(\.\d+)? ?m?s`,
	} {
		if !regexp.MustCompile(re).MatchString(out) {
			t.Errorf("%s: nothing like %q in\n%s", what, re, out)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(tmp, "*")); len(left) > 0 {
		t.Errorf("it left %v behind", left)
	}
	return out
}

var equalLine = regexp.MustCompile(`(?m)^equal: (\d+) partitions, ([1-9]\d*) batches, ([1-9]\d*) bytes$`)

// TestDemo is `make run`: without a source it brings its own.
func TestDemo(t *testing.T) {
	out := demoSays(t, "--rate", "5MB")
	if m := equalLine.FindStringSubmatch(out); m == nil || m[1] != "6" {
		t.Errorf("no equal: line of 6 partitions in\n%s", out)
	}
	contains(t, "demo", out, "orders", "payments")
}

// TestDemoWithKafka is `make run SOURCE=...`: a real Kafka is mirrored and only read.
func TestDemoWithKafka(t *testing.T) {
	ctx := contextFor(t, 3*time.Minute)
	k := sharedKafka(t, testkit.Kafka43, 1)
	topics := fill(ctx, t, k.Bootstrap, "demo-")
	before := sourceState(ctx, t, k.Bootstrap)
	out := demoSays(t, "--source", k.Bootstrap, "--topics", "demo-.*")
	if m := equalLine.FindStringSubmatch(out); m == nil || m[1] != "7" {
		t.Errorf("no equal: line of 7 partitions in\n%s", out)
	}
	contains(t, "demo", out, topics...)
	if after := sourceState(ctx, t, k.Bootstrap); after != before {
		t.Errorf("the source was changed from\n%s\nto\n%s", before, after)
	}
}

// sourceState is what a guest could change: topics, ends, groups.
func sourceState(ctx context.Context, t *testing.T, addr string) string {
	t.Helper()
	adm := kadm.NewClient(testkit.Client(t, addr))
	topics, err := adm.ListTopicsWithInternal(ctx)
	if err != nil {
		t.Fatal(err)
	}
	groups, err := adm.ListGroups(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, d := range topics.Sorted() {
		if !strings.HasPrefix(d.Topic, "__") {
			d.Topic += " " + endOffsets(ctx, t, addr, d.Topic)
		}
		lines = append(lines, d.Topic)
	}
	return strings.Join(append(lines, groups.Groups()...), "\n")
}

// TestDemoRefuses: an empty source and wrong flags are an error, not a success that shows nothing.
func TestDemoRefuses(t *testing.T) {
	src := testkit.StartProcess(t, "")
	used := t.TempDir()
	file := filepath.Join(used, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"no topic":                            {"--source", src.Addr, "--topics", "nothing.*"},
		"refused":                             {"--source", port.Hold(t)},
		"--rate":                              {"--rate", "fast"},
		"--duration":                          {"--duration", "-1s"},
		"--dir: " + used + " is not empty":    {"--dir", used},
		"--dir: " + file + " is not a folder": {"--dir", file},
	} {
		out, errs, code := testkit.Stet(t, append([]string{"demo"}, args...)...)
		if code == 0 || !strings.Contains(errs, want) || strings.Count(strings.TrimSpace(errs), "\n") > 0 && code == 1 {
			t.Errorf("%v: code %d, %q %q; want an error with %q", args, code, out, errs, want)
		}
	}
}
