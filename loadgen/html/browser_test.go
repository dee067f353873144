package html_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	stdhtml "html"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"stet/benchmarks/sink"
	"stet/loadgen"
	"stet/loadgen/html"
)

// browser is a headless browser on this machine, "" if there is none.
func browser() string {
	for _, name := range []string{os.Getenv("STET_BROWSER"), "chromium", "chromium-browser", "google-chrome", "chrome", "headless_shell"} {
		if name == "" {
			continue
		}
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// before and after stand around the page's own scripts: they note every error, warning, violation and resource, and at the
// end what was drawn.
const (
	before = `<script>
window.noted = [];
for (const level of ["error", "warn"]) console[level] = (...a) => noted.push(level + ": " + a.join(" "));
addEventListener("error", (e) => noted.push("error: " + (e.message || (e.target && (e.target.src || e.target.href)))), true);
addEventListener("unhandledrejection", (e) => noted.push("rejected: " + e.reason));
</script>`
	after = `<script>
addEventListener("load", () => setTimeout(() => {
  const colors = (c) => {
    const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
    const seen = {};
    for (let i = 0; i < d.length; i += 4) if (d[i + 3] > 200) seen[(d[i] >> 4) + "," + (d[i + 1] >> 4) + "," + (d[i + 2] >> 4)] = 1;
    return Object.keys(seen).filter((k) => new Set(k.split(",")).size > 1).length; // not grey
  };
  const pre = document.createElement("pre");
  pre.id = "probe";
  pre.textContent = JSON.stringify({
    noted, titles: [...document.querySelectorAll("#plots h2")].map((h) => h.textContent), plots: [...document.querySelectorAll("#plots canvas")].map(colors),
    resources: performance.getEntriesByType("resource").map((r) => r.name), legends: [...document.querySelectorAll("#plots .u-label")].map((l) => l.textContent),
  });
  document.body.append(pre);
}, 300));
</script>`
)

type seen struct {
	Noted, Titles, Resources, Legends []string
	Plots                             []int // colours in each
}

var (
	probe   = regexp.MustCompile(`(?s)<pre id="probe">(.*?)</pre>`)
	console = regexp.MustCompile(`(?m)^.*CONSOLE.*$`)
)

// open shows a page in the browser, where possible in a network namespace of its own, which has no network at all.
func open(t *testing.T, bin string, page []byte) (s seen, dom string) {
	t.Helper()
	text := strings.Replace(string(page), "<head>", "<head>"+before, 1)
	text = strings.Replace(text, "</body>", after+"</body>", 1)
	file := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	profile, err := os.MkdirTemp("", "stet-browser-")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(profile) }() // not t.TempDir: children of the browser may still write
	args := []string{
		bin, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--user-data-dir=" + t.TempDir(), "--proxy-server=127.0.0.1:1",
		"--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr", "--virtual-time-budget=5000", "--window-size=1200,2000", "--dump-dom", "file://" + file,
	}
	if exec.Command("unshare", "-n", "true").Run() == nil {
		args = append([]string{"unshare", "-n"}, args...)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", bin, err, errs.String())
	}
	m := probe.FindSubmatch(out.Bytes())
	if m == nil {
		t.Fatalf("the page did not get to its end:\n%.2000s\n%s", out.String(), errs.String())
	}
	if err := json.Unmarshal([]byte(stdhtml.UnescapeString(string(m[1]))), &s); err != nil {
		t.Fatal(err)
	}
	for _, line := range console.FindAllString(errs.String(), -1) {
		if !strings.Contains(line, "source: chrome://") { // a page of the browser's own, such as its new tab, on a slow machine
			s.Noted = append(s.Noted, line)
		}
	}
	return s, out.String()
}

// reports are one of every scenario, with what its report holds.
func reports(t *testing.T) map[string]*loadgen.Report {
	t.Helper()
	v := func(f float64) *float64 { return &f }
	report := func(scenario string, series []string, histograms ...string) *loadgen.Report {
		r := &loadgen.Report{
			Schema: loadgen.Schema, Scenario: scenario, Command: "stet loadgen " + scenario, Started: time.Unix(1_700_000_000, 0), Histograms: map[string]loadgen.Summary{},
			Curves: map[string][][2]float64{}, Series: map[string]*loadgen.Series{}, Throughput: loadgen.Throughput{MBPerSec: 20, CPUPerGiB: map[string]float64{"stet": 1}},
			Checks: []loadgen.Check{{Name: "errors", OK: true, Detail: "none", Validity: true}}, NotValid: []string{},
		}
		for _, h := range histograms {
			r.Histograms[h] = loadgen.Summary{Unit: "ms", Count: 1000, Min: v(.1), P50: v(1), P90: v(2), P99: v(5), Max: v(9), Mean: v(1.2)}
			r.Curves[h] = [][2]float64{{0, .1}, {50, 1}, {90, 2}, {99, 5}, {99.9, 9}}
		}
		for _, s := range series {
			r.Series[s] = &loadgen.Series{Unit: "MB/s", T: []float64{.25, .5, .75}, V: []float64{10, 30, 20}}
		}
		return r
	}
	all := map[string]*loadgen.Report{
		"consume":  report("consume", []string{"read"}),
		"e2e":      report("e2e", []string{"acknowledged"}, "response_ms", "service_ms", "slip_ms", "e2e_ms"),
		"lag":      report("lag", []string{"acknowledged", "replication lag"}, "response_ms", "service_ms", "slip_ms", "replication_lag_ms", "control_ms", "added_lag_ms"),
		"catchup":  report("catchup", []string{"copied"}),
		"failover": report("failover", nil, "stop_ms", "first_ack_ms", "first_read_ms", "write_gap_ms"),
		"throttle": report("throttle", []string{"copied"}),
	}
	h := all["lag"].Histograms["added_lag_ms"]
	h.Negative, h.Min = 4711, v(-7.25)
	all["lag"].Histograms["added_lag_ms"] = h
	all["failover"].Failover = &loadgen.FailoverResult{Rounds: 2, Timeline: []loadgen.Timeline{{StopAnsweredMs: 5, FirstAckMs: 6, FirstReadMs: 7}, {StopAnsweredMs: 4, FirstAckMs: 9, FirstReadMs: 10}}}
	all["throttle"].Throttle = []loadgen.ThrottleResult{{Set: 50e6, Achieved: 50.5e6, Error: 1, SettleMs: 300, Worst1s: 1.05}, {Set: 20e6, Achieved: 3e6, Error: -85, SettleMs: -1, Worst1s: .2}}
	all["throttle"].NotValid = []string{"ended: early: <b>load-0</b> is FAILED"}

	s, err := sink.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	produce, err := loadgen.Produce(t.Context(), s.Addr(), "t", loadgen.Options{
		Rate: loadgen.Rate{PerSecond: 1000}, RecordSize: 100, BatchSize: 1000, Acks: -1, Create: true, Partitions: 1, Producers: 1, Duration: 800 * time.Millisecond, MaxSlip: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	all["produce"] = produce
	return all
}

// TestPagesInABrowser opens pages of every scenario, of some alone and of all side by side, in a real browser without a network: no
// console message, nothing loaded from anywhere, every plot drawn, and the figures there.
func TestPagesInABrowser(t *testing.T) {
	bin := browser()
	if bin == "" {
		t.Skip("NOT TESTED: no headless browser here (chromium, google-chrome, or STET_BROWSER=path)")
	}
	all := reports(t)
	scenarios := slices.Sorted(maps.Keys(all))
	var together []*loadgen.Report
	pages := map[string][]*loadgen.Report{}
	for _, name := range scenarios {
		if slices.Contains([]string{"consume", "lag", "failover", "throttle"}, name) { // without curves, with all of them, without series, not valid
			pages[name] = []*loadgen.Report{all[name]}
		}
		together = append(together, all[name])
	}
	pages["all side by side"] = together
	for name, rs := range pages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var page bytes.Buffer
			if err := html.Render(&page, rs); err != nil {
				t.Fatal(err)
			}
			s, dom := open(t, bin, page.Bytes())
			if len(s.Noted) > 0 || len(s.Resources) > 0 {
				t.Errorf("the console says %q, loaded is %q", s.Noted, s.Resources)
			}
			want := map[string]bool{}
			for i, r := range rs {
				for h := range r.Curves {
					want[h+", by percentile"] = true
				}
				for n := range r.Series {
					want[n+" over time"] = true
				}
				if r.Failover != nil {
					want[fmt.Sprintf("fail-over timeline, run %d", i)] = true
				}
			}
			if got := slices.Sorted(slices.Values(s.Titles)); !slices.Equal(got, slices.Sorted(maps.Keys(want))) {
				t.Errorf("plots of %q, want %q", got, slices.Sorted(maps.Keys(want)))
			}
			if len(s.Plots) != len(s.Titles) {
				t.Errorf("%d plots with %d titles", len(s.Plots), len(s.Titles))
			}
			for i, n := range s.Plots {
				if n == 0 {
					t.Errorf("plot %d (%s) shows no line", i, s.Titles[i])
				}
			}
			for i, r := range rs {
				if r.Scenario == "throttle" && (!strings.Contains(dom, fmt.Sprintf("run %d is not valid", i)) || !strings.Contains(dom, "&lt;b&gt;load-0") || !slices.Contains(s.Legends, fmt.Sprintf("run %d (not valid)", i)) || !strings.Contains(dom, "<td>never</td>")) {
					t.Errorf("a run that is not valid does not look so; legends %q", s.Legends)
				}
				if r.Scenario == "lag" && !strings.Contains(dom, "<td>4711</td><td>-7.25</td>") {
					t.Error("the negative samples are not there")
				}
			}
		})
	}
}

// TestABrokenPageIsNoticed: the test above would find an error, a message, and a resource from elsewhere.
func TestABrokenPageIsNoticed(t *testing.T) {
	bin := browser()
	if bin == "" {
		t.Skip("NOT TESTED: no headless browser here")
	}
	t.Parallel()
	s, _ := open(t, bin, []byte(`<!doctype html><html><head></head><body><script>setTimeout(() => { nothing.there() }); console.error("said")</script><img src="http://example.com/x.png"></body></html>`))
	all := strings.Join(s.Noted, "\n")
	for _, w := range []string{"nothing is not defined", "error: said", "example.com/x.png"} {
		if !strings.Contains(all, w) {
			t.Errorf("%q is not among %q", w, s.Noted)
		}
	}
}
