package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// bench is one run.
type bench struct {
	bin        string // the stet binary under test
	self       string // this program
	work       string // data of the run, removed at the end
	gib        float64
	rounds     int
	partitions int // of idle-10k
	rows       []row
	raws       map[string]float64 // raw loop CPU-s/GiB by shape, of this run

	mu   sync.Mutex
	ends []func()
}

// onEnd registers what is to be undone at the end, last first.
func (b *bench) onEnd(f func()) {
	b.mu.Lock()
	b.ends = append(b.ends, f)
	b.mu.Unlock()
}

func (b *bench) close() {
	for _, f := range slices.Backward(b.ends) {
		f()
	}
	_ = os.RemoveAll(b.work) // in the system's temporary folder
}

func (b *bench) add(r row) {
	b.rows = append(b.rows, r)
	fmt.Fprintf(os.Stderr, "  %s\n", strings.Join(r.cells(), " | "))
}

func (b *bench) bytes() int64 { return int64(b.gib * (1 << 30)) }

func (b *bench) dir(name string) string { return filepath.Join(b.work, name) }

type scenario struct {
	name string
	run  func(context.Context, *bench) error
}

var scenarios = []scenario{
	{"catchup-16k", func(ctx context.Context, b *bench) error { return b.catchup(ctx, shape16k, 1.5) }},
	{"catchup-1k", func(ctx context.Context, b *bench) error { return b.catchup(ctx, shape1k, 2.5) }},
	{"catchup-1m", func(ctx context.Context, b *bench) error { return b.catchup(ctx, shape1m, 0) }},
	{"tail-half-rate", func(ctx context.Context, b *bench) error { return b.tail(ctx) }},
	{"produce-16k", func(ctx context.Context, b *bench) error { return b.produce(ctx) }},
	{"consume-tail", func(ctx context.Context, b *bench) error { return b.consumeTail(ctx) }},
	{"consume-cold", func(ctx context.Context, b *bench) error { return b.consumeCold(ctx) }},
	{"idle-10k", func(ctx context.Context, b *bench) error { return b.idle(ctx) }},
	{"log-10k", func(ctx context.Context, b *bench) error { return b.logs(ctx) }},
	{"recovery", func(ctx context.Context, b *bench) error { return b.recovery(ctx) }},
	{"throttle", func(ctx context.Context, b *bench) error { return b.throttle(ctx) }},
	{"failover", func(ctx context.Context, b *bench) error { return b.failover(ctx) }},
	{"raw-loops", func(ctx context.Context, b *bench) error { return b.rawLoops(ctx) }},
	{"wan-80ms", func(ctx context.Context, b *bench) error { return b.wan(ctx) }},
	{"loadgen-own", func(ctx context.Context, b *bench) error { return b.loadgenOwn(ctx) }},
}

func names(list []scenario) string {
	var n []string
	for _, s := range list {
		n = append(n, s.name)
	}
	return strings.Join(n, ",")
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "benchmarks: %v\n", err)
		os.Exit(1)
	}
}

func command(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("usage: benchmarks run|peers|profile|gate [flags]; --help of each")
	}
	switch args[0] {
	case "run":
		return runCommand(ctx, "make bench", scenarios, args[1:])
	case "peers":
		return runCommand(ctx, "make bench-peers", peers, args[1:])
	case "profile":
		return profileCommand(ctx, args[1:])
	case "gate":
		return gateCommand(ctx, args[1:])
	case "receive":
		return receiveCommand(ctx, args[1:])
	case "openlog":
		return openCommand(ctx, args[1:])
	case "scan":
		return scanCommand(args[1:])
	case "send":
		return sendCommand(args[1:])
	case "discard":
		return discardCommand(ctx)
	case "touch":
		return touchCommand(args[1:])
	}
	return fmt.Errorf("unknown command %q", args[0])
}

// runCommand runs scenarios and prints the table; a missed goal is a result, not an error.
func runCommand(ctx context.Context, section string, list []scenario, args []string) (err error) {
	fs := flag.NewFlagSet(section, flag.ContinueOnError)
	only := fs.String("scenarios", names(list), "which to run, separated by commas")
	gib := fs.Float64("gib", 1, "GiB of batches per topic")
	rounds := fs.Int("rounds", 3, "rounds of subject and baseline in turn")
	parts := fs.Int("partitions", 10000, "partitions of idle-10k")
	bin := fs.String("stet", "bin/stet", "the binary to measure")
	results := fs.String("results", "", "file to write the table to, such as benchmarks/RESULTS.md")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *gib <= 0 || *rounds < 1 || *parts < 1 {
		return errors.New("--gib, --rounds and --partitions are above 0")
	}
	b, err := newBench(*bin)
	if err != nil {
		return err
	}
	defer b.close()
	b.gib, b.rounds, b.partitions = *gib, *rounds, *parts
	before := load()
	if err := b.touch(ctx); err != nil {
		return err
	}
	var failed []error
	for _, name := range strings.Split(*only, ",") {
		i := slices.IndexFunc(list, func(s scenario) bool { return s.name == name })
		if i < 0 {
			return fmt.Errorf("scenario %q is not one of %s", name, names(list))
		}
		fmt.Fprintf(os.Stderr, "%s\n", name)
		if err := list[i].run(ctx, b); err != nil {
			fmt.Fprintf(os.Stderr, "  FAILED: %v\n", err)
			failed = append(failed, fmt.Errorf("%s: %w", name, err))
		}
		if ctx.Err() != nil {
			break // what was measured is shown, but is no results file
		}
	}
	printTable(os.Stdout, b.rows)
	fmt.Printf("\nload average before and after: %s; %s. Figures count as ratios within this run only.\n", before, load())
	if *results != "" && len(b.rows) > 0 && ctx.Err() == nil {
		cmd := section
		if len(args) > 0 {
			cmd = "benchmarks " + os.Args[1] + " " + strings.Join(args, " ")
		}
		if err := writeResults(*results, section, cmd, before, b.rows); err != nil {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

func newBench(bin string) (*bench, error) {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(bin); err != nil {
		return nil, fmt.Errorf("the binary to measure: %w (make build)", err)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	work, err := os.MkdirTemp("", "stet-bench-")
	if err != nil {
		return nil, err
	}
	return &bench{bin: bin, self: self, work: work, raws: map[string]float64{}}, nil
}

// decode reads what a child printed.
func decode(out []byte, v any) error {
	if err := json.Unmarshal(out, v); err != nil {
		return fmt.Errorf("a child printed %q: %w", out, err)
	}
	return nil
}
