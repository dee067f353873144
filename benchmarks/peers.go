package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"stet/loadgen"
)

// Goals of G2 by the producer's batch size.
var (
	peer16k = peer{shape{"16k", 10, 16 << 10, 1000}, 25, 1}
	peer1k  = peer{shape{"1k", 10, 1100, 1000}, 80, 0.25}
	peer1m  = peer{shape{"1m", 10, 1 << 20, 1000}, 10, 1}
)

type peer struct {
	shape
	mm2  float64 // times less CPU than MirrorMaker 2 and its target
	part float64 // of --gib, where MirrorMaker 2 takes minutes
}

var peers = []scenario{
	{"peers-16k", func(ctx context.Context, b *bench) error { return b.peer(ctx, peer16k) }},
	{"peers-1k", func(ctx context.Context, b *bench) error { return b.peer(ctx, peer1k) }},
	{"peers-1m", func(ctx context.Context, b *bench) error { return b.peer(ctx, peer1m) }},
	{"log-kafka", func(ctx context.Context, b *bench) error { return b.kafkaLog(ctx) }},
	{"wan-80ms-kafka", func(ctx context.Context, b *bench) error { return b.wanKafka(ctx) }},
	{"kafka-clients", func(ctx context.Context, b *bench) error { return b.kafkaClients(ctx) }},
}

// peer copies one topic of a real Kafka with Stet, as a Kafka follower and with MirrorMaker 2, between two
// runs of Stet and of the raw loop.
func (b *bench) peer(ctx context.Context, p peer) error {
	name, topic := "peers-"+p.name, "p"+p.name
	src, err := b.startKafka(ctx, name+"-src", 2) // node 1 leads the topic, node 2 becomes the follower
	if err != nil {
		return err
	}
	defer src.stop()
	if err := src.create(ctx, topic, p.partitions, 1); err != nil {
		return err
	}
	var dst []*stet
	for i := range 2 {
		d, err := b.startStet(b.bin, b.dir(fmt.Sprintf("%s-stet-%d", name, i)), nil)
		if err != nil {
			return err
		}
		defer d.drop()
		if err := b.mirrorTo(ctx, d, src.addr(1), topic); err != nil {
			return err
		}
		dst = append(dst, d)
	}
	if err := fill(ctx, src.addr(1), topic, p.shape, int64(p.part*float64(b.bytes()))); err != nil {
		return err
	}
	bytes := logBytes(src.data(1), topic)
	raw0, err := b.raw(ctx, src.addr(1), topic)
	if err != nil {
		return err
	}
	stet0, err := b.drain(ctx, dst[0], topic, bytes)
	if err != nil {
		return err
	}
	dst[0].drop()
	follower, leader, err := b.follow(ctx, src, topic, p.partitions, bytes)
	if err != nil {
		return fmt.Errorf("follower: %w", err)
	}
	mm2, target, err := b.mm2(ctx, src, topic, bytes)
	if err != nil {
		return fmt.Errorf("MirrorMaker 2: %w", err)
	}
	stet1, err := b.drain(ctx, dst[1], topic, bytes)
	if err != nil {
		return err
	}
	raw1, err := b.raw(ctx, src.addr(1), topic)
	if err != nil {
		return err
	}
	cpu := (stet0.perGiB() + stet1.perGiB()) / 2
	rate := (stet0.rate() + stet1.rate()) / 2
	note := fmt.Sprintf("%.2f GiB of a Kafka topic, %d partitions, JIT warm-up included; Stet twice: %.2f and %.2f", float64(bytes)/(1<<30), p.partitions, stet0.perGiB(), stet1.perGiB())
	vs := func(what, unit string, v, base float64, baseline, n string) row {
		return row{scenario: name, what: what, unit: unit, value: v, baseline: baseline, base: base, ratio: v / base, note: n}
	}
	b.add(vs("CPU of MirrorMaker 2 and its target broker", "CPU-s/GiB", mm2.perGiB()+target.perGiB(), cpu, "Stet", note).least("G2", p.mm2))
	b.add(vs("rate of Stet", "MB/s", rate, mm2.rate(), "MirrorMaker 2", fmt.Sprintf("MirrorMaker 2 alone %.1f CPU-s/GiB", mm2.perGiB())).least("G2", 10))
	b.add(vs("CPU of a Kafka follower", "CPU-s/GiB", follower.perGiB(), cpu, "Stet", fmt.Sprintf("its leader meanwhile %.2f CPU-s/GiB", leader.perGiB())).least("G2", 4))
	b.add(vs("rate of Stet", "MB/s", rate, follower.rate(), "Kafka follower", "").least("G2", 3))
	raw := (raw0.perGiB() + raw1.perGiB()) / 2
	r := vs("CPU of Stet, real Kafka as source", "CPU-s/GiB", cpu, raw, "raw loop", fmt.Sprintf("raw loop twice: %.2f and %.2f", raw0.perGiB(), raw1.perGiB()))
	b.add(r)
	return nil
}

// follow makes node 2 a replica and measures both sides until it has everything.
func (b *bench) follow(ctx context.Context, k *kafka, topic string, partitions int, bytes int64) (follower, leader usage, err error) {
	p1, err1 := k.pid(1)
	p2, err2 := k.pid(2)
	if err := errors.Join(err1, err2); err != nil {
		return follower, leader, err
	}
	l0, err1 := cpuSeconds(p1)
	f0, err2 := cpuSeconds(p2)
	if err := errors.Join(err1, err2); err != nil {
		return follower, leader, err
	}
	start := time.Now()
	if err := k.reassign(ctx, topic, partitions, 1, 2); err != nil {
		return follower, leader, err
	}
	if err := waitBytes(ctx, k.data(2), topic, bytes, patience); err != nil {
		return follower, leader, err
	}
	took := time.Since(start)
	l1, err1 := cpuSeconds(p1)
	f1, err2 := cpuSeconds(p2)
	if err := errors.Join(err1, err2); err != nil {
		return follower, leader, err
	}
	if err := k.waitISR(ctx, topic, 2); err != nil {
		return follower, leader, err
	}
	if err := k.reassign(ctx, topic, partitions, 1); err != nil {
		return follower, leader, err
	}
	return usage{Bytes: bytes, CPU: f1 - f0, Took: took}, usage{Bytes: bytes, CPU: l1 - l0, Took: took}, k.waitISR(ctx, topic, 1)
}

// mm2 copies the topic with MirrorMaker 2 into a Kafka of its own; its start counts, as it does for whoever runs it.
func (b *bench) mm2(ctx context.Context, src *kafka, topic string, bytes int64) (mm2, target usage, err error) {
	dst, err := b.startKafka(ctx, "target-"+topic, 1)
	if err != nil {
		return mm2, target, err
	}
	defer dst.stop()
	want, err := src.ends(ctx, topic)
	if err != nil {
		return mm2, target, err
	}
	pid, err := dst.pid(1)
	if err != nil {
		return mm2, target, err
	}
	t0, err := cpuSeconds(pid)
	if err != nil {
		return mm2, target, err
	}
	cmd, err := b.startMM2(src, dst, topic)
	if err != nil {
		return mm2, target, err
	}
	defer kill(cmd)
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	var first time.Time // of the rate: JVM start and task assignment take tens of seconds
	for {
		n, err := dst.ends(ctx, topic)
		if err != nil {
			return mm2, target, err
		}
		if n > 0 && first.IsZero() {
			first = time.Now()
		}
		if n >= want {
			break
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return mm2, target, fmt.Errorf("%d of %d records after ten minutes", n, want)
		}
	}
	took := time.Since(first)
	t1, err1 := cpuSeconds(pid)
	m1, err2 := cpuSeconds(cmd.Process.Pid)
	return usage{Bytes: bytes, CPU: m1, Took: took}, usage{Bytes: bytes, CPU: t1 - t0, Took: took}, errors.Join(err1, err2)
}

// kafkaClients is G9: the same client load on a Kafka broker and on Stet, in turn.
func (b *bench) kafkaClients(ctx context.Context) error {
	k, err := b.startKafka(ctx, "clients-kafka", 1)
	if err != nil {
		return err
	}
	defer k.stop()
	s, err := b.startStet(b.bin, b.dir("clients-stet"), nil)
	if err != nil {
		return err
	}
	defer s.drop()
	pid, err := k.pid(1)
	if err != nil {
		return err
	}
	const rate, each = 40e6, 8 * time.Second
	load := shape16k
	load.partitions = 10
	// The JVM compiles first; that is not counted here.
	if _, err := produceFor(ctx, k.bootstrap, "warm", pid, load, rate, each); err != nil {
		return err
	}
	consume := func(addr, topic string, pid int) (float64, error) {
		o := load.options()
		o.Duration, o.CPU = time.Minute, map[string]int{"broker": pid}
		r, err := loadgen.Consume(ctx, addr, topic, o)
		if err != nil {
			return 0, err
		}
		return r.Throughput.CPUPerGiB["broker"], nil
	}
	if _, err := consume(k.bootstrap, "warm", pid); err != nil {
		return err
	}
	var produced, consumed pairs
	for i := range b.rounds {
		topic := fmt.Sprintf("t%d", i)
		kr, err := produceFor(ctx, k.bootstrap, topic, pid, load, rate, each)
		if err != nil {
			return err
		}
		sr, err := produceFor(ctx, s.addr, topic, s.pid, load, rate, each)
		if err != nil {
			return err
		}
		produced.add(sr.Throughput.CPUPerGiB["broker"], kr.Throughput.CPUPerGiB["broker"])
		kc, err := consume(k.bootstrap, topic, pid)
		if err != nil {
			return err
		}
		sc, err := consume(s.addr, topic, s.pid)
		if err != nil {
			return err
		}
		consumed.add(sc, kc)
	}
	p := produced.against("kafka-clients", "produce, 16 KiB batches, 40 MB/s", "CPU-s/GiB", "Kafka").most("G9", 1.0/3)
	b.add(p)
	b.add(consumed.against("kafka-clients", "consume from memory", "CPU-s/GiB", "Kafka").most("G9", 0.5))
	return nil
}
