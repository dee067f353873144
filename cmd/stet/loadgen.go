package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/pkg/profile"
	"github.com/spf13/cobra"

	"stet/loadgen"
)

// loadFlags are the common flags of the load generator.
type loadFlags struct {
	o                                                  loadgen.Options
	rate, recordSize, batchSize, acks                  string
	manifest, jsonFile, hdrFile, htmlFile, profileKind string
	cpu                                                []string
	bootstrap, topic, source, destination, mirror, re  string
	rates                                              string
	each                                               time.Duration
	fill                                               string
	rounds, sourcePID                                  int
}

func loadgenCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "loadgen",
		Short:   "Put a load on a cluster and measure it honestly",
		Long:    "Put an open-loop load on a cluster and measure response times, replication lag and fail-over.",
		Example: "  stet loadgen produce --bootstrap-server 127.0.0.1:9092 --topic load --create --rate 20MB --duration 30s",
	}
	cmd.AddCommand(
		loadScenario("produce", "Write to a topic and measure acknowledgements",
			"  stet loadgen produce --bootstrap-server 127.0.0.1:9092 --topic load --create --partitions 4 --rate 20MB --duration 30s",
			[]string{"bootstrap-server", "topic"}, func(ctx context.Context, f *loadFlags) (*loadgen.Report, error) {
				return loadgen.Produce(ctx, f.bootstrap, f.topic, f.o)
			}),
		loadScenario("consume", "Read a topic from its start to its end",
			"  stet loadgen consume --bootstrap-server 127.0.0.1:9092 --topic load",
			[]string{"bootstrap-server", "topic"}, func(ctx context.Context, f *loadFlags) (*loadgen.Report, error) {
				return loadgen.Consume(ctx, f.bootstrap, f.topic, f.o)
			}),
		loadScenario("e2e", "Write to a topic and measure when each record can be read there",
			"  stet loadgen e2e --bootstrap-server 127.0.0.1:9092 --topic load --create --rate 5MB --duration 30s",
			[]string{"bootstrap-server", "topic"}, func(ctx context.Context, f *loadFlags) (*loadgen.Report, error) {
				return loadgen.E2E(ctx, f.bootstrap, f.topic, f.o)
			}),
		loadScenario("catchup", "Pause a mirror, fill its source, and measure how fast it drains",
			"  stet loadgen catchup --source 127.0.0.1:19092 --destination 127.0.0.1:9092 --mirror prod --topics 'orders.*' --fill 4GiB",
			[]string{"source", "destination", "mirror", "topics"}, func(ctx context.Context, f *loadFlags) (*loadgen.Report, error) {
				o := loadgen.CatchupOptions{Options: f.o, Source: f.source, Destination: f.destination, Mirror: f.mirror, Topics: f.re}
				if f.fill != "" {
					n, err := loadgen.ParseSize(f.fill)
					if err != nil {
						return nil, usagef("--fill: %w", err)
					}
					o.Fill = n
				}
				return loadgen.Catchup(ctx, o)
			}),
		loadScenario("throttle", "Throttle a mirror at one rate after the other while it drains a backlog",
			"  stet loadgen throttle --source 127.0.0.1:19092 --destination 127.0.0.1:9092 --mirror prod --topics 'orders.*' --rates 50MB,200MB,20MB --each 15s",
			[]string{"source", "destination", "mirror", "topics"}, func(ctx context.Context, f *loadFlags) (*loadgen.Report, error) {
				o := loadgen.ThrottleOptions{
					CatchupOptions: loadgen.CatchupOptions{Options: f.o, Source: f.source, Destination: f.destination, Mirror: f.mirror, Topics: f.re}, Each: f.each,
				}
				for _, s := range strings.Split(f.rates, ",") {
					r, err := loadgen.ParseRate(strings.TrimSpace(s))
					if err != nil {
						return nil, usagef("--rates: %w", err)
					}
					o.Rates = append(o.Rates, int64(r.PerSecond))
				}
				return loadgen.RunThrottle(ctx, o)
			}),
		loadScenario("failback", "Fail back to the old source (refused until mirrors can)",
			"  stet loadgen failback --source 127.0.0.1:19092 --destination 127.0.0.1:9092 --mirror prod --topics 'orders.*'",
			[]string{"source", "destination", "mirror", "topics"}, func(context.Context, *loadFlags) (*loadgen.Report, error) {
				return nil, errors.New("failback needs a source that mirrors, and a Stet that fails back to it; this version does neither")
			}),
		loadScenario("lag", "Load the source of a mirror and measure replication lag against a control consumer",
			"  stet loadgen lag --source 127.0.0.1:19092 --destination 127.0.0.1:9092 --topic orders --rate 20MB --duration 30s",
			[]string{"source", "destination", "topic"}, func(ctx context.Context, f *loadFlags) (*loadgen.Report, error) {
				return loadgen.Lag(ctx, f.source, f.destination, f.topic, f.o)
			}),
		loadScenario("failover", "Stop a mirror under load and measure how soon its topics are writable",
			"  stet loadgen failover --source 127.0.0.1:19092 --destination 127.0.0.1:9092 --mirror prod --topics 'orders.*' --rounds 10",
			[]string{"source", "destination", "mirror", "topics"}, func(ctx context.Context, f *loadFlags) (*loadgen.Report, error) {
				return loadgen.Failover(ctx, loadgen.FailoverOptions{
					Options: f.o, Source: f.source, Destination: f.destination, Mirror: f.mirror, Topics: f.re, Rounds: f.rounds, SourcePID: f.sourcePID,
				})
			}),
	)
	cmd.AddCommand(reportCommand())
	return cmd
}

func loadScenario(name, short, example string, required []string, run func(context.Context, *loadFlags) (*loadgen.Report, error)) *cobra.Command {
	f := &loadFlags{}
	cmd := &cobra.Command{Use: name, Short: short, Example: example, Args: noArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		for _, r := range required {
			if cmd.Flag(r).Value.String() == "" {
				return usagef("loadgen %s needs --%s", name, r)
			}
		}
		return f.run(cmd, run)
	}}
	fl := cmd.Flags()
	for _, r := range required {
		switch r {
		case "bootstrap-server":
			fl.StringVar(&f.bootstrap, r, "", "HOST:PORT of the cluster")
		case "topic":
			fl.StringVar(&f.topic, r, "", "topic")
		case "source":
			fl.StringVar(&f.source, r, "", "HOST:PORT of the mirror's source")
		case "destination":
			fl.StringVar(&f.destination, r, "", "HOST:PORT of the mirror's destination")
		case "mirror":
			fl.StringVar(&f.mirror, r, "", "name of the mirror")
		case "topics":
			fl.StringVar(&f.re, r, "", "RE2 pattern of the mirror's topics")
		}
	}
	fl.StringVar(&f.rate, "rate", "", "open-loop rate: 20MB (per second) or 5000 (records per second); default: as fast as acknowledged")
	fl.StringVar(&f.recordSize, "record-size", "1000", "bytes of a record's value")
	fl.StringVar(&f.batchSize, "batch-size", "16384", "bytes of a batch before compression")
	fl.DurationVar(&f.o.Linger, "linger", 5*time.Millisecond, "how long a batch waits for more records")
	fl.StringVar(&f.o.Compression, "compression", "none", "none, gzip, snappy, lz4 or zstd")
	fl.StringVar(&f.acks, "acks", "all", "all, 1 or 0")
	fl.IntVar(&f.o.Partitions, "partitions", 1, "partitions of a topic made with --create")
	fl.BoolVar(&f.o.Create, "create", false, "create the topic when it is missing")
	fl.IntVar(&f.o.Producers, "producers", 1, "producers, each with connections of its own")
	fl.DurationVar(&f.o.Duration, "duration", 30*time.Second, "measured time")
	fl.DurationVar(&f.o.Warmup, "warmup", 3*time.Second, "time before the measured time")
	fl.Uint64Var(&f.o.Seed, "seed", 1, "seed of the payload")
	fl.StringVar(&f.manifest, "manifest", "", "file for every acknowledged offset")
	fl.StringArrayVar(&f.cpu, "cpu", nil, "NAME=PID: report CPU seconds per GiB of that process (repeatable)")
	fl.StringVar(&f.jsonFile, "json", "", "file for the report as JSON")
	fl.StringVar(&f.htmlFile, "html", "", "file for the report as a page with plots")
	fl.StringVar(&f.hdrFile, "hdr", "", "file for the histograms as an HdrHistogram log")
	fl.StringVar(&f.profileKind, "profile", "", "profile the load generator: cpu, mem, mutex or block")
	if name == "throttle" {
		fl.StringVar(&f.rates, "rates", "50MB,200MB,20MB", "bytes per second, one after the other")
		fl.DurationVar(&f.each, "each", 15*time.Second, "how long each rate holds")
	}
	if name == "catchup" {
		fl.StringVar(&f.fill, "fill", "", "how much to write to the source first, such as 4GiB")
	}
	if name == "failover" {
		fl.IntVar(&f.rounds, "rounds", 1, "how often to stop; between rounds the mirror is started again")
		fl.IntVar(&f.sourcePID, "source-pid", 0, "process to kill right before the stop (with --rounds 1)")
	}
	return cmd
}

func (f *loadFlags) parse() error {
	var err error
	if f.rate != "" {
		if f.o.Rate, err = loadgen.ParseRate(f.rate); err != nil {
			return usagef("--rate: %w", err)
		}
	}
	size := func(flag, v string, out *int) error {
		n, err := loadgen.ParseSize(v)
		if err != nil || n > 64<<20 {
			return usagef("%s %q is not a size up to 64MiB", flag, v)
		}
		*out = int(n)
		return nil
	}
	if err := size("--record-size", f.recordSize, &f.o.RecordSize); err != nil {
		return err
	}
	if err := size("--batch-size", f.batchSize, &f.o.BatchSize); err != nil {
		return err
	}
	switch f.acks {
	case "all", "-1":
		f.o.Acks = -1
	case "1":
		f.o.Acks = 1
	case "0":
		f.o.Acks = 0
	default:
		return usagef("--acks %q; allowed are all, 1 and 0", f.acks)
	}
	f.o.CPU = map[string]int{}
	for _, c := range f.cpu {
		name, pid, ok := strings.Cut(c, "=")
		n, err := strconv.Atoi(pid)
		if !ok || err != nil || name == "" {
			return usagef("--cpu %q is not NAME=PID", c)
		}
		f.o.CPU[name] = n
	}
	if err := f.o.Check(); err != nil {
		return usageError{err}
	}
	return nil
}

// profiles are the kinds of --profile.
var profiles = map[string]func(*profile.Profile){
	"cpu": profile.CPUProfile, "mem": profile.MemProfile, "mutex": profile.MutexProfile, "block": profile.BlockProfile,
}

func (f *loadFlags) run(cmd *cobra.Command, scenario func(context.Context, *loadFlags) (*loadgen.Report, error)) error {
	if err := f.parse(); err != nil {
		return err
	}
	if f.profileKind != "" {
		kind := profiles[f.profileKind]
		if kind == nil {
			return usagef("--profile %q; allowed are cpu, mem, mutex and block", f.profileKind)
		}
		defer profile.Start(kind, profile.ProfilePath("."), profile.NoShutdownHook, profile.Quiet).Stop()
	}
	for flag, file := range map[string]string{"--json": f.jsonFile, "--html": f.htmlFile, "--hdr": f.hdrFile} { // before the run, not after it
		if file == "" {
			continue
		}
		out, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return fmt.Errorf("%s: %w", flag, err)
		}
		out.Close()
	}
	for _, addr := range []string{f.bootstrap, f.source, f.destination} {
		if addr == "" {
			continue
		}
		cl, err := connect(cmd.Context(), addr, "")
		if err != nil {
			return err
		}
		cl.Close()
	}
	if f.manifest != "" {
		m, err := loadgen.OpenManifest(f.manifest, f.topic)
		if err != nil {
			return err
		}
		f.o.Acked = m.Acked
		defer func() {
			if err := m.Close(); err != nil {
				fmt.Fprintf(os.Stderr, "stet: --manifest: %v\n", err)
			}
		}()
	}
	f.o.Progress, f.o.Redraw = os.Stderr, isTerminal(os.Stderr)
	report, err := scenario(cmd.Context(), f)
	if report != nil {
		report.Command, report.Version = "stet "+strings.Join(os.Args[1:], " "), version
	}
	if err != nil {
		return err
	}
	report.WriteText(os.Stdout)
	if report.Failover != nil {
		fmt.Printf("the topics are stopped now; to mirror again: stet mirrors --bootstrap-server %s --start --topics '%s' --mirror %s\n", f.destination, f.re, f.mirror)
	}
	if f.jsonFile != "" {
		if err := report.WriteJSON(f.jsonFile); err != nil {
			return fmt.Errorf("--json: %w", err)
		}
	}
	if f.htmlFile != "" {
		if err := writeHTML(f.htmlFile, []*loadgen.Report{report}); err != nil {
			return fmt.Errorf("--html: %w", err)
		}
	}
	if f.hdrFile != "" {
		if err := report.WriteHDR(f.hdrFile); err != nil {
			return fmt.Errorf("--hdr: %w", err)
		}
	}
	if !report.OK() {
		return fmt.Errorf("a check of the report is not ok")
	}
	return nil
}

func isTerminal(f *os.File) bool {
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}
