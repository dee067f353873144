package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"stet/benchmarks/rawloop"
	"stet/zerocopy"
)

// usage is what a child measured of itself.
type usage struct {
	Bytes   int64
	Batches int64
	CPU     float64 // seconds
	Took    time.Duration
}

func (u usage) perGiB() float64 { return u.CPU / (float64(u.Bytes) / (1 << 30)) }
func (u usage) rate() float64   { return float64(u.Bytes) / 1e6 / u.Took.Seconds() }

// receiveCommand is the raw loop in a process of its own.
func receiveCommand(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("receive", flag.ContinueOnError)
	var o rawloop.Options
	fs.StringVar(&o.Addr, "addr", "", "broker")
	fs.StringVar(&o.Topic, "topic", "", "topic")
	fs.StringVar(&o.Dir, "dir", "", "where the files go; empty: nowhere")
	fs.Int64Var(&o.Limit, "limit", 0, "bytes")
	maxBytes := fs.Int("max-bytes", 10<<20, "bytes of a response")
	partBytes := fs.Int("partition-max-bytes", 1<<20, "bytes of a partition in it")
	fs.IntVar(&o.Write.Piece, "piece", 0, "bytes that are checked before they are written; 0: all of a partition")
	fs.Int64Var(&o.Write.Allocate, "allocate", 0, "bytes of file space to reserve at a time; 0: none")
	fs.BoolVar(&o.Write.Uncached, "uncached", false, "write with RWF_DONTCACHE")
	fs.IntVar(&o.Stream, "stream", 0, "bytes of the buffer to stream responses through; 0: whole responses")
	if err := fs.Parse(args); err != nil {
		return err
	}
	o.MaxBytes, o.PartitionMaxBytes = int32(*maxBytes), int32(*partBytes)
	before, err := cpuSeconds(os.Getpid())
	if err != nil {
		return err
	}
	res, err := rawloop.Receive(ctx, o)
	if err != nil {
		return err
	}
	after, err := cpuSeconds(os.Getpid())
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(usage{res.Bytes, res.Batches, after - before, res.Took})
}

// raw runs the raw loop over a topic and removes what it wrote.
func (b *bench) raw(ctx context.Context, addr, topic string, args ...string) (usage, error) {
	dir := b.dir("raw")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return usage{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // the whole work folder goes at the end
	out, err := b.child(ctx, append([]string{"receive", "--addr", addr, "--topic", topic, "--dir", dir}, args...)...)
	if err != nil {
		return usage{}, err
	}
	var u usage
	if err := decode(out, &u); err != nil {
		return usage{}, err
	}
	if u.Bytes == 0 {
		return u, errors.New("the raw loop received nothing")
	}
	return u, nil
}

// sendCommand sends files by sendfile to whoever connects first and reads to the end.
func sendCommand(files []string) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, ln.Addr())
	c, err := ln.Accept()
	if err != nil {
		return err
	}
	before, err := cpuSeconds(os.Getpid())
	if err != nil {
		return err
	}
	start := time.Now()
	tcp := c.(*net.TCPConn)
	zerocopy.Unpaced(tcp) // as the broker does, or the comparison is one of congestion controls
	n, err := rawloop.Send(tcp, files)
	if err != nil {
		return err
	}
	took := time.Since(start)
	after, err := cpuSeconds(os.Getpid())
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(usage{Bytes: n, CPU: after - before, Took: took})
}

// touchCommand takes memory, touches every page and gives it back.
func touchCommand(args []string) error {
	if len(args) != 1 {
		return errors.New("touch BYTES")
	}
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	m, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return err
	}
	for i := 0; i < n; i += 4096 {
		m[i] = 1
	}
	return unix.Munmap(m)
}

// touch makes the machine give us its memory before anything is measured: on virtual machines the first use
// of a page may cost more than all the rest (PERFORMANCE).
func (b *bench) touch(ctx context.Context) error {
	free, err := available()
	if err != nil {
		return err
	}
	n := min(int64(float64(2*b.rounds+4)*b.gib*(1<<30)), free*6/10)
	fmt.Fprintf(os.Stderr, "touching %.1f GiB of memory\n", float64(n)/(1<<30))
	_, err = b.child(ctx, "touch", strconv.FormatInt(n, 10))
	return err
}

func available() (int64, error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	for _, line := range strings.Split(string(text), "\n") {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "MemAvailable:" {
			n, err := strconv.ParseInt(f[1], 10, 64)
			return n << 10, err
		}
	}
	return 0, errors.New("/proc/meminfo has no MemAvailable")
}
