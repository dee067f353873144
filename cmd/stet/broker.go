package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"stet/broker"
)

// shutdownPatience bounds the wait for requests in flight at a clean shutdown.
const shutdownPatience = 20 * time.Second

func brokerCommand() *cobra.Command {
	var config, level string
	var sets []string
	cmd := &cobra.Command{
		Use:   "broker",
		Short: "Run a broker",
		Long: "Run a broker. FILE has Kafka's server.properties names; without one it is node 1 on\n" +
			"PLAINTEXT://127.0.0.1:9092 with its data in ./stet-data, made at the first start.",
		Example: "  stet broker --config server.properties --set log.dirs=/var/lib/stet",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var lv slog.Level
			if err := lv.UnmarshalText([]byte(level)); err != nil {
				return usagef("--log-level %q; allowed are debug, info, warn and error", level)
			}
			if err := profileRates(); err != nil {
				return err
			}
			cfg, err := broker.LoadConfig(config, sets)
			if err != nil {
				return err
			}
			return runBroker(cmd.Context(), cfg, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: lv})))
		},
	}
	cmd.Flags().StringVar(&config, "config", "", "server.properties file")
	cmd.Flags().StringArrayVar(&sets, "set", nil, "KEY=VALUE that wins over the file (repeatable)")
	cmd.Flags().StringVar(&level, "log-level", "info", "debug, info, warn or error")
	return cmd
}

func runBroker(ctx context.Context, cfg *broker.Config, logger *slog.Logger) error {
	b, err := broker.Start(ctx, cfg, logger, version)
	if err != nil {
		return err
	}
	fmt.Printf("stet broker %d ready on %s (cluster %s)\n", b.Node(), b.Addr(), b.ClusterID())
	<-ctx.Done()
	logger.Info("shutting down; a second signal ends the broker at once")
	again := make(chan os.Signal, 1)
	signal.Notify(again, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-again
		os.Exit(exitFailed)
	}()
	sctx, cancel := context.WithTimeout(context.Background(), shutdownPatience)
	defer cancel()
	if err := b.Close(sctx); err != nil {
		return uncleanError{err}
	}
	return nil
}
