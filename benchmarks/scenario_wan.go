package main

import (
	"context"
	"fmt"
	"net"
	"time"

	"stet/benchmarks/wan"
)

const (
	oneWay = 40 * time.Millisecond
	// window is what the TCP window of an untuned Linux caps a connection at (PERFORMANCE.md: 4 to 6 MiB).
	window = 6 << 20
)

// wan is G5: catching up over a line with a round trip of 80 ms, beside one fetch of the default size per
// round trip, as Kafka's follower does it.
func (b *bench) wan(ctx context.Context) error {
	for _, c := range []struct {
		parts int
		goal  float64 // MB/s
	}{{1, 50}, {20, 300}} {
		if err := b.wanOnce(ctx, c.parts, c.goal); err != nil {
			return fmt.Errorf("%d partitions: %w", c.parts, err)
		}
	}
	return nil
}

func (b *bench) wanOnce(ctx context.Context, parts int, goal float64) error {
	near, far := freeAddr(), freeAddr()
	line, err := wan.Start("127.0.0.1:0", far, wan.Line{Delay: oneWay, Window: window})
	if err != nil {
		return err
	}
	defer line.Close()
	name := fmt.Sprintf("wan%d", parts)
	_, port, err := net.SplitHostPort(line.Addr())
	if err != nil {
		return err
	}
	// Two listeners: we fill the source from near, the mirror is told the way through the line.
	src, err := b.startStet(b.bin, b.dir(name+"-src"), nil, "listeners=PLAINTEXT://"+near+",FAR://"+far,
		"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,FAR:PLAINTEXT", "advertised.listeners=PLAINTEXT://"+near+",FAR://127.0.0.1:"+port)
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
	s.partitions = parts
	if err := fill(ctx, near, name, s, 1); err != nil {
		return err
	}
	if err := b.mirrorTo(ctx, dst, line.Addr(), name); err != nil {
		return err
	}
	if err := fill(ctx, near, name, s, b.bytes()); err != nil {
		return err
	}
	one, err := b.raw(ctx, line.Addr(), name, rawArgs(min(b.bytes(), int64(parts)*(64<<20)), 1<<20)...)
	if err != nil {
		return err
	}
	m, err := b.drain(ctx, dst, name, logBytes(src.dir, name))
	if err != nil {
		return err
	}
	b.add(row{
		scenario: "wan-80ms", what: fmt.Sprintf("rate, %d partition(s), one fetcher", parts), unit: "MB/s", value: m.rate(),
		baseline: "one fetch of 1 MiB per partition and 10 MiB per round trip", base: one.rate(), ratio: m.rate() / one.rate(),
		goal: fmt.Sprintf("G5: at least %g MB/s", goal), ok: m.rate() >= goal, note: fmt.Sprintf("%.2f GiB, the start included; 1 round", float64(m.Bytes)/(1<<30)),
	})
	return nil
}
