package testkit

import (
	"context"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"stet/broker"
	"stet/broker/mirrormsg"
)

// StartBroker runs a Stet broker in the process on a free port, with its data in
// dir (empty: a folder of the test), until the test ends. sets are KEY=VALUE.
func StartBroker(t testing.TB, dir string, sets ...string) *broker.Broker {
	t.Helper()
	if dir == "" {
		dir = filepath.Join(t.TempDir(), "data")
	}
	b, err := TryBroker(dir, sets...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { StopBroker(t, b) })
	return b
}

// TryBroker is StartBroker that returns the error and leaves stopping to the caller.
func TryBroker(dir string, sets ...string) (*broker.Broker, error) {
	cfg, err := broker.LoadConfig("", append([]string{
		"listeners=PLAINTEXT://127.0.0.1:0", "http.listener=127.0.0.1:0", "log.dirs=" + dir, "group.initial.rebalance.delay.ms=0",
	}, sets...))
	if err != nil {
		return nil, err
	}
	return broker.Start(context.Background(), cfg, slog.New(slog.NewTextHandler(io.Discard, nil)), "test")
}

// StopBroker shuts a broker down cleanly.
func StopBroker(t testing.TB, b *broker.Broker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := b.Close(ctx); err != nil {
		t.Errorf("broker: %v", err)
	}
}

// Client returns a client that knows the mirror requests; addr may be several, separated by commas.
func Client(t testing.TB, addr string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(strings.Split(addr, ",")...), kgo.MaxVersions(mirrormsg.MaxVersions()), kgo.RetryTimeout(10 * time.Second), kgo.MetadataMinAge(10 * time.Millisecond),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// Context ends with the test, or after five minutes.
func Context(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}
