package main

import (
	"context"
	"fmt"
	"time"

	"stet/loadgen"
)

// failover is G4 on one partition, under load; the producer runs against the source until the stop.
func (b *bench) failover(ctx context.Context) error {
	src, err := b.startStet(b.bin, b.dir("fo-src"), nil)
	if err != nil {
		return err
	}
	defer src.drop()
	dst, err := b.startStet(b.bin, b.dir("fo-dst"), nil)
	if err != nil {
		return err
	}
	defer dst.drop()
	s := shape16k
	s.partitions = 1
	if err := fill(ctx, src.addr, "fo", s, 1); err != nil {
		return err
	}
	if err := b.mirrorTo(ctx, dst, src.addr, "fo"); err != nil {
		return err
	}
	if err := b.resume(ctx, dst, "fo"); err != nil {
		return err
	}
	o := s.options()
	o.Duration, o.Rate = time.Second, loadgen.Rate{PerSecond: 5e6, Bytes: true}
	r, err := loadgen.Failover(ctx, loadgen.FailoverOptions{Options: o, Source: src.addr, Destination: dst.addr, Mirror: "m", Topics: "fo", Rounds: 20})
	if err != nil {
		return err
	}
	h := r.Histograms["first_ack_ms"]
	if h.P50 == nil || h.Max == nil {
		return fmt.Errorf("too few samples: %d", h.Count)
	}
	note := fmt.Sprintf("20 rounds under 5 MB/s; lost %d records", r.Failover.RecoveryPoint.Records)
	b.add(row{scenario: "failover", what: "stop to first acknowledged produce, one partition, p50", unit: "ms", value: *h.P50, goal: "G4: at most 50 ms", ok: *h.P50 <= 50, note: note})
	b.add(row{scenario: "failover", what: "the same, largest", unit: "ms", value: *h.Max, goal: "G4: at most 200 ms", ok: *h.Max <= 200, note: note})
	return nil
}
