package main_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"stet/internal/testkit"
)

// TestLoadgenRefuses: what cannot be meant is refused before anything is asked for, on one line that names the flag, in
// words for users, with exit code 2; what the world refuses has exit code 1.
func TestLoadgenRefuses(t *testing.T) {
	t.Parallel()
	nobody := []string{"--bootstrap-server", "127.0.0.1:1", "--topic", "t"}
	pair := []string{"--source", "127.0.0.1:1", "--destination", "127.0.0.1:1"}
	mirrored := append(slices.Clone(pair), "--mirror", "m", "--topics", "t")
	dir := t.TempDir()
	file := func(name, text string) string {
		f := filepath.Join(dir, name)
		if err := os.WriteFile(f, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return f
	}
	kept := file("kept.json", `{"schema":"stet.loadgen/1"}`)
	if err := errors.Join(os.Symlink("kept.json", filepath.Join(dir, "link")), os.Link(kept, filepath.Join(dir, "hard"))); err != nil {
		t.Fatal(err)
	}
	with := func(base []string, more ...string) []string { return append(slices.Clone(base), more...) }
	for _, c := range []struct {
		scenario string
		args     []string
		code     int
		want     string
	}{
		{"produce", with(nobody, "--rate", "0"), 2, `--rate: "0" is not above 0`},
		{"produce", with(nobody, "--rate=-5"), 2, `--rate: "-5" is not above 0`},
		{"produce", with(nobody, "--rate", "1e18"), 2, `at most 1000000000 records`},
		{"produce", with(nobody, "--rate", "1e999"), 2, `at most 1000000000 records`},
		{"produce", with(nobody, "--rate", "NaN"), 2, `--rate: "NaN"`},
		{"produce", with(nobody, "--rate", "NaNMB"), 2, `--rate: "NaNMB" is neither`},
		{"produce", with(nobody, "--rate", "5MB/s/s"), 2, `--rate: "5MB/s/s" is neither records per second nor a size per second such as 20MB`},
		{"produce", with(nobody, "--rate", "5PB"), 2, `--rate: "5PB" is neither`},
		{"produce", with(nobody, "--rate", "5000TB"), 2, "at most 1TB per second"},
		{"produce", with(nobody, "--rate", "1B", "--record-size", "64MiB"), 2, "--rate: 1.49e-08 records of 67108864 bytes per second"},
		{"produce", with(nobody, "--duration", "0s"), 2, "--duration 0s is not above 0"},
		{"produce", with(nobody, "--duration=-1s"), 2, "--duration -1s is not above 0"},
		{"produce", with(nobody, "--duration", "abc"), 2, `--duration "abc" is not a duration such as 30s`},
		{"produce", with(nobody, "--duration", "9999999h"), 2, `--duration "9999999h" is not a duration`},
		{"produce", with(nobody, "--warmup=-1s"), 2, "--warmup -1s"},
		{"produce", with(nobody, "--record-size", "0"), 2, "--record-size 0; allowed are 1 to 64MiB"},
		{"produce", with(nobody, "--record-size", "65MiB"), 2, `--record-size "65MiB" is not a size up to 64MiB`},
		{"produce", with(nobody, "--batch-size=-1"), 2, `--batch-size "-1"`},
		{"produce", with(nobody, "--create", "--partitions", "0"), 2, "--partitions 0; allowed are 1 to"},
		{"produce", with(nobody, "--partitions", "3"), 2, "--partitions is for a topic that is made with --create"},
		{"produce", with(nobody, "--producers", "x"), 2, `--producers "x" is not a whole number`},
		{"produce", with(nobody, "--seed=-1"), 2, `--seed "-1" is not a whole number from 0 on`},
		{"produce", with(nobody, "--cpu", "x=0"), 2, `--cpu "x=0" is not NAME=PID`},
		{"produce", with(nobody, "--acks", "7"), 2, `--acks "7"; allowed are all, 1 and 0`},
		{"produce", with(nobody, "--profile", "heap"), 2, `--profile "heap"; allowed are`},
		{"produce", with(nobody, "--max-slip", "0s"), 2, "--max-slip 0s is not above 0"},
		{"produce", with(nobody, "--in-flight=-1"), 2, "--in-flight -1"},
		{"produce", nil, 2, "loadgen produce needs --bootstrap-server"},
		{"produce", nobody, 1, "cannot reach 127.0.0.1:1: "},
		{"produce", with(nobody, "--json", filepath.Join(dir, "no", "x.json")), 1, "x.json: no such file or directory"},
		{"produce", with(nobody, "--rounds", "2"), 2, "--rounds"},
		{"consume", with(nobody, "--rate", "5"), 2, "loadgen consume does not use --rate: it reads what is there"},
		{"consume", with(nobody, "--acks", "1"), 2, "loadgen consume does not use --acks"},
		{"consume", with(nobody, "--hdr", "x"), 2, "loadgen consume does not use --hdr"},
		{"consume", with(nobody, "--duration", "0s"), 2, "--duration 0s"},
		{"e2e", with(nobody, "--acks", "0"), 2, "--acks 0: loadgen e2e needs to know"},
		{"lag", with(pair, "--topic", "t", "--create"), 2, "loadgen lag does not use --create"},
		{"failover", with(mirrored, "--rounds", "0"), 2, "--rounds 0 is not above 0"},
		{"failover", with(mirrored, "--rounds", "2", "--source-pid", "5"), 2, "--source-pid kills the source"},
		{"failover", with(mirrored, "--manifest", "x"), 2, "loadgen failover does not use --manifest"},
		{"failover", with(pair, "--mirror", "m", "--topics", "("), 2, `--topics "(" is not an RE2 pattern: missing closing )`},
		{"catchup", with(mirrored, "--fill", "0"), 2, `--fill "0" is not a size above 0`},
		{"catchup", with(mirrored, "--duration", "3s"), 2, "loadgen catchup does not use --duration"},
		{"throttle", with(mirrored, "--rates", "5000"), 2, `--rates: "5000" is not a size per second`},
		{"throttle", with(mirrored, "--rates", ","), 2, "--rates names no rate"},
		{"throttle", with(mirrored, "--rates", "0MB"), 2, `--rates: "0MB" is not a size per second above 0`},
		{"throttle", with(mirrored, "--each", "1s"), 2, "--each 1s; allowed are 3s to 1h"},
		{"failback", mirrored, 1, "failback needs a source that mirrors"},
		{"report", nil, 2, "needs at least one report file"},
		{"report", []string{file("p.json", `{"schema":"stet.profile/1"}`)}, 1, `p.json has the schema "stet.profile/1"; "stet.loadgen/1" is expected`},
		{"report", []string{file("x.hlog", "#[Histogram log format version 1.3]\n")}, 1, "x.hlog is an HdrHistogram log, as --hdr writes; a file written with --json is expected"},
		{"report", []string{file("cut.json", `{"schema":"stet.loa`)}, 1, "cut.json is cut off after 19 bytes"},
		{"report", []string{kept, "--html", kept}, 2, "--html " + kept + " is the report " + kept + ", which would be lost"},
		{"report", []string{kept, "--html", filepath.Join(dir, "link")}, 2, "which would be lost"},
		{"report", []string{kept, "--html", filepath.Join(dir, "hard")}, 2, "which would be lost"},
		{"report", []string{kept, "--html", dir + "/../" + filepath.Base(dir) + "/kept.json"}, 2, "which would be lost"},
		{"produce", with(nobody, "--json", filepath.Join(dir, "new"), "--hdr", dir+"/./new"), 2, "--json and --hdr name the same file"},
		{"produce", with(nobody, "--json", kept, "--manifest", filepath.Join(dir, "link")), 2, "--json and --manifest name the same file"},
		{"report", []string{filepath.Join(dir, "nope.json")}, 1, "nope.json: no such file or directory"},
	} {
		out, errs, code := testkit.Stet(t, append([]string{"loadgen", c.scenario}, c.args...)...)
		what := "loadgen " + c.scenario + " " + strings.Join(c.args, " ")
		if code != c.code || !strings.Contains(errs, c.want) || out != "" {
			t.Errorf("%s: exit code %d, want %d with %q:\n%s%s", what, code, c.code, c.want, out, errs)
		}
		line, rest, _ := strings.Cut(errs, "\n")
		if rest != "" && !strings.HasPrefix(rest, "try: stet loadgen") || !strings.HasPrefix(line, "stet: ") {
			t.Errorf("%s: not one line:\n%s", what, errs)
		}
		for _, word := range []string{"strconv", "time:", " json: ", "error parsing", "0x", "goroutine", "dial tcp"} {
			if strings.Contains(errs, word) {
				t.Errorf("%s: speaks of %q:\n%s", what, word, errs)
			}
		}
	}
	if b, err := os.ReadFile(kept); err != nil || string(b) != `{"schema":"stet.loadgen/1"}` {
		t.Errorf("the input is now %q, %v", b, err)
	}
}

// TestLoadgenKeepsWhatItMeasured: the target is killed in mid-run, then a disk is full; the report says why it does not
// count, what was measured is kept, and the exit code is 1.
func TestLoadgenKeepsWhatItMeasured(t *testing.T) {
	t.Parallel()
	p := testkit.StartProcess(t, "")
	dir := t.TempDir()
	file, hdr := filepath.Join(dir, "r.json"), filepath.Join(dir, "r.hlog")
	args := []string{"loadgen", "produce", "--bootstrap-server", p.Addr, "--topic", "load", "--rate", "2000", "--record-size", "100", "--warmup", "0s"}
	if out, errs, code := testkit.Stet(t, append(args, "--duration", "1s")...); code != 1 || !strings.Contains(errs, "there is no topic load") || !strings.Contains(errs, "--create makes it") {
		t.Errorf("a topic that is not there: %d %s%s", code, out, errs)
	}
	args = append(args, "--create")

	manifest := filepath.Join(dir, "acked")
	cmd := exec.Command(testkit.Binary(t), append(args, "--duration", "10m", "--json", file, "--hdr", hdr, "--manifest", manifest)...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) { // a process is watched
		if st, err := os.Stat(manifest); err == nil && st.Size() > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("nothing was acknowledged")
		}
	}
	p.Kill()
	err := cmd.Wait()
	if cmd.ProcessState.ExitCode() != 1 || !strings.Contains(errs.String(), "was lost") || !strings.Contains(out.String(), "produce: NOT VALID") {
		t.Errorf("%v\n%s%s", err, out.String(), errs.String())
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		NotValid   []string `json:"not_valid"`
		Histograms map[string]struct{ Count int64 }
	}
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	if len(r.NotValid) == 0 || !strings.Contains(r.NotValid[0], "was lost") || r.Histograms["response_ms"].Count == 0 {
		t.Errorf("%s", text)
	}
	if st, err := os.Stat(hdr); err != nil || st.Size() == 0 {
		t.Errorf("the histograms are gone: %v", err)
	}
	if shown := testkit.MustStet(t, "loadgen", "report", file); !strings.Contains(shown, "NOT VALID") {
		t.Errorf("the report is shown as\n%s", shown)
	}

	// A disk that is full when the report is written: the other files and the text are there.
	p.Restart(t)
	small := filepath.Join(dir, "small")
	if err := os.Mkdir(small, 0o755); err != nil {
		t.Fatal(err)
	}
	full := exec.Command("unshare", append([]string{"-m", "sh", "-c", `mount -t tmpfs -o size=4k none "$0" && : > "$0/x" && head -c 4096 /dev/zero > "$0/y" && exec "$@"`, small, testkit.Binary(t)},
		append(args, "--bootstrap-server", p.Addr, "--duration", "1s", "--max-slip", "1m", "--json", filepath.Join(small, "r.json"), "--hdr", hdr)...)...)
	full.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if exec.Command("unshare", "-m", "sh", "-c", `mount -t tmpfs none "$0"`, small).Run() != nil {
		t.Log("NOT TESTED on a real full disk: no mount namespace here")
		return
	}
	if err := os.Remove(hdr); err != nil {
		t.Fatal(err)
	}
	b, err := full.CombinedOutput()
	if err == nil || !strings.Contains(string(b), "--json: "+filepath.Join(small, "r.json")+" could not be written: no space left on device") || !strings.Contains(string(b), "response_ms") {
		t.Errorf("%v\n%s", err, b)
	}
	if st, err := os.Stat(hdr); err != nil || st.Size() == 0 {
		t.Errorf("the other file: %v", err)
	}
}
