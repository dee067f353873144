package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

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
	}
}

// fill writes at least so many bytes of batches to a topic.
func fill(ctx context.Context, addr, topic string, s shape, bytes int64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	o := s.options()
	var sum atomic.Int64
	o.Acked = func(_ int32, _ int64, _, n int, _ time.Time) {
		if sum.Add(int64(n)) >= bytes {
			cancel()
		}
	}
	r, err := loadgen.Produce(ctx, addr, topic, o)
	if err == nil && r.Load.Errors > 0 {
		err = fmt.Errorf("%d errors", r.Load.Errors)
	}
	if sum.Load() >= bytes && (err == nil || errors.Is(err, loadgen.ErrNothing)) {
		return nil // a first batch may be too early to count as measured
	}
	return fmt.Errorf("%s could not be filled: %w", topic, err)
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
