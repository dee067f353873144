package main

import (
	"context"
	"fmt"
	"time"
)

const patience = 5 * time.Minute

// drain measures one destination while it copies everything.
func (b *bench) drain(ctx context.Context, d *stet, topic string, want int64) (usage, error) {
	before, err := cpuSeconds(d.pid)
	if err != nil {
		return usage{}, err
	}
	start := time.Now()
	if err := b.resume(ctx, d, topic); err != nil {
		return usage{}, err
	}
	if err := waitBytes(ctx, d.dir, topic, want, patience); err != nil {
		return usage{}, err
	}
	took := time.Since(start)
	after, err := cpuSeconds(d.pid)
	return usage{Bytes: want, CPU: after - before, Took: took}, err
}

// prepared is a full topic at a source, and destinations that have not copied it yet.
type prepared struct {
	src   *stet
	dst   []*stet
	topic string
	bytes int64
}

// prepare makes paused mirrors of an empty topic first, so that nothing but copying is left to measure.
func (b *bench) prepare(ctx context.Context, s shape, destinations int, sets ...string) (*prepared, error) {
	p := &prepared{topic: "t" + s.name}
	var err error
	if p.src, err = b.startStet(b.bin, b.dir("src-"+s.name), nil, sets...); err != nil {
		return nil, err
	}
	if err := fill(ctx, p.src.addr, p.topic, s, 1); err != nil {
		return nil, err
	}
	for i := range destinations {
		d, err := b.startStet(b.bin, b.dir(fmt.Sprintf("dst-%s-%d", s.name, i)), nil)
		if err != nil {
			return nil, err
		}
		if err := b.mirrorTo(ctx, d, p.src.addr, p.topic); err != nil {
			return nil, err
		}
		p.dst = append(p.dst, d)
	}
	if err := fill(ctx, p.src.addr, p.topic, s, b.bytes()); err != nil {
		return nil, err
	}
	p.bytes = logBytes(p.src.dir, p.topic)
	return p, nil
}

func (p *prepared) drop() {
	for _, d := range p.dst {
		d.drop()
	}
	p.src.drop()
}

// catchup is G1: the mirror path of a destination beside the raw loop, in turn.
func (b *bench) catchup(ctx context.Context, s shape, goal float64) error {
	name := "catchup-" + s.name
	p, err := b.prepare(ctx, s, b.rounds)
	if err != nil {
		return err
	}
	defer p.drop()
	var cpu, rate pairs
	var raws []float64
	var peak int64
	for _, d := range p.dst {
		first, err := b.raw(ctx, p.src.addr, p.topic)
		if err != nil {
			return err
		}
		m, err := b.drain(ctx, d, p.topic, p.bytes)
		if err != nil {
			return err
		}
		_, top, err := rss(d.pid)
		if err != nil {
			return err
		}
		peak = max(peak, top)
		d.drop()
		second, err := b.raw(ctx, p.src.addr, p.topic)
		if err != nil {
			return err
		}
		cpu.add(m.perGiB(), (first.perGiB()+second.perGiB())/2)
		rate.add(m.rate(), (first.rate()+second.rate())/2)
		raws = append(raws, first.perGiB(), second.perGiB())
	}
	b.raws[s.name] = median(raws)
	r := cpu.against(name, "CPU of the mirroring broker", "CPU-s/GiB", "raw loop")
	if goal > 0 {
		r = r.most("G1", goal)
	}
	b.add(r)
	b.add(rate.against(name, "rate", "MB/s", "raw loop"))
	if s.name == "16k" {
		b.add(row{
			scenario: name, what: "largest memory of the broker", unit: "MiB", value: float64(peak) / (1 << 20), goal: "G8: below 256 MiB", ok: peak < 256<<20, note: fmt.Sprintf("%d partitions", s.partitions),
		})
	}
	return nil
}

// rawOf is the raw loop's figure of this run for a shape; it is measured when no catch-up has.
func (b *bench) rawOf(ctx context.Context, s shape) (float64, error) {
	if v, ok := b.raws[s.name]; ok {
		return v, nil
	}
	src, err := b.startStet(b.bin, b.dir("raw-src-"+s.name), nil)
	if err != nil {
		return 0, err
	}
	defer src.drop()
	if err := fill(ctx, src.addr, "raw", s, b.bytes()); err != nil {
		return 0, err
	}
	var all []float64
	for range max(b.rounds, 2) {
		u, err := b.raw(ctx, src.addr, "raw")
		if err != nil {
			return 0, err
		}
		all = append(all, u.perGiB())
	}
	b.raws[s.name] = median(all)
	return b.raws[s.name], nil
}
