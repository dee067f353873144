package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// defaultShell is the descriptor limit, soft and hard, under which 10,000 partitions have to open.
const defaultShell = 1024

// logs is what many partitions cost a broker without a mirror: starts, clean and unclean, and idling, under the
// descriptor limit of a default shell.
func (b *bench) logs(ctx context.Context) error {
	dir := b.dir("log-10k")
	s, err := b.startStet(b.bin, dir, nil)
	if err != nil {
		return err
	}
	defer func() { s.drop() }()
	many := shape16k
	many.partitions = b.partitions
	if err := fill(ctx, s.addr, "many", many, int64(b.partitions)*4096); err != nil {
		return err
	}
	note := fmt.Sprintf("%d partitions; at most %d descriptors, soft and hard", b.partitions, defaultShell)
	again := func(clean bool) (time.Duration, error) {
		if clean {
			s.stop()
		} else {
			_ = s.cmd.Process.Kill() // it is ours and runs
			_ = s.cmd.Wait()
		}
		start := time.Now()
		limited, err := b.startAs([]string{"sh", "-c", fmt.Sprintf(`ulimit -n %d; exec "$0" "$@"`, defaultShell), b.bin}, dir, nil)
		if err != nil {
			return 0, err
		}
		took := time.Since(start)
		s = limited
		return took, nil
	}
	took, err := again(true)
	if err != nil {
		return err
	}
	_, peak, err := rss(s.pid)
	if err != nil {
		return err
	}
	secs := took.Seconds()
	b.add(row{scenario: "log-10k", what: "clean start until it serves", unit: "s", value: secs, goal: "issue 4: below 5 s", ok: secs < 5, note: note})
	b.add(row{scenario: "log-10k", what: "largest memory then", unit: "MiB", value: float64(peak) / (1 << 20), goal: "issue 4: below 1 GiB", ok: peak < 1<<30, note: note})
	settle(ctx, 5*time.Second)
	c0, err := cpuSeconds(s.pid)
	if err != nil {
		return err
	}
	start := time.Now()
	settle(ctx, idleTime)
	idle := time.Since(start).Seconds()
	c1, err := cpuSeconds(s.pid)
	if err != nil {
		return err
	}
	share := 100 * (c1 - c0) / idle
	b.add(row{scenario: "log-10k", what: "CPU of the idle broker", unit: "% of a core", value: share, goal: "issue 4: below 2 %", ok: share < 2, note: fmt.Sprintf("%s; over %.0f s", note, idle)})
	if took, err = again(false); err != nil {
		return err
	}
	b.add(row{scenario: "log-10k", what: "start after SIGKILL until it serves", unit: "s", value: took.Seconds(), note: note})
	return nil
}

// recovery is the scan of logs after an unclean stop beside reading the same files with a CRC over every byte.
func (b *bench) recovery(ctx context.Context) error {
	dir := b.dir("recovery")
	s, err := b.startStet(b.bin, dir, nil)
	if err != nil {
		return err
	}
	shape := shape16k
	shape.partitions = 10
	err = fill(ctx, s.addr, "t", shape, b.bytes())
	s.stop()
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // the whole work folder goes at the end
	var rate pairs
	for range b.rounds {
		if err := unclean(dir); err != nil {
			return err
		}
		out, err := b.child(ctx, "scan", "--dir", dir)
		if err != nil {
			return err
		}
		var scan usage
		if err := decode(out, &scan); err != nil {
			return err
		}
		o, err := b.openLog(ctx, dir)
		if err != nil {
			return err
		}
		rate.add(float64(o.Bytes)/1e6/o.Open.Seconds(), scan.rate())
	}
	b.add(rate.against("recovery", "rate of a start that scans everything", "MB/s", "read and CRC, two threads").least("issue 4", 0.8))
	return nil
}

// unclean makes a data folder look as after a power failure before any checkpoint: everything is scanned.
func unclean(dir string) error {
	for _, f := range []string{".kafka_cleanshutdown", "recovery-point-offset-checkpoint"} {
		if err := os.Remove(filepath.Join(dir, f)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
