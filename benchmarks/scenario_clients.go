package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"stet/loadgen"
)

// produceFor is loadgen's open-loop producer for a while; the result has the broker's CPU.
func produceFor(ctx context.Context, addr, topic string, pid int, s shape, rate float64, d time.Duration) (*loadgen.Report, error) {
	o := s.options()
	o.Duration, o.Warmup = d, 0
	o.CPU = map[string]int{"broker": pid}
	if rate > 0 {
		o.Rate = loadgen.Rate{PerSecond: rate, Bytes: true}
	}
	return loadgen.Produce(ctx, addr, topic, o)
}

// tail is G3: lag at half of what producer, source and mirror together can do on this machine.
func (b *bench) tail(ctx context.Context) error {
	src, err := b.startStet(b.bin, b.dir("tail-src"), nil)
	if err != nil {
		return err
	}
	defer src.drop()
	dst, err := b.startStet(b.bin, b.dir("tail-dst"), nil)
	if err != nil {
		return err
	}
	defer dst.drop()
	s := shape16k
	s.partitions = 10
	if err := fill(ctx, src.addr, "tail", s, 1); err != nil {
		return err
	}
	if err := b.mirrorTo(ctx, dst, src.addr, "tail"); err != nil {
		return err
	}
	if err := b.resume(ctx, dst, "tail"); err != nil {
		return err
	}
	o := s.options()
	o.Duration, o.Warmup = 5*time.Second, time.Second
	flat, err := loadgen.Lag(ctx, src.addr, dst.addr, "tail", o)
	if err != nil {
		return err
	}
	o.Rate = loadgen.Rate{PerSecond: flat.Throughput.MBPerSec * 1e6 / 2, Bytes: true}
	o.Duration, o.Warmup = 15*time.Second, 2*time.Second
	r, err := loadgen.Lag(ctx, src.addr, dst.addr, "tail", o)
	if err != nil {
		return err
	}
	note := fmt.Sprintf("at %.0f MB/s, half of %.0f; producer, two consumers, source and destination share this machine", o.Rate.PerSecond/1e6, flat.Throughput.MBPerSec)
	for _, c := range r.Checks {
		if !c.OK {
			note += "; NOT VALID: " + c.Name + ": " + c.Detail
		}
	}
	added, control := r.Histograms["added_lag_ms"], r.Histograms["control_ms"]
	for _, q := range []struct {
		name           string
		added, control *float64
		limit          float64
	}{{"p50", added.P50, control.P50, 2}, {"p99", added.P99, control.P99, 10}} {
		if q.added == nil || q.control == nil {
			return fmt.Errorf("too few samples for %s", q.name)
		}
		out := row{
			scenario: "tail-half-rate", what: "added lag " + q.name, unit: "ms", value: *q.added, baseline: "control consumer at the source", base: *q.control,
			goal: fmt.Sprintf("G3: at most %g ms", q.limit), ok: *q.added <= q.limit, note: note,
		}
		if *q.control > 0 {
			out.ratio = *q.added / *q.control
		}
		b.add(out)
	}
	return nil
}

// produce is the CPU of a broker under a producer that is as fast as it can be.
func (b *bench) produce(ctx context.Context) error {
	raw, err := b.rawOf(ctx, shape16k)
	if err != nil {
		return err
	}
	s, err := b.startStet(b.bin, b.dir("produce"), nil)
	if err != nil {
		return err
	}
	defer s.drop()
	var cpu pairs
	var rates []float64
	for i := range b.rounds {
		r, err := produceFor(ctx, s.addr, fmt.Sprintf("p%d", i), s.pid, shape16k, 0, 4*time.Second)
		if err != nil {
			return err
		}
		cpu.add(r.Throughput.CPUPerGiB["broker"], raw)
		rates = append(rates, r.Throughput.MBPerSec)
	}
	out := cpu.against("produce-16k", "CPU of the broker", "CPU-s/GiB", "raw loop")
	out.note = fmt.Sprintf("%.0f MB/s, one batch per request; %s", median(rates), out.note)
	b.add(out)
	return nil
}

// consumeTail is what readers at the tail cost a broker, beside the same load without them.
func (b *bench) consumeTail(ctx context.Context) error {
	s, err := b.startStet(b.bin, b.dir("ctail"), nil)
	if err != nil {
		return err
	}
	defer s.drop()
	const rate, each = 100e6, 6 * time.Second
	var cpu pairs
	var p99 []float64
	for i := range b.rounds {
		alone, err := produceFor(ctx, s.addr, fmt.Sprintf("a%d", i), s.pid, shape16k, rate, each)
		if err != nil {
			return err
		}
		o := shape16k.options()
		o.Duration, o.Warmup, o.CPU, o.Rate = each, 0, map[string]int{"broker": s.pid}, loadgen.Rate{PerSecond: rate, Bytes: true}
		both, err := loadgen.E2E(ctx, s.addr, fmt.Sprintf("b%d", i), o)
		if err != nil {
			return err
		}
		cpu.add(both.Throughput.CPUPerGiB["broker"], alone.Throughput.CPUPerGiB["broker"])
		if v := both.Histograms["e2e_ms"].P99; v != nil {
			p99 = append(p99, *v)
		}
	}
	out := cpu.against("consume-tail", "CPU of the broker, produced and read at once", "CPU-s/GiB", "produced only")
	out.note = fmt.Sprintf("100 MB/s, end to end p99 %.1f ms; %s", median(p99), out.note)
	b.add(out)
	return nil
}

// consumeCold reads a topic whose pages are not in memory, beside the same reading of cached pages, and
// that beside bare sendfile.
func (b *bench) consumeCold(ctx context.Context) error {
	s, err := b.startStet(b.bin, b.dir("ccold"), nil)
	if err != nil {
		return err
	}
	defer s.drop()
	if err := fill(ctx, s.addr, "c", shape16k, b.bytes()); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(s.dir, "c-*", "*.log"))
	if err != nil {
		return err
	}
	consume := func() (*loadgen.Report, error) {
		o := shape16k.options()
		o.Duration, o.CPU = time.Minute, map[string]int{"broker": s.pid}
		return loadgen.Consume(ctx, s.addr, "c", o)
	}
	var cold, coldRate, cached pairs
	for range b.rounds {
		if err := evict(files); err != nil {
			return err
		}
		c, err := consume()
		if err != nil {
			return err
		}
		if err := warm(files); err != nil { // a cold reader leaves nothing behind
			return err
		}
		w, err := consume()
		if err != nil {
			return err
		}
		u, err := b.send(ctx, files)
		if err != nil {
			return err
		}
		cold.add(c.Throughput.CPUPerGiB["broker"], w.Throughput.CPUPerGiB["broker"])
		coldRate.add(c.Throughput.MBPerSec, w.Throughput.MBPerSec)
		cached.add(w.Throughput.CPUPerGiB["broker"], u.perGiB())
	}
	b.add(cold.against("consume-cold", "CPU of the broker, pages not in memory", "CPU-s/GiB", "in memory"))
	b.add(coldRate.against("consume-cold", "rate, pages not in memory", "MB/s", "in memory"))
	b.add(cached.against("consume-cold", "CPU of the broker, pages in memory", "CPU-s/GiB", "bare sendfile, 1 MiB"))
	return nil
}

// evict writes files out and drops their pages.
func evict(files []string) error {
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		err = errors.Join(f.Sync(), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// warm brings files into memory.
func warm(files []string) error {
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, f)
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// send measures bare sendfile of the files to a reader that discards.
func (b *bench) send(ctx context.Context, files []string) (usage, error) {
	cmd := exec.CommandContext(ctx, b.self, append([]string{"send"}, files...)...)
	var out bytes.Buffer
	cmd.Stdout = &out
	errs, err := cmd.StderrPipe()
	if err != nil {
		return usage{}, err
	}
	if err := cmd.Start(); err != nil {
		return usage{}, err
	}
	lines := bufio.NewReader(errs)
	addr, err := lines.ReadString('\n')
	if err == nil {
		var c net.Conn
		if c, err = net.Dial("tcp", strings.TrimSpace(addr)); err == nil {
			buf := make([]byte, 1<<20)
			_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{c}, buf)
			c.Close()
		}
	}
	rest, _ := io.ReadAll(lines) // its complaint, if any
	if werr := cmd.Wait(); werr != nil || err != nil {
		return usage{}, fmt.Errorf("send: %w: %s", errors.Join(err, werr), rest)
	}
	var u usage
	return u, decode(out.Bytes(), &u)
}
