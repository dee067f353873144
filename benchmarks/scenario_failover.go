package main

import (
	"context"
	"fmt"
	"time"

	"stet/loadgen"
)

// failoverShape is one part of the failover scenario.
type failoverShape struct {
	what       string
	partitions int
	fill       int64   // bytes that were copied and never synced before the first stop
	rate       float64 // bytes per second into the source until the stop
	rounds     int
	goals      func(b *bench, name, note string, h loadgen.Summary)
}

// failover is G4: a producer runs against the source until the stop, then probes against the destination.
func (b *bench) failover(ctx context.Context) error {
	one := failoverShape{"one partition", 1, 1, 5e6, 20, func(b *bench, name, note string, h loadgen.Summary) {
		b.addFailover(name+", p50", note, *h.P50, 50)
		b.addFailover(name+", largest", note, *h.Max, 200)
	}}
	many := failoverShape{"1,000 partitions", 1000, 200 << 20, 1e6, 5, func(b *bench, name, note string, h loadgen.Summary) {
		b.addFailover(name+", p50", note, *h.P50, 0)
		b.addFailover(name+", p99", note, *h.P99, 1000)
		b.addFailover(name+", largest", note, *h.Max, 0)
	}}
	for _, f := range []failoverShape{one, many} {
		if err := b.failoverOf(ctx, f); err != nil {
			return fmt.Errorf("%s: %w", f.what, err)
		}
	}
	return nil
}

func (b *bench) failoverOf(ctx context.Context, f failoverShape) error {
	name := fmt.Sprintf("fo%d", f.partitions)
	src, err := b.startStet(b.bin, b.dir(name+"-src"), nil)
	if err != nil {
		return err
	}
	defer src.drop()
	dst, err := b.startStet(b.bin, b.dir(name+"-dst"), nil)
	if err != nil {
		return err
	}
	defer dst.drop()
	s := shape16k
	s.partitions = f.partitions
	if err := fill(ctx, src.addr, name, s, f.fill); err != nil {
		return err
	}
	if err := b.mirrorTo(ctx, dst, src.addr, name); err != nil {
		return err
	}
	if err := commitGroup(ctx, dst.addr, name, f.partitions); err != nil {
		return err
	}
	if err := b.resume(ctx, dst, name); err != nil {
		return err
	}
	o := s.options()
	o.Duration, o.Rate = time.Second, loadgen.Rate{PerSecond: f.rate, Bytes: true}
	r, err := loadgen.Failover(ctx, loadgen.FailoverOptions{Options: o, Source: src.addr, Destination: dst.addr, Mirror: "m", Topics: name, Rounds: f.rounds})
	if err != nil {
		return err
	}
	h := r.Histograms["first_ack_ms"]
	if h.P50 == nil || h.Max == nil {
		return fmt.Errorf("too few samples: %d", h.Count)
	}
	note := fmt.Sprintf("%d rounds under %.0f MB/s; slowest partition of each, ms:", f.rounds, f.rate/1e6)
	if f.rounds > 5 {
		note = fmt.Sprintf("%d rounds under %.0f MB/s", f.rounds, f.rate/1e6)
	} else {
		for _, l := range r.Failover.Timeline {
			note += fmt.Sprintf(" %.0f", l.FirstAckMs)
		}
	}
	note += fmt.Sprintf("; lost %d records", r.Failover.RecoveryPoint.Records)
	f.goals(b, "stop to first acknowledged produce, "+f.what, note, h)
	return nil
}

// addFailover adds a row; goal 0 is none.
func (b *bench) addFailover(what, note string, ms, goal float64) {
	r := row{scenario: "failover", what: what, unit: "ms", value: ms, note: note}
	if goal > 0 {
		r.goal, r.ok = fmt.Sprintf("G4: at most %.0f ms", goal), ms <= goal
	}
	b.add(r)
}
