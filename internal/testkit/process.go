package testkit

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"stet/internal/testkit/port"
)

// Process is a `stet broker` of its own, which a test can kill.
type Process struct {
	Addr    string
	Cluster string
	Dir     string
	Pid     int
	args    []string
	under   []string
	cmd     *exec.Cmd
	errs    *lockedBuffer
	waited  chan struct{}
}

var buildOnce = sync.OnceValues(func() (string, error) {
	if bin := os.Getenv("STET_BIN"); bin != "" {
		return bin, nil
	}
	dir, err := os.MkdirTemp("", "stet-bin-")
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "stet")
	cmd := exec.Command("go", "build", "-o", bin, "./cmd/stet")
	cmd.Dir = root()
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return bin, nil
})

// Binary is the stet binary under test.
func Binary(t testing.TB) string {
	t.Helper()
	bin, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

// StartProcess runs `stet broker` with its data in dir (empty: a folder of the
// test) until the test ends. The port stays the same when it is started again.
func StartProcess(t testing.TB, dir string, sets ...string) *Process {
	t.Helper()
	return StartProcessUnder(t, nil, dir, sets...)
}

// StartProcessUnder is StartProcess with a command that executes the one after its own arguments (nsenter, say).
func StartProcessUnder(t testing.TB, under []string, dir string, sets ...string) *Process {
	t.Helper()
	if dir == "" {
		dir = filepath.Join(t.TempDir(), "stet")
	}
	p := &Process{Dir: dir, under: under}
	p.args = []string{"broker", "--set", "log.dirs=" + dir, "--set", "http.listener=127.0.0.1:0", "--set", "group.initial.rebalance.delay.ms=0"}
	for _, s := range sets {
		p.args = append(p.args, "--set", s)
	}
	listener := "PLAINTEXT://" + port.Hold(t)
	p.start(t, listener)
	t.Cleanup(func() { p.Kill() })
	return p
}

func (p *Process) start(t testing.TB, listener string) {
	t.Helper()
	command := slices.Concat(p.under, []string{Binary(t)}, p.args, []string{"--set", "listeners=" + listener})
	p.cmd = exec.Command(command[0], command[1:]...)
	p.errs = &lockedBuffer{}
	p.cmd.Stderr = p.errs
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.Pid = p.cmd.Process.Pid
	ready := make(chan string, 1)
	p.waited = make(chan struct{})
	go func() {
		sc := bufio.NewScanner(out)
		for sc.Scan() {
			if strings.Contains(sc.Text(), " ready on ") {
				ready <- sc.Text()
			}
		}
		close(ready)
		_ = p.cmd.Wait()
		close(p.waited)
	}()
	select {
	case line, ok := <-ready:
		if !ok {
			t.Fatalf("stet broker ended before it was ready:\n%s", p.errs)
		}
		f := strings.Fields(line)
		p.Addr, p.Cluster = f[5], strings.TrimSuffix(f[7], ")")
	case <-time.After(60 * time.Second):
		p.Kill()
		t.Fatalf("stet broker was not ready after a minute:\n%s", p.errs)
	}
}

// Kill ends the process with SIGKILL and waits for it.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.waited
}

// Stop ends it with SIGTERM and returns its exit code.
func (p *Process) Stop() int {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	<-p.waited
	return p.cmd.ProcessState.ExitCode()
}

// Restart starts it again on the same port and data.
func (p *Process) Restart(t testing.TB) {
	t.Helper()
	p.start(t, "PLAINTEXT://"+p.Addr)
}

// Stderr is what it logged since it was last started.
func (p *Process) Stderr() string { return p.errs.String() }

// Stet runs a command of the binary.
func Stet(t testing.TB, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, Binary(t), args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if cmd.ProcessState == nil {
		t.Fatalf("stet %s: %v", strings.Join(args, " "), err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// MustStet is Stet that fails the test unless the exit code is 0.
func MustStet(t testing.TB, args ...string) string {
	t.Helper()
	out, errs, code := Stet(t, args...)
	if code != 0 {
		t.Fatalf("stet %s: exit code %d\n%s%s", strings.Join(args, " "), code, out, errs)
	}
	return out
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
