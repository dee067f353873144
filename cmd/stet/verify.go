package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"stet/loadgen/verify"
)

type verifyFlags struct {
	source, destination, mirror, topics, sourceDir, destinationDir string
	asJSON                                                         bool
}

func verifyCommand() *cobra.Command {
	var f verifyFlags
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Compare two clusters, or two log directories, byte by byte",
		Long: "Compare two clusters, or two log directories, byte by byte in the common offset range.\n\n" +
			"The last line begins with `equal:` (exit 0) or `different:` (exit 1). Works against any Kafka.",
		Example: "  stet verify --source 127.0.0.1:19092 --destination 127.0.0.1:9092 --mirror prod\n" +
			"  stet verify --source-dir /var/lib/kafka --destination-dir ./stet-data --topics 'orders.*'",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.source, "source", "", "HOST:PORT of the source")
	fl.StringVar(&f.destination, "destination", "", "HOST:PORT of the destination")
	fl.StringVar(&f.mirror, "mirror", "", "compare the topics of this mirror")
	fl.StringVar(&f.topics, "topics", "", "compare topics that match this RE2 pattern")
	fl.StringVar(&f.sourceDir, "source-dir", "", "log directory of the source")
	fl.StringVar(&f.destinationDir, "destination-dir", "", "log directory of the destination")
	fl.BoolVar(&f.asJSON, "json", false, "print a report per partition as JSON")
	return cmd
}

func (f *verifyFlags) run(cmd *cobra.Command) error {
	clusters, dirs := f.source != "" || f.destination != "", f.sourceDir != "" || f.destinationDir != ""
	switch {
	case clusters == dirs:
		return usagef("verify needs --source and --destination, or --source-dir and --destination-dir")
	case clusters && (f.source == "" || f.destination == ""), dirs && (f.sourceDir == "" || f.destinationDir == ""):
		return usagef("verify needs both a source and a destination")
	case clusters && f.source == f.destination:
		return usagef("--source and --destination are the same")
	case f.mirror != "" && f.topics != "":
		return usagef("verify takes --mirror or --topics, not both")
	case dirs && f.mirror != "":
		return usagef("--mirror goes with --source and --destination")
	}
	match, err := topicMatcher(f.topics)
	if err != nil {
		return err
	}
	var report *verify.Report
	if dirs {
		report, err = verify.Dirs(f.sourceDir, f.destinationDir, match)
	} else {
		report, err = f.clusters(cmd, match)
	}
	if err != nil {
		return err
	}
	if f.asJSON {
		if err := json.NewEncoder(os.Stdout).Encode(report); err != nil {
			return err
		}
	} else {
		for i := range report.Partitions {
			p := &report.Partitions[i]
			for _, n := range p.Notes {
				fmt.Printf("%s-%d: %s\n", p.Topic, p.Partition, n)
			}
		}
	}
	fmt.Println(report.Conclude())
	if !report.Equal {
		return errSilent
	}
	return nil
}

func (f *verifyFlags) clusters(cmd *cobra.Command, match func(string) bool) (*verify.Report, error) {
	src, err := connect(cmd.Context(), f.source, "")
	if err != nil {
		return nil, fmt.Errorf("source: %w", err)
	}
	defer src.Close()
	dst, err := connect(cmd.Context(), f.destination, "")
	if err != nil {
		return nil, fmt.Errorf("destination: %w", err)
	}
	defer dst.Close()
	bounds, err := mirroredTo(cmd.Context(), dst, f.mirror)
	if err != nil && f.mirror != "" {
		return nil, err
	}
	if f.mirror != "" {
		match = func(topic string) bool { _, ok := bounds[topic]; return ok }
	}
	return verify.Clusters(cmd.Context(), src, dst, match, bounds.at)
}

// lmos are the ends of the mirrored parts, by topic and partition.
type lmos map[string]map[int32]int64

func (l lmos) at(topic string, partition int32) int64 {
	if n, ok := l[topic][partition]; ok {
		return n
	}
	return -1
}

// mirroredTo asks the destination where the copied part of each partition ends; a
// destination without mirrors (another Kafka) knows nothing, which is no bound.
func mirroredTo(ctx context.Context, dst *kgo.Client, mirror string) (lmos, error) {
	resp, err := describeMirrors(ctx, dst, mirror)
	if err != nil {
		return nil, err
	}
	l := lmos{}
	for i := range resp.Mirrors {
		for j := range resp.Mirrors[i].Topics {
			t := &resp.Mirrors[i].Topics[j]
			l[t.TopicName] = map[int32]int64{}
			for _, p := range t.Partitions {
				n := int64(-1)
				if p.State == "STOPPED" || p.State == "STOPPING" {
					n = p.LastMirrorOffset
				}
				l[t.TopicName][p.PartitionIndex] = n
			}
		}
	}
	return l, nil
}

// topicMatcher matches whole names; an empty pattern takes all but internal topics.
func topicMatcher(pattern string) (func(string) bool, error) {
	if pattern == "" {
		return func(topic string) bool { return len(topic) < 2 || topic[:2] != "__" }, nil
	}
	re, err := regexp.Compile("^(?:" + pattern + ")$")
	if err != nil {
		return nil, usagef("--topics %q is not an RE2 pattern: %v", pattern, err)
	}
	return re.MatchString, nil
}
