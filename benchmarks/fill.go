package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"stet/loadgen"
)

// shape is how a topic's batches look.
type shape struct {
	name       string
	partitions int
	batch      int // bytes
	record     int
}

var (
	shape16k = shape{"16k", 100, 16 << 10, 1000}
	shape1k  = shape{"1k", 100, 1100, 1000}
	shape1m  = shape{"1m", 10, 1 << 20, 1000}
)

func (s shape) options() loadgen.Options {
	return loadgen.Options{
		RecordSize: s.record, BatchSize: s.batch, Linger: 5 * time.Millisecond, Compression: "none", Acks: -1, Partitions: s.partitions, Create: true, Producers: 1,
		Duration: 24 * time.Hour, Seed: 1,
		InFlight: 100, // the broker is measured, and not what five requests of a client carry on a busy machine
	}
}

// fill writes at least so many bytes of batches to a topic.
func fill(ctx context.Context, addr, topic string, s shape, bytes int64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := ready(ctx, addr, topic, s.partitions); err != nil {
		return fmt.Errorf("%s could not be created: %w", topic, err)
	}
	o := s.options()
	var sum atomic.Int64
	o.Acked = func(_ int32, _ int64, _, n int, _ time.Time) {
		if sum.Add(int64(n)) >= bytes {
			cancel()
		}
	}
	r, err := loadgen.Produce(ctx, addr, topic, o)
	if err == nil && r.Load.Errors > 0 {
		err = fmt.Errorf("%d errors: %v", r.Load.Errors, r.Checks)
	}
	if sum.Load() >= bytes && (err == nil || errors.Is(err, loadgen.ErrNothing)) {
		return nil // a first batch may be too early to count as measured
	}
	return fmt.Errorf("%s could not be filled: %w", topic, err)
}

// ready creates a topic if it is not there, and waits until every partition answers: a Kafka broker learns a moment later than
// the controller says so that it leads.
func ready(ctx context.Context, addr, topic string, partitions int) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.MetadataMinAge(50*time.Millisecond))
	if err != nil {
		return err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	if _, err := adm.CreateTopic(ctx, int32(partitions), 1, nil, topic); err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		ends, err := adm.ListEndOffsets(ctx, topic)
		if err == nil && len(ends[topic]) >= partitions && ends.Error() == nil {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return errors.Join(err, ends.Error(), ctx.Err())
		}
	}
}

// commitGroup commits offset 0 of every partition for a group, so that the group coordinator has its topic and something in it.
func commitGroup(ctx context.Context, addr, topic string, partitions int) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		return err
	}
	defer cl.Close()
	var offsets kadm.Offsets
	for i := range int32(partitions) {
		offsets.AddOffset(topic, i, 0, -1)
	}
	return kadm.NewClient(cl).CommitAllOffsets(ctx, "readers", offsets)
}

// mirrorTo makes a mirror on d that has copied the (empty) topic and is paused.
func (b *bench) mirrorTo(ctx context.Context, d *stet, source, topic string, extra ...string) error {
	props := filepath.Join(d.dir, "m.properties")
	text := "bootstrap.servers=" + source + "\n"
	for _, e := range extra {
		text += e + "\n"
	}
	if err := writeFile(props, text); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"--create", "--mirror", "m", "--mirror-config", props},
		{"--start", "--topics", topic, "--mirror", "m"},
		{"--describe", "--mirror", "m", "--wait", "lag-zero", "--timeout", "120s"},
		{"--pause", "--topics", topic, "--mirror", "m"},
		{"--describe", "--mirror", "m", "--wait", "PAUSED", "--timeout", "120s"},
	} {
		if _, err := b.tool(ctx, append([]string{"mirrors", "--bootstrap-server", d.addr}, args...)...); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) resume(ctx context.Context, d *stet, topic string) error {
	_, err := b.tool(ctx, "mirrors", "--bootstrap-server", d.addr, "--resume", "--topics", topic, "--mirror", "m")
	return err
}
