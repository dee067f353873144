package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
)

// row is one figure beside its baseline.
type row struct {
	scenario, what, unit string
	value                float64
	baseline             string // what base is of; empty: none
	base                 float64
	ratio                float64 // value/base, the median of the rounds' ratios
	goal                 string  // as PERFORMANCE.md has it
	ok                   bool    // the goal holds
	note                 string
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Clone(v)
	slices.Sort(s)
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// pairs are rounds of a subject and its baseline.
type pairs struct{ subject, base []float64 }

func (p *pairs) add(subject, base float64) {
	p.subject, p.base = append(p.subject, subject), append(p.base, base)
}

// ratio is the median of the ratios round by round, so that what slows both cancels out.
func (p *pairs) ratio() float64 {
	var r []float64
	for i := range p.subject {
		if p.base[i] > 0 {
			r = append(r, p.subject[i]/p.base[i])
		}
	}
	return median(r)
}

func (p *pairs) spread() string {
	var r []float64
	for i := range p.subject {
		if p.base[i] > 0 {
			r = append(r, p.subject[i]/p.base[i])
		}
	}
	if len(r) < 2 {
		return "1 round"
	}
	return fmt.Sprintf("%d rounds, ratios %.2f to %.2f", len(r), slices.Min(r), slices.Max(r))
}

// against makes a row of a comparison.
func (p *pairs) against(scenario, what, unit, baseline string) row {
	return row{scenario: scenario, what: what, unit: unit, value: median(p.subject), baseline: baseline, base: median(p.base), ratio: p.ratio(), note: p.spread()}
}

// most sets the goal that the ratio is at most limit.
func (r row) most(name string, limit float64) row {
	r.goal, r.ok = fmt.Sprintf("%s: at most %.4g x", name, limit), r.ratio > 0 && r.ratio <= limit
	return r
}

// least sets the goal that the ratio is at least limit.
func (r row) least(name string, limit float64) row {
	r.goal, r.ok = fmt.Sprintf("%s: at least %.4g x", name, limit), r.ratio >= limit
	return r
}

func (r row) cells() []string {
	c := []string{r.scenario, r.what, fmt.Sprintf("%.3g %s", r.value, r.unit), "-", "-", "-", r.note}
	if r.baseline != "" {
		c[3], c[4] = fmt.Sprintf("%s: %.3g", r.baseline, r.base), fmt.Sprintf("%.2f", r.ratio)
	}
	if r.goal != "" {
		c[5] = r.goal + map[bool]string{true: ": yes", false: ": NO"}[r.ok]
	}
	return c
}

var head = []string{"scenario", "what", "value", "baseline", "ratio", "goal", "note"}

func printTable(w io.Writer, rows []row) {
	all := [][]string{head}
	for _, r := range rows {
		all = append(all, r.cells())
	}
	width := make([]int, len(head))
	for _, c := range all {
		for i := range c {
			width[i] = max(width[i], len(c[i]))
		}
	}
	for _, c := range all {
		for i := range c {
			if i == len(c)-1 {
				fmt.Fprintln(w, c[i])
			} else {
				fmt.Fprintf(w, "%-*s  ", width[i], c[i])
			}
		}
	}
}

// machine is what the figures were taken on.
func machine() string {
	cpu, kernel := "", ""
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for _, line := range strings.Split(string(b), "\n") {
			if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
				cpu = strings.TrimSpace(v)
				break
			}
		}
	}
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		kernel = strings.TrimSpace(string(b))
	}
	return fmt.Sprintf("%s, %d cores, Linux %s, %s", cpu, runtime.NumCPU(), kernel, runtime.Version())
}

// load is the load average at the moment, which tells how alone we are.
func load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(b))[:3], " ")
}

// commit is what is checked out here, or what the environment says of a binary built elsewhere.
func commit() string {
	if c := os.Getenv("STET_BENCH_COMMIT"); c != "" {
		return c
	}
	out, err := exec.Command("git", "describe", "--tags", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// writeResults replaces the section of this command in a results file.
func writeResults(file, section, command, loadBefore string, rows []row) error {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s\n\n", section)
	fmt.Fprintf(&b, "- command: `%s`\n- commit: %s\n- machine: %s\n- date: %s\n- load average before and after: %s; %s\n\n", command, commit(), machine(), time.Now().UTC().Format("2006-01-02 15:04 MST"), loadBefore, load())
	fmt.Fprintf(&b, "| %s |\n|%s\n", strings.Join(head, " | "), strings.Repeat("---|", len(head)))
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(r.cells(), " | "))
	}
	old, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	return writeFile(file, replaceSection(string(old), section, b.String()))
}

const resultsIntro = `# Results

Written by ` + "`make bench`" + ` and ` + "`make bench-peers`" + `. Only the ratios count: value and baseline are taken in the same run, one after the other in turn, and
the ratio is the median of the rounds. CPU-s/GiB is the CPU time of the named process (/proc/PID/stat) per GiB of record batches.
A load average well above the number of cores says that others used the machine meanwhile: such figures are noisy, rates (MB/s) and latencies above all.
`

// replaceSection puts a section where it stood, or at the end.
func replaceSection(text, section, body string) string {
	if text == "" {
		text = resultsIntro
	}
	mark := "## " + section + "\n"
	at := strings.Index(text, mark)
	if at < 0 {
		return strings.TrimRight(text, "\n") + "\n\n" + body
	}
	end := len(text)
	if next := strings.Index(text[at+len(mark):], "\n## "); next >= 0 {
		end = at + len(mark) + next + 1
	}
	rest := text[end:]
	if rest != "" {
		body += "\n"
	}
	return text[:at] + body + rest
}

func writeFile(name, text string) error { return os.WriteFile(name, []byte(text), 0o644) }
