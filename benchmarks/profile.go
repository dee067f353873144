package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"stet/benchmarks/growth"
)

// profiled are the scenarios that profiles are recorded of.
var profiled = []string{"catchup-16k", "catchup-1k", "catchup-1m", "produce-16k", "consume-16k"}

// profileEnv turns on what costs something; both sides of a comparison have it.
var profileEnv = []string{"STET_PROFILE_MUTEX=1", "STET_PROFILE_BLOCK=10000", "GODEBUG=memprofilerate=8192"}

var errTooShort = errors.New("longer than the recording (--seconds)")

// recordingStarts is how long a broker may take to begin the recording of all profiles, which allocates and is not to
// be counted.
const recordingStarts = time.Second

// side is a binary whose profiles are recorded.
type side struct{ name, bin, commit string }

// profileCommand records profiles, with several binaries in turn, and writes the figures of each as
// benchmark lines that benchstat reads.
func profileCommand(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("profile", flag.ContinueOnError)
	only := fs.String("scenarios", strings.Join(profiled, ","), "which to record")
	gib := fs.Float64("gib", 1, "GiB of batches")
	rounds := fs.Int("rounds", 1, "rounds, which are added up")
	seconds := fs.Int("seconds", 8, "length of the recording, longer than the scenario takes")
	out := fs.String("out", "profiles", "folder; with several binaries one below it for each")
	sides := fs.String("binaries", "head=bin/stet", "NAME=FILE[@COMMIT], separated by commas")
	made := fs.String("made-by", "", "the command to note down")
	if err := fs.Parse(args); err != nil {
		return err
	}
	var all []side
	for _, s := range strings.Split(*sides, ",") {
		name, bin, ok := strings.Cut(s, "=")
		bin, rev, _ := strings.Cut(bin, "@")
		if !ok || name == "" {
			return fmt.Errorf("--binaries %q is not NAME=FILE", s)
		}
		if rev == "" {
			rev = commit()
		}
		all = append(all, side{name, bin, rev})
	}
	if *gib <= 0 || *rounds < 1 || *seconds < 1 {
		return errors.New("--gib, --rounds and --seconds are above 0")
	}
	b, err := newBench(all[0].bin)
	if err != nil {
		return err
	}
	defer b.close()
	b.gib, b.rounds = *gib, 1
	if err := b.touch(ctx); err != nil {
		return err
	}
	if *made == "" {
		*made = "benchmarks profile " + strings.Join(args, " ")
	}
	for _, name := range strings.Split(*only, ",") {
		for round := range *rounds {
			for _, s := range all { // in turn
				dir := filepath.Join(*out, name)
				if len(all) > 1 {
					dir = filepath.Join(*out, s.name, name)
				}
				fmt.Fprintf(os.Stderr, "%s, %s, round %d\n", name, s.name, round+1)
				if b.bin, err = filepath.Abs(s.bin); err != nil {
					return err
				}
				r := &recording{b: b, dir: dir, seconds: *seconds, more: round > 0}
				r.run = growth.Run{Scenario: name, Command: *made, Commit: s.commit, Machine: machine(), Date: time.Now().UTC().Format(time.RFC3339), Counts: map[string]float64{}}
				err := r.record(ctx, fmt.Sprintf("%s-%s-%d", name, s.name, round))
				for range 3 {
					if !errors.Is(err, errTooShort) {
						break
					}
					r.seconds *= 2 // and so for the rounds to come
					fmt.Fprintf(os.Stderr, "  %v: again with %d s\n", err, r.seconds)
					*seconds = r.seconds
					err = r.record(ctx, fmt.Sprintf("%s-%s-%d-%ds", name, s.name, round, r.seconds))
				}
				if err != nil {
					return fmt.Errorf("%s of %s: %w", name, s.name, err)
				}
				if len(all) > 1 {
					if err := r.benchLine(filepath.Join(*out, s.name+".txt")); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// recording is one run of one scenario with one binary.
type recording struct {
	b       *bench
	dir     string
	seconds int
	more    bool // add to what an earlier round left
	run     growth.Run
}

func (r *recording) record(ctx context.Context, id string) error {
	b := r.b
	kind, shapeName, _ := strings.Cut(r.run.Scenario, "-")
	var s shape
	for _, x := range []shape{shape16k, shape1k, shape1m} {
		if x.name == shapeName {
			s = x
		}
	}
	if s.name == "" {
		return fmt.Errorf("unknown; there are %s", strings.Join(profiled, ", "))
	}
	d, err := b.startStet(b.bin, b.dir(id), profileEnv)
	if err != nil {
		return err
	}
	defer d.drop()
	switch kind {
	case "catchup":
		src, err := b.startStet(b.bin, b.dir(id+"-src"), nil)
		if err != nil {
			return err
		}
		defer src.drop()
		if err := fill(ctx, src.addr, "t", s, 1); err != nil {
			return err
		}
		if err := b.mirrorTo(ctx, d, src.addr, "t"); err != nil {
			return err
		}
		if err := fill(ctx, src.addr, "t", s, b.bytes()); err != nil {
			return err
		}
		want := logBytes(src.dir, "t")
		return r.watch(ctx, d, func(ctx context.Context) (int64, error) {
			_, err := b.drain(ctx, d, "t", want)
			return want, err
		})
	case "produce":
		return r.watch(ctx, d, func(ctx context.Context) (int64, error) {
			err := fill(ctx, d.addr, "t", s, b.bytes())
			return logBytes(d.dir, "t"), err
		})
	case "consume":
		if err := fill(ctx, d.addr, "t", s, b.bytes()); err != nil {
			return err
		}
		return r.watch(ctx, d, func(ctx context.Context) (int64, error) {
			u, err := b.raw(ctx, d.addr, "t")
			return u.Bytes, err
		})
	}
	return fmt.Errorf("unknown; there are %s", strings.Join(profiled, ", "))
}

// watch records all profiles and counts of a broker while work runs.
func (r *recording) watch(ctx context.Context, d *stet, work func(context.Context) (int64, error)) error {
	if err := os.MkdirAll(r.dir, 0o755); err != nil {
		return err
	}
	tmp := r.b.dir("profiles")
	if err := os.MkdirAll(tmp, 0o755); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	errs := make([]error, len(growth.Kinds))
	start := time.Now()
	for i, k := range growth.Kinds {
		path := map[string]string{"cpu": "profile", "allocs": "allocs", "mutex": "mutex", "block": "block"}[k]
		url := fmt.Sprintf("http://%s/debug/pprof/%s?seconds=%d", d.http, path, r.seconds)
		wg.Add(1)
		go func() {
			defer wg.Done()
			errs[i] = download(ctx, url, filepath.Join(tmp, k+".pb.gz"))
		}()
	}
	settle(ctx, recordingStarts)
	var bytes int64
	var after map[string]float64
	instructions := startInstructions(ctx, d.pid)
	before, err := r.counts(d)
	if err == nil {
		bytes, err = work(ctx)
	}
	if err == nil {
		after, err = r.counts(d)
	}
	took := time.Since(start)
	if err != nil {
		cancel()
		wg.Wait()
		return err
	}
	if n, ok := instructions(); ok {
		r.run.Counts["instructions"] = n
	} else {
		fmt.Fprintln(os.Stderr, "  instructions are NOT COUNTED: perf is missing or this CPU does not count them here")
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if took > time.Duration(r.seconds)*time.Second {
		return fmt.Errorf("it took %s: %w", took.Round(time.Millisecond), errTooShort)
	}
	r.run.Bytes = bytes
	for k, v := range after {
		r.run.Counts[k] = v - before[k]
	}
	r.run.Batches = int64(r.run.Counts["batches"])
	delete(r.run.Counts, "batches")
	if err := r.run.Save(tmp); err != nil {
		return err
	}
	return r.keep(tmp)
}

// keep moves a recording to its folder, or adds it to the one there.
func (r *recording) keep(tmp string) error {
	now, err := growth.Load(tmp)
	if err != nil {
		return err
	}
	if r.more {
		before, err := growth.Load(r.dir)
		if err != nil {
			return err
		}
		if err := now.Add(before); err != nil {
			return err
		}
	}
	return now.Save(r.dir)
}

// counts are what a broker's process has counted so far.
func (r *recording) counts(d *stet) (map[string]float64, error) {
	cpu, err := cpuSeconds(d.pid)
	if err != nil {
		return nil, err
	}
	io, err := readIO(d.pid)
	if err != nil {
		return nil, err
	}
	m := map[string]float64{"cpu_seconds": cpu, "syscalls": float64(io.readCalls + io.writeCalls)}
	heap, err := get("http://" + d.http + "/debug/pprof/heap?debug=1")
	if err != nil {
		return nil, err
	}
	for _, line := range strings.Split(heap, "\n") {
		f := strings.Fields(line)
		if len(f) < 4 || f[0] != "#" || f[2] != "=" {
			continue
		}
		v, _ := strconv.ParseFloat(f[3], 64) // lines of other forms are not asked for
		switch f[1] {
		case "Mallocs":
			m["allocs"] = v
		case "TotalAlloc":
			m["alloc_bytes"] = v
		}
	}
	text, err := get("http://" + d.http + "/metrics")
	if err != nil {
		return nil, err
	}
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "stet_mirror_in_batches_total") || strings.HasPrefix(line, "stet_broker_produce_batches_total") {
			v, _ := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
			m["batches"] += v
		}
	}
	if m["allocs"] == 0 {
		return nil, errors.New("the heap profile lacks runtime.MemStats")
	}
	return m, nil
}

// benchLine appends the run's figures for benchstat.
func (r *recording) benchLine(file string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	c, g := r.run.Counts, r.run.GiB()
	_, err = fmt.Fprintf(f, "Benchmark%s 1 %.4f cpu-s/GiB %.0f allocs/GiB %.0f B-alloc/GiB %.0f syscalls/GiB\n",
		strings.NewReplacer("-", "").Replace(r.run.Scenario), c["cpu_seconds"]/g, c["allocs"]/g, c["alloc_bytes"]/g, c["syscalls"]/g)
	return errors.Join(err, f.Close())
}

func get(url string) (string, error) {
	resp, err := http.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s %s", url, resp.Status, b)
	}
	return string(b), err
}

func download(ctx context.Context, url, file string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s %s", url, resp.Status, b)
	}
	if err != nil {
		return err
	}
	return os.WriteFile(file, b, 0o644)
}

// startInstructions counts a process's instructions in user space by perf until the result is called, which
// says false where perf or the CPU cannot.
func startInstructions(ctx context.Context, pid int) func() (float64, bool) {
	none := func() (float64, bool) { return 0, false }
	cmd := exec.CommandContext(ctx, "perf", "stat", "-x", ",", "-e", "instructions:u", "-p", strconv.Itoa(pid))
	var errs strings.Builder
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		return none
	}
	return func() (float64, bool) {
		_ = cmd.Process.Signal(os.Interrupt) // it prints its counts then
		_ = cmd.Wait()                       // ended by the interrupt
		first, _, _ := strings.Cut(strings.TrimSpace(errs.String()), ",")
		n, err := strconv.ParseFloat(first, 64)
		return n, err == nil && n > 0
	}
}
