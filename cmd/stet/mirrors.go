package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"stet/broker/mirror/mirrorstate"
	"stet/broker/mirrormsg"
)

// mirrorFlags are the flags of `stet mirrors`, those of the published kafka-mirrors.sh.
type mirrorFlags struct {
	bootstrap, commandConfig, mirror, mirrorConfig, topics, exclude, wait      string
	create, start, stop, pause, resume, remove, list, describe, failed, asJSON bool
	dryRun, overwrite, version                                                 bool
	waitLagZero                                                                int64
	timeout                                                                    time.Duration
}

func mirrorsCommand() *cobra.Command {
	var f mirrorFlags
	cmd := &cobra.Command{
		Use:   "mirrors",
		Short: "Create, start, stop and look at mirrors",
		Long: "Create, start, stop and look at mirrors.\n\n" +
			"One action per call: --create, --start, --stop, --pause, --resume, --delete, --list or --describe.\n" +
			"An item of --topics that is a legal topic name is a name, anything else is an RE2 pattern.",
		Example: "  stet mirrors --bootstrap-server 127.0.0.1:9092 --create --mirror prod --mirror-config prod.properties\n" +
			"  stet mirrors --bootstrap-server 127.0.0.1:9092 --start --topics 'orders,payments.*' --mirror prod\n" +
			"  stet mirrors --bootstrap-server 127.0.0.1:9092 --describe --mirror prod",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.bootstrap, "bootstrap-server", "", "HOST:PORT of a broker of the destination, several separated by commas")
	fl.StringVar(&f.commandConfig, "command-config", "", "properties file with client settings")
	fl.BoolVar(&f.create, "create", false, "create a mirror")
	fl.BoolVar(&f.start, "start", false, "start mirroring topics")
	fl.BoolVar(&f.stop, "stop", false, "stop mirroring topics and make them writable (fail over)")
	fl.BoolVar(&f.pause, "pause", false, "pause mirroring of topics; they stay read-only")
	fl.BoolVar(&f.resume, "resume", false, "resume paused topics")
	fl.BoolVar(&f.remove, "delete", false, "delete a mirror whose topics are all stopped")
	fl.BoolVar(&f.list, "list", false, "list mirrors")
	fl.BoolVar(&f.describe, "describe", false, "show partitions with state and lag")
	fl.StringVar(&f.mirror, "mirror", "", "name of the mirror")
	fl.StringVar(&f.mirrorConfig, "mirror-config", "", "properties file with the mirror's settings (with --create); bootstrap.servers is required")
	fl.StringVar(&f.topics, "topics", "", "topic names and RE2 patterns, separated by commas")
	fl.StringVar(&f.topics, "topic", "", "the same as --topics")
	fl.StringVar(&f.exclude, "exclude", "", "RE2 patterns of topics that are not to be started (with --start)")
	fl.BoolVar(&f.dryRun, "dry-run", false, "only report what --start would cut or --stop would do")
	fl.BoolVar(&f.overwrite, "overwrite", false, "cut everything that a topic of our own holds (with --start)")
	fl.Int64Var(&f.waitLagZero, "wait-lag-zero", -1, "stop only when caught up, waiting at most this many milliseconds (with --stop)")
	fl.BoolVar(&f.failed, "failed", false, "show only failed partitions with their errors (with --describe)")
	fl.BoolVar(&f.asJSON, "json", false, "print JSON (with --describe and --stop)")
	fl.StringVar(&f.wait, "wait", "", "with --describe: wait until every partition is in this state, or lag-zero")
	fl.BoolVar(&f.version, "version", false, "print the version")
	fl.DurationVar(&f.timeout, "timeout", time.Minute, "limit of --wait")
	return cmd
}

func (f *mirrorFlags) run(cmd *cobra.Command) error {
	if f.version {
		fmt.Println(version)
		return nil
	}
	actions := 0
	for _, on := range []bool{f.create, f.start, f.stop, f.pause, f.resume, f.remove, f.list, f.describe} {
		if on {
			actions++
		}
	}
	if actions != 1 {
		return usagef("mirrors needs exactly one of --create, --start, --stop, --pause, --resume, --delete, --list and --describe")
	}
	if err := f.check(); err != nil {
		return err
	}
	cl, err := connect(cmd.Context(), f.bootstrap, f.commandConfig)
	if err != nil {
		return err
	}
	defer cl.Close()
	m := mirrorClient{cmd, cl, f}
	switch {
	case f.create:
		return m.create()
	case f.start:
		return m.start()
	case f.stop:
		return m.stop()
	case f.pause, f.resume:
		return m.pauseOrResume()
	case f.remove:
		return m.remove()
	case f.list:
		return m.list()
	}
	return m.describe()
}

func (f *mirrorFlags) check() error {
	need := func(on bool, flag, value, action string) error {
		if on && value == "" {
			return usagef("%s needs %s", action, flag)
		}
		return nil
	}
	allowed := func(set bool, flag string, ok bool, where string) error {
		if set && !ok {
			return usagef("%s goes with %s", flag, where)
		}
		return nil
	}
	withTopics := f.start || f.stop || f.pause || f.resume
	return errors.Join(
		need(f.create || withTopics || f.remove, "--mirror", f.mirror, "this action"),
		need(f.create, "--mirror-config", f.mirrorConfig, "--create"),
		need(withTopics, "--topics", f.topics, "this action"),
		allowed(f.dryRun, "--dry-run", f.start || f.stop, "--start and --stop"),
		allowed(f.overwrite, "--overwrite", f.start, "--start"),
		allowed(f.exclude != "", "--exclude", f.start, "--start"),
		allowed(f.waitLagZero >= 0, "--wait-lag-zero", f.stop, "--stop"),
		allowed(f.failed, "--failed", f.describe, "--describe"),
		allowed(f.topics != "", "--topics", withTopics || f.describe, "--start, --stop, --pause, --resume and --describe"),
		allowed(f.wait != "", "--wait", f.describe, "--describe"),
		f.checkWait(),
		allowed(f.asJSON, "--json", f.describe || f.stop, "--describe and --stop"),
	)
}

// lagZero is what --wait takes beside the states.
const lagZero = "LAG_ZERO"

// wanted is the state that --wait names, or lagZero.
func (f *mirrorFlags) wanted() string { return strings.ToUpper(strings.ReplaceAll(f.wait, "-", "_")) }

func (f *mirrorFlags) checkWait() error {
	if f.wait == "" || f.wanted() == lagZero {
		return nil
	}
	if _, err := mirrorstate.Parse(f.wanted()); err == nil {
		return nil
	}
	var states []string
	for _, s := range mirrorstate.All {
		states = append(states, s.String())
	}
	return usagef("--wait %q; allowed are lag-zero and the states %s", f.wait, strings.Join(states, ", "))
}

type mirrorClient struct {
	cmd *cobra.Command
	cl  *kgo.Client
	f   *mirrorFlags
}

// refused turns an answer's code into an error with the server's words.
func refused(code int16, msg *string) error {
	err := mirrormsg.ErrorForCode(code)
	if err == nil {
		return nil
	}
	if msg != nil && *msg != "" {
		return fmt.Errorf("%s: %s", mirrormsg.CodeName(code), *msg)
	}
	return err
}

func (m mirrorClient) create() error {
	p, err := readProperties(m.f.mirrorConfig)
	if err != nil {
		return err
	}
	req := mirrormsg.NewPtrCreateMirrorRequest()
	req.MirrorName = m.f.mirror
	keys := p.Keys()
	sort.Strings(keys)
	for _, k := range keys {
		c := mirrormsg.NewCreateMirrorRequestConfig()
		v := p.GetString(k, "")
		c.Name, c.Value = k, &v
		req.Config = append(req.Config, c)
	}
	resp, err := req.RequestWith(m.cmd.Context(), m.cl)
	if err != nil {
		return err
	}
	if err := refused(resp.ErrorCode, resp.ErrorMessage); err != nil {
		return err
	}
	fmt.Printf("Created mirror %s\n", m.f.mirror)
	if resp.ErrorMessage != nil && *resp.ErrorMessage != "" {
		fmt.Fprintln(os.Stderr, *resp.ErrorMessage)
	}
	return nil
}

// split sorts items into topic names and patterns (SPEC section 15).
func split(items string) (names, patterns []string) {
	for _, it := range strings.Split(items, ",") {
		it = strings.TrimSpace(it)
		switch {
		case it == "":
		case isTopicName(it):
			names = append(names, it)
		default:
			patterns = append(patterns, it)
		}
	}
	return names, patterns
}

func isTopicName(s string) bool {
	if s == "" || s == "." || s == ".." || len(s) > 249 {
		return false
	}
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == ""
}

func (m mirrorClient) start() error {
	req := mirrormsg.NewPtrStartMirrorTopicsRequest()
	req.MirrorName, req.DryRun, req.Overwrite = m.f.mirror, m.f.dryRun, m.f.overwrite
	names, patterns := split(m.f.topics)
	for _, n := range names {
		t := mirrormsg.NewStartMirrorTopicsRequestTopic()
		t.TopicName = n
		req.Topics = append(req.Topics, t)
	}
	req.IncludePatterns = patterns
	for _, p := range strings.Split(m.f.exclude, ",") {
		if p = strings.TrimSpace(p); p != "" {
			req.ExcludePatterns = append(req.ExcludePatterns, p)
		}
	}
	resp, err := req.RequestWith(m.cmd.Context(), m.cl)
	if err != nil {
		return err
	}
	if err := refused(resp.ErrorCode, resp.ErrorMessage); err != nil {
		return err
	}
	done, failed := m.results(resp.Topics)
	if m.f.dryRun {
		for i := range resp.Topics {
			t := &resp.Topics[i]
			if t.ErrorCode != 0 {
				continue
			}
			if len(t.Cuts) == 0 {
				fmt.Printf("%s: nothing would be cut\n", t.Name)
			}
			for _, c := range t.Cuts {
				fmt.Printf("%s-%d: offsets %d to %d would be cut (%d records)\n", t.Name, c.PartitionIndex, c.FromOffset, c.ToOffset-1, c.ToOffset-c.FromOffset)
			}
		}
	} else if len(done) > 0 || failed == nil {
		fmt.Printf("Started %d mirror topic(s) in mirror %s: [%s]\n", len(done), m.f.mirror, strings.Join(done, ", "))
	}
	if resp.ErrorMessage != nil && *resp.ErrorMessage != "" {
		fmt.Fprintln(os.Stderr, *resp.ErrorMessage)
	}
	if len(patterns) > 0 && !m.f.dryRun {
		fmt.Fprintf(os.Stderr, "patterns kept in mirror.topics.include, so topics that match later are started too: %s\n", strings.Join(patterns, ", "))
	}
	return failed
}

// results lists the topics that went well and joins the errors of the others.
func (m mirrorClient) results(topics []mirrormsg.MirrorTopicResult) (done []string, err error) {
	var errs []error
	for i := range topics {
		t := &topics[i]
		if e := refused(t.ErrorCode, t.ErrorMessage); e != nil {
			errs = append(errs, fmt.Errorf("%s: %w", t.Name, e))
			continue
		}
		if t.ErrorMessage != nil && *t.ErrorMessage != "" {
			fmt.Fprintf(os.Stderr, "%s: %s\n", t.Name, *t.ErrorMessage)
		}
		done = append(done, t.Name)
	}
	asked, _ := split(m.f.topics)
	at := func(name string) int { // names in the order they were given, what patterns found after them
		if i := slices.Index(asked, name); i >= 0 {
			return i
		}
		return len(asked)
	}
	slices.SortStableFunc(done, func(a, b string) int { return at(a) - at(b) })
	return done, errors.Join(errs...)
}

func (m mirrorClient) stop() error {
	req := mirrormsg.NewPtrStopMirrorTopicsRequest()
	req.MirrorName, req.DryRun, req.WaitLagZeroMs = m.f.mirror, m.f.dryRun, m.f.waitLagZero
	names, patterns := split(m.f.topics)
	for _, n := range names {
		t := mirrormsg.NewStopMirrorTopicsRequestTopic()
		t.TopicName = n
		req.Topics = append(req.Topics, t)
	}
	req.Patterns = patterns
	resp, err := req.RequestWith(m.cmd.Context(), m.cl)
	if err != nil {
		return err
	}
	if err := refused(resp.ErrorCode, resp.ErrorMessage); err != nil {
		return err
	}
	done, failed := m.results(resp.Topics)
	if len(patterns) > 0 && !m.f.dryRun {
		fmt.Fprintf(os.Stderr, "topics that match are not started again by themselves (mirror.topics.include, mirror.topics.exclude): %s\n", strings.Join(patterns, ", "))
	}
	if len(done) == 0 && failed == nil {
		return fmt.Errorf("no topic of mirror %s matches %s", m.f.mirror, m.f.topics)
	}
	switch {
	case m.f.asJSON:
		if err := printStopJSON(resp, m.f.dryRun); err != nil {
			return err
		}
	case m.f.dryRun:
		printStops(resp, "would stop")
	default:
		if len(done) > 0 || failed == nil {
			fmt.Printf("Stopped mirroring for %d topic(s) in mirror %s: [%s]\n", len(done), m.f.mirror, strings.Join(done, ", "))
		}
		printStops(resp, "stopped")
	}
	return failed
}

func unknown(n int64) string {
	if n < 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

func orNull(n int64) any {
	if n < 0 {
		return nil
	}
	return n
}

func printStops(resp *mirrormsg.StopMirrorTopicsResponse, verb string) {
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for _, s := range t.Stops {
			fmt.Printf("%s-%d: %s at %s, source end last seen %s (%s records behind, seen %s ms ago), %s markers, %s ms\n", t.Name, s.PartitionIndex, verb,
				unknown(s.LastMirrorOffset), unknown(s.SourceOffset), unknown(s.Behind), unknown(s.SightAgeMs), unknown(int64(s.Markers)), unknown(s.DurationMs))
		}
	}
}

func printStopJSON(resp *mirrormsg.StopMirrorTopicsResponse, dryRun bool) error {
	rows := []map[string]any{}
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for _, s := range t.Stops {
			rows = append(rows, map[string]any{
				"mirror": resp.MirrorName, "topic": t.Name, "partition": s.PartitionIndex, "lastMirrorOffset": orNull(s.LastMirrorOffset),
				"sourceOffset": orNull(s.SourceOffset), "behind": orNull(s.Behind), "sightAgeMs": orNull(s.SightAgeMs),
				"markers": orNull(int64(s.Markers)), "durationMs": orNull(s.DurationMs), "dryRun": dryRun,
			})
		}
	}
	return json.NewEncoder(os.Stdout).Encode(rows)
}

func (m mirrorClient) remove() error {
	req := mirrormsg.NewPtrDeleteMirrorRequest()
	req.MirrorName = m.f.mirror
	resp, err := req.RequestWith(m.cmd.Context(), m.cl)
	if err != nil {
		return err
	}
	if err := refused(resp.ErrorCode, resp.ErrorMessage); err != nil {
		return err
	}
	fmt.Printf("Deleted mirror %s\n", m.f.mirror)
	fmt.Fprintln(os.Stderr, "what a failback with this mirror would need is gone")
	return nil
}
