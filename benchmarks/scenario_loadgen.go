package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"stet/benchmarks/sink"
	"stet/loadgen"
)

// discardCommand acknowledges and throws away what is produced to it, until its standard input ends.
func discardCommand(ctx context.Context) error {
	s, err := sink.Listen("127.0.0.1:0")
	if err != nil {
		return err
	}
	defer s.Close()
	fmt.Println(s.Addr())
	ended := make(chan struct{})
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); close(ended) }()
	select {
	case <-ctx.Done():
	case <-ended:
	}
	return nil
}

// startSink runs the discarding listener in a process of its own.
func (b *bench) startSink(ctx context.Context) (addr string, pid int, err error) {
	cmd := exec.CommandContext(ctx, b.self, "discard")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", 0, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", 0, err
	}
	if err := cmd.Start(); err != nil {
		return "", 0, err
	}
	b.onEnd(func() { in.Close(); _ = cmd.Wait() }) // it has nothing to say at its end
	line, err := bufio.NewReader(out).ReadString('\n')
	return strings.TrimSpace(line), cmd.Process.Pid, err
}

// loadgenOwn is what the load generator costs itself: `stet loadgen produce` as fast as it can against a listener that
// throws everything away, in batches of 1 MB and of 16 KiB.
func (b *bench) loadgenOwn(ctx context.Context) error {
	addr, pid, err := b.startSink(ctx)
	if err != nil {
		return err
	}
	for _, s := range []struct {
		name  string
		batch string
		goals bool
	}{{"1 MB batches", "1MB", true}, {"16 KiB batches", "16384", false}} {
		var cpu, other, rates []float64
		for i := range b.rounds {
			own, listener, r, err := b.ownCost(ctx, pid, "--bootstrap-server", addr, "--topic", fmt.Sprintf("own-%s-%d", s.batch, i), "--create",
				"--partitions", "4", "--batch-size", s.batch, "--duration", "5s", "--warmup", "0s")
			if err != nil {
				return err
			}
			cpu, other, rates = append(cpu, own), append(other, listener), append(rates, r.Throughput.MBPerSec)
		}
		rate := row{scenario: "loadgen-own", what: "rate, " + s.name, unit: "MB/s", value: median(rates), note: fmt.Sprintf("%d rounds; the listener shares the machine", b.rounds)}
		cost := row{
			scenario: "loadgen-own", what: "CPU of the load generator, " + s.name, unit: "CPU-s/GiB", value: median(cpu),
			note: fmt.Sprintf("whole process, its start included; the listener's own: %.2f", median(other)),
		}
		if s.goals {
			rate.goal, rate.ok = "at least 500 MB/s", rate.value >= 500
			cost.goal, cost.ok = "at most 0.5 CPU-s/GiB", cost.value <= 0.5
		}
		b.add(rate)
		b.add(cost)
	}
	return nil
}

// ownCost runs `stet loadgen produce` and returns what it and the listener used per GiB of acknowledged batches.
func (b *bench) ownCost(ctx context.Context, listener int, args ...string) (own, other float64, r *loadgen.Report, err error) {
	file := filepath.Join(b.work, "own.json")
	before, err := cpuSeconds(listener)
	if err != nil {
		return 0, 0, nil, err
	}
	cmd := exec.CommandContext(ctx, b.bin, append([]string{"loadgen", "produce", "--json", file}, args...)...)
	var errs strings.Builder
	cmd.Stderr = &errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return 0, 0, nil, err
	}
	// Once it has ended and is not yet waited for, its times still stand in /proc.
	for {
		err = unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	used, uerr := cpuSeconds(cmd.Process.Pid)
	if err = errors.Join(err, uerr, cmd.Wait()); err != nil {
		return 0, 0, nil, fmt.Errorf("stet loadgen: %w: %s", err, errs.String())
	}
	after, err := cpuSeconds(listener)
	if err != nil {
		return 0, 0, nil, err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, 0, nil, err
	}
	r = &loadgen.Report{}
	if err := json.Unmarshal(text, r); err != nil {
		return 0, 0, nil, err
	}
	gib := float64(r.Load.Bytes) / (1 << 30)
	if gib == 0 {
		return 0, 0, nil, fmt.Errorf("stet loadgen wrote nothing: %s", errs.String())
	}
	return used / gib, (after - before) / gib, r, nil
}
