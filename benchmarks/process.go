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
	"strconv"
	"strings"
	"syscall"
	"time"
)

// clockTick is USER_HZ, which Linux fixes at 100.
const clockTick = 100

// cpuSeconds is the user and system time of a process so far.
func cpuSeconds(pid int) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(f))
	}
	user, err1 := strconv.ParseInt(string(f[11]), 10, 64)
	sys, err2 := strconv.ParseInt(string(f[12]), 10, 64)
	return float64(user+sys) / clockTick, errors.Join(err1, err2)
}

// rss is the resident memory of a process in bytes, and the largest so far.
func rss(pid int) (now, peak int64, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	for _, line := range strings.Split(string(b), "\n") {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		n, _ := strconv.ParseInt(f[1], 10, 64) // lines without a number are not asked for
		switch f[0] {
		case "VmRSS:":
			now = n << 10
		case "VmHWM:":
			peak = n << 10
		}
	}
	return now, peak, nil
}

// ioCounts are what /proc/PID/io says: calls of the read and write families (sockets included).
type ioCounts struct{ readCalls, writeCalls, readBytes, writeBytes int64 }

func readIO(pid int) (c ioCounts, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return c, err
	}
	for _, line := range strings.Split(string(b), "\n") {
		name, v, _ := strings.Cut(line, ": ")
		n, _ := strconv.ParseInt(v, 10, 64)
		switch name {
		case "syscr":
			c.readCalls = n
		case "syscw":
			c.writeCalls = n
		case "rchar":
			c.readBytes = n
		case "wchar":
			c.writeBytes = n
		}
	}
	return c, nil
}

// stet is a running broker.
type stet struct {
	addr, http, dir string
	pid             int
	cmd             *exec.Cmd
	log             *os.File
}

// startStet runs `stet broker` with its data in dir; env is added to ours.
func (b *bench) startStet(bin, dir string, env []string, sets ...string) (*stet, error) {
	return b.startAs([]string{bin}, dir, env, sets...)
}

// startAs runs a command that becomes `stet broker`.
func (b *bench) startAs(command []string, dir string, env []string, sets ...string) (*stet, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	s := &stet{dir: dir, http: freeAddr()}
	args := []string{"broker", "--set", "log.dirs=" + dir, "--set", "http.listener=" + s.http, "--set", "group.initial.rebalance.delay.ms=0"}
	for _, kv := range append([]string{"listeners=PLAINTEXT://127.0.0.1:0"}, sets...) {
		args = append(args, "--set", kv)
	}
	var err error
	if s.log, err = os.Create(filepath.Join(dir, "broker.err")); err != nil {
		return nil, err
	}
	s.cmd = exec.Command(command[0], append(command[1:len(command):len(command)], args...)...)
	s.cmd.Env = append(os.Environ(), env...)
	s.cmd.Stderr = s.log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // nothing outlives us
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	s.pid = s.cmd.Process.Pid
	b.onEnd(s.stop)
	line, err := bufio.NewReader(out).ReadString('\n')
	f := strings.Fields(line)
	if err != nil || len(f) < 6 || f[3] != "ready" {
		text, _ := os.ReadFile(s.log.Name())
		return nil, fmt.Errorf("the broker did not start: %q %s", line, text)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	s.addr = f[5]
	return s, nil
}

// stop ends the broker cleanly, once.
func (s *stet) stop() {
	if s.cmd.ProcessState != nil {
		return
	}
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // it may be gone
	timer := time.AfterFunc(2*time.Minute, func() { _ = s.cmd.Process.Kill() })
	_ = s.cmd.Wait() // how it ended is in its log
	timer.Stop()
	s.log.Close()
}

// drop stops the broker and removes its data, which frees its page cache.
func (s *stet) drop() {
	s.stop()
	_ = os.RemoveAll(s.dir) // the whole work folder goes at the end
}

// tool runs the stet binary and returns what it printed.
func (b *bench) tool(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, b.bin, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("stet %s: %w: %s%s", strings.Join(args, " "), err, out.String(), errs.String())
	}
	return out.String(), nil
}

// child runs one of our own commands as a process of its own, so that its CPU time is its own.
func (b *bench) child(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, b.self, args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, errs.String())
	}
	return out, nil
}

// freeAddr is an address on loopback that nobody listens on.
func freeAddr() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(fmt.Sprintf("BUG: no port on loopback: %v", err))
	}
	defer l.Close()
	return l.Addr().String()
}

// logBytes sums up the .log files of a topic in a broker's data folder.
func logBytes(dir, topic string) (n int64) {
	files, _ := filepath.Glob(filepath.Join(dir, topic+"-*", "*.log")) // the pattern is good
	for _, f := range files {
		if st, err := os.Stat(f); err == nil {
			n += st.Size()
		}
	}
	return n
}

// waitBytes polls, from outside, until a topic has its size there.
func waitBytes(ctx context.Context, dir, topic string, want int64, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		n := logBytes(dir, topic)
		if n >= want {
			return nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%s holds %d of %d bytes of %s after %s", dir, n, want, topic, patience)
		}
	}
}
