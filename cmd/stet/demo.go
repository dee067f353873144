package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"stet/broker"
	"stet/broker/mirrormsg"
	"stet/loadgen"
	"stet/loadgen/verify"
)

// demoMirror is the name of the demo's mirror.
const demoMirror = "demo"

// demoTopics are what the embedded source has.
var demoTopics = []struct {
	name       string
	partitions int32
}{{"orders", 4}, {"payments", 2}}

type demoFlags struct {
	source, topics, rate, dir string
	duration                  time.Duration
}

func demoCommand() *cobra.Command {
	var f demoFlags
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "See a mirror at work: live lag, fail-over and the proof",
		Long: "See a mirror at work: copies topics of your Kafka (--source), or of an embedded one under load,\n" +
			"shows lag live, fails over, writes, and compares every byte. Your Kafka is only read.",
		Example: "  stet demo --source 127.0.0.1:19092 --topics 'orders.*'",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context()) },
	}
	cmd.Flags().StringVar(&f.source, "source", "", "HOST:PORT of your Kafka; without it one is embedded and loaded")
	cmd.Flags().StringVar(&f.topics, "topics", "", "RE2 pattern of the topics to mirror (default: all but internal ones)")
	cmd.Flags().StringVar(&f.rate, "rate", "20MB", "load on the embedded source, per second")
	cmd.Flags().DurationVar(&f.duration, "duration", 30*time.Second, "how long to mirror before the fail-over")
	cmd.Flags().StringVar(&f.dir, "dir", "", "where to keep the data (default: a temporary folder that is removed)")
	return cmd
}

// demo is one run.
type demo struct {
	demoFlags
	load     loadgen.Rate
	dst      *broker.Broker
	cl       *kgo.Client // of the destination
	srcCl    *kgo.Client
	matching []string
	lag      *loadgen.Recorder
	lagName  string
	copied   int64
	took     time.Duration
}

func (f *demoFlags) run(ctx context.Context) (err error) {
	d := &demo{demoFlags: *f, lag: loadgen.NewRecorder()}
	if d.load, err = loadgen.ParseRate(f.rate); err != nil {
		return usagef("--rate: %w", err)
	}
	if f.duration <= 0 {
		return usagef("--duration %s is not above 0", f.duration)
	}
	if _, err := regexp.Compile(f.topics); err != nil {
		return usagef("--topics %q is not an RE2 pattern: %w", f.topics, err)
	}
	if d.dir == "" {
		if d.dir, err = os.MkdirTemp("", "stet-demo-"); err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(d.dir) }() // what is left is in the temporary folder
	} else if d.dir, err = emptyDir(d.dir); err != nil {
		return err
	}
	embedded := d.source == ""
	if embedded {
		src, err := d.startBroker(ctx, "source", 1)
		if err != nil {
			return err
		}
		defer closeBroker(src)
		d.source = src.Addr()
		fmt.Printf("source:      %s (embedded, %s/s of load)\n", d.source, f.rate)
	} else {
		fmt.Printf("source:      %s (only read)\n", d.source)
	}
	if d.srcCl, err = connect(ctx, d.source, ""); err != nil {
		return fmt.Errorf("--source: %w", err)
	}
	defer d.srcCl.Close()
	if d.dst, err = d.startBroker(ctx, "destination", 2); err != nil {
		return err
	}
	defer closeBroker(d.dst)
	fmt.Printf("destination: %s (data in %s)\n", d.dst.Addr(), d.dir)
	if d.cl, err = connect(ctx, d.dst.Addr(), ""); err != nil {
		return err
	}
	defer d.cl.Close()
	if embedded {
		if err := d.createTopics(ctx); err != nil {
			return err
		}
	}
	if err := d.startMirror(ctx); err != nil {
		return err
	}
	if err := d.watch(ctx, embedded); err != nil {
		return err
	}
	sw, err := loadgen.SwitchOver(ctx, d.dst.Addr(), demoMirror, d.matching)
	if err != nil {
		return fmt.Errorf("fail-over: %w", err)
	}
	bounds, err := mirroredTo(ctx, d.cl, demoMirror)
	if err != nil {
		return err
	}
	report, err := verify.Clusters(ctx, d.srcCl, d.cl, func(t string) bool { _, ok := bounds[t]; return ok }, bounds.at)
	if err != nil {
		return err
	}
	d.summary(os.Stdout, sw, report)
	if !report.Equal {
		return errSilent
	}
	return nil
}

// emptyDir is the absolute name of a folder that holds nothing, or is not there yet.
func emptyDir(name string) (string, error) {
	found, err := os.ReadDir(name)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case errors.Is(err, syscall.ENOTDIR):
		return "", fmt.Errorf("--dir: %s is not a folder", name)
	case err != nil:
		return "", fmt.Errorf("--dir: %w", err)
	case len(found) > 0:
		return "", fmt.Errorf("--dir: %s is not empty; a demo needs a new or an empty folder", name)
	}
	return filepath.Abs(name)
}

func (d *demo) startBroker(ctx context.Context, name string, node int) (*broker.Broker, error) {
	cfg, err := broker.LoadConfig("", []string{
		"node.id=" + fmt.Sprint(node), "listeners=PLAINTEXT://127.0.0.1:0", "http.listener=", "log.dirs=" + filepath.Join(d.dir, name),
		"mirror.metadata.refresh.interval.ms=5000",
	})
	if err != nil {
		return nil, err
	}
	return broker.Start(ctx, cfg, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})), version)
}

func closeBroker(b *broker.Broker) {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownPatience)
	defer cancel()
	if err := b.Close(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "stet: %v\n", err)
	}
}

func (d *demo) createTopics(ctx context.Context) error {
	adm := kadm.NewClient(d.srcCl)
	for _, t := range demoTopics {
		if _, err := adm.CreateTopic(ctx, t.partitions, 1, nil, t.name); err != nil {
			return fmt.Errorf("topic %s: %w", t.name, err)
		}
	}
	return nil
}

func (d *demo) startMirror(ctx context.Context) error {
	create := mirrormsg.NewPtrCreateMirrorRequest()
	create.MirrorName = demoMirror
	c := mirrormsg.NewCreateMirrorRequestConfig()
	c.Name, c.Value = "bootstrap.servers", &d.source
	create.Config = append(create.Config, c)
	cresp, err := create.RequestWith(ctx, d.cl)
	if err != nil {
		return err
	}
	if err := refused(cresp.ErrorCode, cresp.ErrorMessage); err != nil {
		return err
	}
	if err := d.findTopics(ctx); err != nil {
		return err
	}
	start := mirrormsg.NewPtrStartMirrorTopicsRequest()
	start.MirrorName = demoMirror
	for _, name := range d.matching {
		t := mirrormsg.NewStartMirrorTopicsRequestTopic()
		t.TopicName = name
		start.Topics = append(start.Topics, t)
	}
	sresp, err := start.RequestWith(ctx, d.cl)
	if err != nil {
		return err
	}
	if err := refused(sresp.ErrorCode, sresp.ErrorMessage); err != nil {
		return err
	}
	for i := range sresp.Topics {
		if err := refused(sresp.Topics[i].ErrorCode, sresp.Topics[i].ErrorMessage); err != nil {
			return fmt.Errorf("%s: %w", sresp.Topics[i].Name, err)
		}
	}
	return nil
}

func (d *demo) findTopics(ctx context.Context) error {
	match, err := topicMatcher(d.topics)
	if err != nil {
		return err
	}
	all, err := kadm.NewClient(d.srcCl).ListTopics(ctx)
	if err != nil {
		return err
	}
	for name := range all {
		if match(name) {
			d.matching = append(d.matching, name)
		}
	}
	sort.Strings(d.matching)
	if len(d.matching) == 0 {
		return fmt.Errorf("no topic of %s matches %q", d.source, d.topics)
	}
	return nil
}

// watch shows the mirror until the duration is over; the embedded source is loaded meanwhile.
func (d *demo) watch(ctx context.Context, embedded bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	loads := make(chan error, len(demoTopics))
	if embedded {
		d.lagName = "replication lag"
		for _, t := range demoTopics {
			wg.Add(1)
			go func() {
				defer wg.Done()
				loads <- d.loadTopic(ctx, t.name)
			}()
		}
	} else {
		d.lagName = "lag, sampled"
	}
	if err := d.table(ctx, embedded); err != nil {
		return err
	}
	if !embedded {
		return nil
	}
	for range demoTopics {
		if err := <-loads; err != nil {
			return fmt.Errorf("load: %w", err)
		}
	}
	return nil
}

// loadTopic writes to one topic and measures when each record can be read at the destination.
func (d *demo) loadTopic(ctx context.Context, topic string) error {
	rate := d.load
	rate.PerSecond /= float64(len(demoTopics))
	r, err := loadgen.Lag(ctx, d.source, d.dst.Addr(), topic, loadgen.Options{
		Rate: rate, RecordSize: 1000, BatchSize: 16384, Linger: 5 * time.Millisecond, Acks: -1, Producers: 1, Duration: d.duration, Seed: 1,
	})
	if err != nil {
		return err
	}
	d.lag.Merge(r.Recorder("replication_lag_ms"))
	return nil
}

func (d *demo) summary(w io.Writer, sw *loadgen.Switched, report *verify.Report) {
	q := func(p float64) string {
		if v, ok := d.lag.Quantile(p); ok {
			return fmt.Sprintf("%.2f ms", v)
		}
		return "-"
	}
	largest := "-"
	if s := d.lag.Summary(); s.Max != nil {
		largest = fmt.Sprintf("%.2f ms", *s.Max)
	}
	fmt.Fprintf(w, "\ncopied:      %.1f MB, %.1f MB/s\n", float64(d.copied)/1e6, float64(d.copied)/1e6/d.took.Seconds())
	fmt.Fprintf(w, "%-12s p50 %s, p99 %s, max %s\n", d.lagName+":", q(.5), q(.99), largest)
	fmt.Fprintf(w, "fail-over:   stop answered after %.1f ms, all %d partitions written after %.1f ms and read back after %.1f ms\n",
		msOf(sw.Stop), sw.Partitions, msOf(sw.FirstAck), msOf(sw.FirstRead))
	fmt.Fprintln(w, report.Conclude())
}

func msOf(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
