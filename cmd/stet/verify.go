package main

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"

	"github.com/spf13/cobra"

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
	if f.mirror != "" {
		resp, err := describeMirrors(cmd.Context(), dst, f.mirror)
		if err != nil {
			return nil, err
		}
		of := map[string]bool{}
		for _, m := range resp.Mirrors {
			for _, t := range m.Topics {
				of[t.TopicName] = true
			}
		}
		match = func(topic string) bool { return of[topic] }
	}
	return verify.Clusters(cmd.Context(), src, dst, match)
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
