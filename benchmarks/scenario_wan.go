package main

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"stet/benchmarks/wan"
)

const (
	oneWay = 40 * time.Millisecond
	// window is what the TCP window of an untuned Linux caps a connection at (PERFORMANCE.md: 4 to 6 MiB).
	window = 6 << 20
)

// wanRuns are the two halves of G5.
var wanRuns = []struct {
	parts int
	goal  float64 // MB/s
}{{1, 50}, {20, 300}}

// wan is G5: catching up over a line with a round trip of 80 ms, beside one fetch of the default size per
// round trip, as Kafka's follower does it.
func (b *bench) wan(ctx context.Context) error {
	for _, c := range wanRuns {
		name := fmt.Sprintf("wan%d", c.parts)
		err := b.wanOnce(ctx, "wan-80ms", name, c.parts, c.goal, func(near, far, seen string) (string, func(), error) {
			src, err := b.startStet(b.bin, b.dir(name+"-src"), nil, "listeners=PLAINTEXT://"+near+",FAR://"+far,
				"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,FAR:PLAINTEXT", "advertised.listeners=PLAINTEXT://"+near+",FAR://"+seen)
			if err != nil {
				return "", nil, err
			}
			return src.dir, src.drop, nil
		})
		if err != nil {
			return fmt.Errorf("%d partitions: %w", c.parts, err)
		}
	}
	return nil
}

// wanKafka is the same with a real Kafka at the other end.
func (b *bench) wanKafka(ctx context.Context) error {
	for _, c := range wanRuns {
		name := fmt.Sprintf("wan-kafka%d", c.parts)
		err := b.wanOnce(ctx, "wan-80ms-kafka", name, c.parts, c.goal, func(near, far, seen string) (string, func(), error) {
			_, port, err := net.SplitHostPort(near)
			if err != nil {
				return "", nil, err
			}
			n, err := strconv.Atoi(port)
			if err != nil {
				return "", nil, err
			}
			src, err := b.startKafka(ctx, name, 1, "--port", port,
				"--set", fmt.Sprintf("listeners=PLAINTEXT://%s,FAR://%s,CONTROLLER://127.0.0.1:%d", near, far, n+1),
				"--set", "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,FAR:PLAINTEXT,CONTROLLER:PLAINTEXT",
				"--set", "advertised.listeners=PLAINTEXT://"+near+",FAR://"+seen,
				"--set", fmt.Sprintf("num.partitions=%d", c.parts))
			if err != nil {
				return "", nil, err
			}
			return src.data(1), src.stop, nil
		})
		if err != nil {
			return fmt.Errorf("%d partitions: %w", c.parts, err)
		}
	}
	return nil
}

// wanOnce starts a source with two listeners: we fill it at near; far is behind the line, and the source tells its clients there to
// come to seen, the line's end.
func (b *bench) wanOnce(ctx context.Context, scenario, name string, parts int, goal float64, start func(near, far, seen string) (dir string, stop func(), err error)) error {
	near, far := freeAddr(), freeAddr()
	line, err := wan.Start("127.0.0.1:0", far, wan.Line{Delay: oneWay, Window: window})
	if err != nil {
		return err
	}
	defer line.Close()
	dir, stop, err := start(near, far, line.Addr())
	if err != nil {
		return err
	}
	defer stop()
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
	m, err := b.drain(ctx, dst, name, logBytes(dir, name))
	if err != nil {
		return err
	}
	b.add(row{
		scenario: scenario, what: fmt.Sprintf("rate, %d partition(s), one fetcher", parts), unit: "MB/s", value: m.rate(),
		baseline: "one fetch of 1 MiB per partition and 10 MiB per round trip", base: one.rate(), ratio: m.rate() / one.rate(),
		goal: fmt.Sprintf("G5: at least %g MB/s", goal), ok: m.rate() >= goal,
		note: fmt.Sprintf("%.2f GiB, the start included; TCP window %d MiB; 1 round", float64(m.Bytes)/(1<<30), window>>20),
	})
	return nil
}
