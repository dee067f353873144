package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"stet/loadgen"
)

const idleTime = 20 * time.Second

// idle is G7, the mirror's side: a broker that mirrors many partitions on which nothing happens.
func (b *bench) idle(ctx context.Context) error {
	src, err := b.startStet(b.bin, b.dir("idle-src"), nil)
	if err != nil {
		return err
	}
	defer src.drop()
	s := shape16k
	s.partitions = b.partitions
	if err := fill(ctx, src.addr, "idle", s, 1); err != nil {
		return err
	}
	dir := b.dir("idle-dst")
	dst, err := b.startStet(b.bin, dir, nil)
	if err != nil {
		return err
	}
	defer func() { dst.drop() }()
	if err := b.mirrorTo(ctx, dst, src.addr, "idle"); err != nil {
		return err
	}
	if err := b.resume(ctx, dst, "idle"); err != nil {
		return err
	}
	if _, err := b.tool(ctx, "mirrors", "--bootstrap-server", dst.addr, "--describe", "--mirror", "m", "--wait", "lag-zero", "--timeout", "120s"); err != nil {
		return err
	}
	settle(ctx, 5*time.Second)
	d0, err := cpuSeconds(dst.pid)
	if err != nil {
		return err
	}
	s0, err := cpuSeconds(src.pid)
	if err != nil {
		return err
	}
	start := time.Now()
	settle(ctx, idleTime)
	took := time.Since(start).Seconds()
	d1, err := cpuSeconds(dst.pid)
	if err != nil {
		return err
	}
	s1, err := cpuSeconds(src.pid)
	if err != nil {
		return err
	}
	_, peak, err := rss(dst.pid)
	if err != nil {
		return err
	}
	share, base := 100*(d1-d0)/took, 100*(s1-s0)/took
	note := fmt.Sprintf("%d partitions, one mirror, over %.0f s", b.partitions, took)
	out := row{
		scenario: "idle-10k", what: "CPU of the idle mirroring broker", unit: "% of a core", value: share, baseline: "its idle source", base: base,
		goal: "G7: below 5 %", ok: share < 5, note: note,
	}
	if base > 0 {
		out.ratio = share / base
	}
	b.add(out)
	b.add(row{scenario: "idle-10k", what: "largest memory", unit: "MiB", value: float64(peak) / (1 << 20), goal: "G7: below 1 GiB", ok: peak < 1<<30, note: note})
	if err := b.scrape(ctx, dst); err != nil {
		return err
	}
	dst.stop()
	start = time.Now()
	again, err := b.startStet(b.bin, dir, nil)
	if err != nil {
		return err
	}
	dst = again
	up := time.Since(start).Seconds()
	b.add(row{scenario: "idle-10k", what: "clean start until it serves", unit: "s", value: up, goal: "G7: below 5 s", ok: up < 5, note: note})
	return nil
}

// settle lets time pass, which is what idling is.
func settle(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// throttle is G6: the set rate against what was copied.
func (b *bench) throttle(ctx context.Context) error {
	s := shape16k
	s.partitions = 10
	src, err := b.startStet(b.bin, b.dir("thr-src"), nil)
	if err != nil {
		return err
	}
	defer src.drop()
	dst, err := b.startStet(b.bin, b.dir("thr-dst"), nil)
	if err != nil {
		return err
	}
	defer dst.drop()
	if err := fill(ctx, src.addr, "thr", s, 1); err != nil {
		return err
	}
	if err := b.mirrorTo(ctx, dst, src.addr, "thr"); err != nil {
		return err
	}
	if err := b.resume(ctx, dst, "thr"); err != nil {
		return err
	}
	o := s.options()
	r, err := loadgen.RunThrottle(ctx, loadgen.ThrottleOptions{
		CatchupOptions: loadgen.CatchupOptions{Options: o, Source: src.addr, Destination: dst.addr, Mirror: "m", Topics: "thr"},
		Rates:          []int64{50e6, 100e6, 20e6}, Each: 11 * time.Second,
	})
	if err != nil {
		return err
	}
	for _, t := range r.Throttle {
		ratio := t.Achieved / t.Set
		b.add(row{
			scenario: "throttle", what: "rate", unit: "MB/s", value: t.Achieved / 1e6, baseline: "set", base: t.Set / 1e6, ratio: ratio,
			goal: "G6: within 2 %", ok: ratio >= 0.98 && ratio <= 1.02, note: fmt.Sprintf("over 10 s; worst second %.2f x, settled after %.0f ms", t.Worst1s, t.SettleMs),
		})
	}
	return nil
}

// scrape is what Prometheus costs a broker with many partitions.
func (b *bench) scrape(ctx context.Context, s *stet) error {
	var took []float64
	var size int64
	for range 9 {
		start := time.Now()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.http+"/metrics", http.NoBody)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		size, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if err != nil {
			return err
		}
		took = append(took, time.Since(start).Seconds()*1e3)
	}
	ms, mb := median(took), float64(size)/1e6
	note := fmt.Sprintf("%d partitions, of which 2000 have series of their own (mirror.metrics.max.partitions); median of %d", b.partitions, len(took))
	b.add(row{scenario: "idle-10k", what: "a scrape of /metrics", unit: "ms", value: ms, goal: "below 100 ms", ok: ms < 100, note: note})
	b.add(row{scenario: "idle-10k", what: "its size", unit: "MB", value: mb, goal: "below 5 MB", ok: mb < 5, note: note})
	return nil
}

// rawArgs ask for as much per round trip as the mirror may grow to.
func rawArgs(bytes int64, limit int) []string {
	return []string{"--limit", strconv.FormatInt(bytes, 10), "--partition-max-bytes", strconv.Itoa(limit), "--max-bytes", strconv.Itoa(max(limit, 10<<20))}
}
