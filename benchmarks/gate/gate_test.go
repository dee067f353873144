package gate_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"stet/benchmarks/gate"
	"stet/internal/testkit"
	"stet/internal/testkit/scripted"
)

// TestMeasure: what is counted is what came.
func TestMeasure(t *testing.T) {
	src := scripted.NewCluster(t, 1)
	topic := src.CreateTopic("t", 3)
	var total int
	for i := range 300 {
		total += len(src.Produce(topic, int32(i%3), 4, 500))
	}
	run, err := gate.Measure(testkit.Context(t), gate.Options{Bootstrap: src.Bootstrap(), Topic: "t", Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if run.Bytes != int64(total) || run.Batches != 300 {
		t.Errorf("%d bytes in %d batches, want %d in 300", run.Bytes, run.Batches, total)
	}
	if c := run.Counts; c["copied_bytes"] != 2*float64(total) || c["checked_bytes"] != float64(total) || c["socket_bytes"] < float64(total) || c["syscalls"] == 0 || c["allocs"] == 0 {
		t.Errorf("%v", c)
	}
	src.Produce(topic, 0, 3, 500)
	src.Change(func() { // another slice: the one that was served may still be read
		l := topic.Logs[0]
		bad := bytes.Clone(l.Batches[len(l.Batches)-1])
		bad[70] ^= 1
		l.Batches[len(l.Batches)-1] = bad
	})
	if _, err := gate.Measure(testkit.Context(t), gate.Options{Bootstrap: src.Bootstrap(), Topic: "t", Dir: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "partition 0") {
		t.Errorf("a damaged batch: %v", err)
	}
}

const root = "../.."

// regressions are changes of the real code that the gate must refuse, switched on by name, and the budget that must be
// exceeded. All are in one build; with none of them switched on it must pass.
var regressions = []struct{ name, budget, old, new string }{
	{"allocation", "allocs_per_batch", "\t\ta.Batches++\n", "\t\ta.Batches++\n\t\tif regression == \"allocation\" {\n\t\t\twaste = append([]byte(nil), first[:61]...)\n\t\t}\n"},
	{
		"copy", "copies", "\t\t\tif err := p.sink.Append(a); err != nil {\n",
		"\t\t\tif regression == \"copy\" {\n\t\t\t\twaste = append(waste[:0], a.Records...)\n\t\t\t\ta.Records = waste\n\t\t\t}\n\t\t\tif err := p.sink.Append(a); err != nil {\n",
	},
	{
		"checksum", "checks", "\t\tc.CheckedBytes.Add(int64(len(a.Records)))\n",
		"\t\tc.CheckedBytes.Add(int64(len(a.Records)))\n\t\tif regression == \"checksum\" {\n\t\t\tagain, _, _ := check(rest)\n\t\t\tc.CheckedBytes.Add(int64(len(again.Records)))\n\t\t}\n",
	},
	{"write", "syscalls_per_gib", "const appendChunk = 1 << 20\n", "var appendChunk = map[bool]int{true: 1, false: 1 << 20}[regression == \"write\"]\n"},
}

const declarations = "\nvar waste []byte\n\nvar regression = os.Getenv(\"GATE_REGRESSION\")\n"

// TestRegressionsAreCaught builds the gate with all regressions in the code and runs it with each of them.
func TestRegressionsAreCaught(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs the gate")
	}
	file, err := filepath.Abs(filepath.Join(root, "fetcher/append.go"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(b), "import (\n", "import (\n\t\"os\"\n", 1) + declarations
	for _, r := range regressions {
		if n := strings.Count(text, r.old); n != 1 {
			t.Fatalf("%s has changed: the place for regression %q (%q) is there %d times", file, r.name, r.old, n)
		}
		text = strings.Replace(text, r.old, r.new, 1)
	}
	gateBin := build(t, file, text)
	bin := testkit.Binary(t)
	run := func(regression string) (string, error) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, gateBin, "gate", "--stet", bin, "--mib", "24")
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "GATE_REGRESSION="+regression)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := run(""); err != nil {
		t.Fatalf("without a regression: %v\n%s", err, out)
	}
	for _, r := range regressions {
		t.Run(r.name, func(t *testing.T) {
			out, err := run(r.name)
			if err == nil {
				t.Fatalf("the gate let it pass:\n%s", out)
			}
			found := false
			for _, line := range strings.Split(out, "\n") {
				found = found || strings.Contains(line, "BEYOND") && strings.Contains(line, " "+r.budget+" ")
			}
			if !found {
				t.Errorf("%s is not what was found:\n%s", r.budget, out)
			}
		})
	}
}

// build builds the gate with one file replaced.
func build(t *testing.T, file, text string) string {
	t.Helper()
	dir := t.TempDir()
	changed, overlay, out := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "gate")
	b, err := json.Marshal(map[string]map[string]string{"Replace": {file: changed}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{changed: text, overlay: string(b)} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "build", "-overlay", overlay, "-o", out, "./benchmarks")
	cmd.Dir = root
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, text)
	}
	return out
}
