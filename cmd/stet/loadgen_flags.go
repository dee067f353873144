package main

import (
	"errors"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"stet/loadgen"
)

// loadFlags are the flags of the load generator's scenarios.
type loadFlags struct {
	scenario                                           string
	o                                                  loadgen.Options
	rate, recordSize, batchSize, acks                  string
	manifest, jsonFile, hdrFile, htmlFile, profileKind string
	cpu                                                []string
	bootstrap, topic, source, destination, mirror, re  string
	rates, fill                                        string
	each                                               time.Duration
	rounds, sourcePID                                  int

	fillBytes     int64
	throttleRates []int64
}

// Groups of flags that scenarios use.
const (
	shapeFlags = "record-size batch-size compression acks producers seed"
	pacedFlags = shapeFlags + " rate linger duration warmup in-flight max-slip"
)

// uses says which of the common flags mean something to a scenario, and why the others do not.
var uses = map[string]struct{ flags, why string }{
	"produce":  {pacedFlags + " partitions create manifest cpu hdr", ""},
	"consume":  {"duration cpu", "it reads what is there, as fast as it comes"},
	"e2e":      {pacedFlags + " partitions create manifest cpu hdr", ""},
	"lag":      {pacedFlags + " manifest cpu hdr", "the topic is a mirrored one"},
	"failover": {pacedFlags + " rounds source-pid hdr", "it measures moments of mirrored topics"},
	"failback": {pacedFlags + " rounds hdr", "it measures moments of mirrored topics"},
	"catchup":  {shapeFlags + " in-flight fill cpu", "it writes as fast as it can, and lasts until the mirror has caught up"},
	"throttle": {shapeFlags + " in-flight fill rates each", "it writes as fast as it can, and lasts for --each of every rate"},
}

// everywhere are the flags that every scenario has.
const everywhere = "json html profile"

// register adds the scenario's flags. Common ones that it does not use are there to be refused with the reason.
func (f *loadFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.rate, "rate", "", "open-loop rate: 20MB (per second) or 5000 (records per second); default: as fast as acknowledged")
	fl.StringVar(&f.recordSize, "record-size", "1000", "bytes of a record's value")
	fl.StringVar(&f.batchSize, "batch-size", "16384", "bytes of a batch before compression")
	fl.DurationVar(&f.o.Linger, "linger", 5*time.Millisecond, "how long a batch waits for more records")
	fl.StringVar(&f.o.Compression, "compression", "none", "none, gzip, snappy, lz4 or zstd")
	fl.StringVar(&f.acks, "acks", "all", "all, 1 or 0")
	fl.IntVar(&f.o.Partitions, "partitions", 1, "partitions of a topic made with --create")
	fl.BoolVar(&f.o.Create, "create", false, "create the topic when it is missing")
	fl.IntVar(&f.o.Producers, "producers", 1, "producers, each with connections of its own")
	fl.IntVar(&f.o.InFlight, "in-flight", 0, "unanswered requests of a connection; 0: 5 at a --rate, else as many as fit into 256 MiB")
	fl.DurationVar(&f.o.Duration, "duration", 30*time.Second, "measured time")
	fl.DurationVar(&f.o.Warmup, "warmup", 3*time.Second, "time before the measured time")
	fl.DurationVar(&f.o.MaxSlip, "max-slip", loadgen.MaxSlip, "how late the generator itself may be (p99), and the last answer beyond a second, in a valid run")
	fl.Uint64Var(&f.o.Seed, "seed", 1, "seed of the payload")
	fl.StringVar(&f.manifest, "manifest", "", "file for every acknowledged offset")
	fl.StringArrayVar(&f.cpu, "cpu", nil, "NAME=PID: report CPU seconds per GiB of that process (repeatable)")
	fl.StringVar(&f.jsonFile, "json", "", "file for the report as JSON")
	fl.StringVar(&f.htmlFile, "html", "", "file for the report as a page with plots")
	fl.StringVar(&f.hdrFile, "hdr", "", "file for the histograms as an HdrHistogram log")
	fl.StringVar(&f.profileKind, "profile", "", "profile the load generator: cpu, mem, mutex or block")
	switch f.scenario {
	case "throttle":
		fl.StringVar(&f.rates, "rates", "50MB,200MB,20MB", "bytes per second, one after the other")
		fl.DurationVar(&f.each, "each", 15*time.Second, "how long each rate holds, at least 3s")
		fl.StringVar(&f.fill, "fill", "", "how much to write to the source first; default: 1.2 times what the rates let through")
	case "catchup":
		fl.StringVar(&f.fill, "fill", "", "how much to write to the source first, such as 4GiB")
	case "failover", "failback":
		fl.IntVar(&f.rounds, "rounds", 1, "how often to stop; between rounds the mirror is started again")
	}
	if f.scenario == "failover" {
		fl.IntVar(&f.sourcePID, "source-pid", 0, "process to kill right before the stop (with --rounds 1)")
	}
	for _, name := range strings.Fields(pacedFlags + " partitions create manifest cpu hdr") {
		if !f.used(name) {
			fl.Lookup(name).Hidden = true
		}
	}
}

// used says whether a flag means something to the scenario.
func (f *loadFlags) used(name string) bool {
	for _, u := range strings.Fields(uses[f.scenario].flags + " " + everywhere) {
		if u == name {
			return true
		}
	}
	return false
}

// check reads the flags; whatever is wrong with them is wrong usage.
func (f *loadFlags) check(cmd *cobra.Command) error {
	fl := cmd.Flags()
	for _, name := range strings.Fields(pacedFlags + " partitions create manifest cpu hdr") {
		if !f.used(name) && fl.Changed(name) {
			return usagef("loadgen %s does not use --%s: %s", f.scenario, name, uses[f.scenario].why)
		}
	}
	if fl.Changed("partitions") && !f.o.Create {
		return usagef("--partitions is for a topic that is made with --create")
	}
	if err := f.parse(); err != nil {
		return err
	}
	switch {
	case f.manifest != "" && f.o.Acks == 0:
		return usagef("--manifest needs acknowledgements, so --acks is not 0")
	case f.o.Acks == 0 && (f.scenario == "e2e" || f.scenario == "lag" || f.scenario == "failover"):
		return usagef("--acks 0: loadgen %s needs to know which offset a record got; allowed are all and 1", f.scenario)
	case fl.Changed("max-slip") && f.o.MaxSlip <= 0:
		return usagef("--max-slip %s is not above 0", f.o.MaxSlip)
	case fl.Lookup("rounds") != nil && f.rounds < 1:
		return usagef("--rounds %d is not above 0", f.rounds)
	case f.sourcePID < 0:
		return usagef("--source-pid %d is no process", f.sourcePID)
	case f.sourcePID != 0 && f.rounds > 1:
		return usagef("--source-pid kills the source, so --rounds must be 1")
	case fl.Lookup("each") != nil && (f.each < 3*time.Second || f.each > time.Hour):
		return usagef("--each %s; allowed are 3s to 1h", f.each)
	case f.profileKind != "" && profiles[f.profileKind] == nil:
		return usagef("--profile %q; allowed are cpu, mem, mutex and block", f.profileKind)
	}
	if _, err := regexp.Compile(f.re); err != nil {
		return usagef("--topics %q is not an RE2 pattern: %s", f.re, strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	if f.scenario == "failback" { // nothing needs to be asked for that
		return errors.New("failback needs a source that mirrors, and a Stet that fails back to it; this version does neither")
	}
	return nil
}

func (f *loadFlags) parse() error {
	var err error
	if f.rate != "" {
		if f.o.Rate, err = loadgen.ParseRate(f.rate); err != nil {
			return usagef("--rate: %w", err)
		}
	}
	if f.fill != "" {
		n, err := loadgen.ParseSize(f.fill)
		if err != nil || n == 0 || n > 1<<50 {
			return usagef("--fill %q is not a size above 0 and up to 1024TiB, such as 4GiB", f.fill)
		}
		f.fillBytes = n
	}
	f.throttleRates = nil
	for _, s := range strings.FieldsFunc(f.rates, func(r rune) bool { return r == ',' }) {
		r, err := loadgen.ParseRate(strings.TrimSpace(s))
		if err != nil || !r.Bytes {
			return usagef("--rates: %q is not a size per second above 0 and up to 1TB, such as 50MB", s)
		}
		f.throttleRates = append(f.throttleRates, int64(r.PerSecond))
	}
	if f.scenario == "throttle" && len(f.throttleRates) == 0 {
		return usagef("--rates names no rate; example: 50MB,200MB,20MB")
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
		if !ok || err != nil || name == "" || n < 1 {
			return usagef("--cpu %q is not NAME=PID", c)
		}
		f.o.CPU[name] = n
	}
	if err := f.o.Check(); err != nil {
		return usageError{err}
	}
	return nil
}

// catchup are the options of the scenarios that drain a backlog.
func (f *loadFlags) catchup() loadgen.CatchupOptions {
	return loadgen.CatchupOptions{Options: f.o, Source: f.source, Destination: f.destination, Mirror: f.mirror, Topics: f.re, Fill: f.fillBytes}
}
