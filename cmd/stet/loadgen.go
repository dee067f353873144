package main

import (
	"context"

	"github.com/spf13/cobra"

	"stet/loadgen"
)

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
				return loadgen.Catchup(ctx, f.catchup())
			}),
		loadScenario("throttle", "Throttle a mirror at one rate after the other while it drains a backlog",
			"  stet loadgen throttle --source 127.0.0.1:19092 --destination 127.0.0.1:9092 --mirror prod --topics 'orders.*' --rates 50MB,200MB,20MB --each 15s",
			[]string{"source", "destination", "mirror", "topics"}, func(ctx context.Context, f *loadFlags) (*loadgen.Report, error) {
				return loadgen.RunThrottle(ctx, loadgen.ThrottleOptions{CatchupOptions: f.catchup(), Rates: f.throttleRates, Each: f.each})
			}),
		loadScenario("failback", "Fail back to the old source (refused until mirrors can)",
			"  stet loadgen failback --source 127.0.0.1:19092 --destination 127.0.0.1:9092 --mirror prod --topics 'orders.*'",
			[]string{"source", "destination", "mirror", "topics"}, nil), // its flags are checked, then it is refused
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
	f := &loadFlags{scenario: name}
	cmd := &cobra.Command{Use: name, Short: short, Example: example, Args: noArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		for _, r := range required {
			if cmd.Flag(r).Value.String() == "" {
				return usagef("loadgen %s needs --%s", name, r)
			}
		}
		if err := f.check(cmd); err != nil {
			return err
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
	f.register(cmd)
	return cmd
}
