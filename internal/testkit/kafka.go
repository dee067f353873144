package testkit

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Kafka is a real Apache Kafka cluster, run by scripts/kafka/kafka.
type Kafka struct {
	Version   string
	Dir       string
	Bootstrap string
	Brokers   int
	port      int
}

// root is the repository's root folder.
func root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..")
}

// KafkaVersions are the ones that interop tests run against.
const (
	Kafka43 = "4.3.1"
	Kafka39 = "3.9.1"
)

// HaveKafka says whether tests against real Apache Kafka are to run; scripts/test
// decides it and lists what is not run.
func HaveKafka() bool { return os.Getenv("STET_KAFKA") == "on" }

// NeedKafka skips a test where real Apache Kafka is not to be had.
func NeedKafka(t testing.TB) {
	t.Helper()
	if !HaveKafka() {
		t.Skip("needs real Apache Kafka: STET_KAFKA=on (make test sets it where Maven and a JDK are there)")
	}
}

func kafkaCommand(ctx context.Context, version string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(root(), "scripts", "kafka", "kafka"), args...)
	cmd.Env = append(os.Environ(), "KAFKA_VERSION="+version, "KAFKA_HEAP=384m", "KAFKA_SHORT=1")
	return cmd
}

// StartKafka runs a cluster until the test (or, called from TestMain's helper, the process) ends.
func StartKafka(t testing.TB, version string, brokers int, sets ...string) *Kafka {
	t.Helper()
	NeedKafka(t)
	k, err := NewKafka(filepath.Join(t.TempDir(), "kafka"), version, brokers, sets...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.End)
	return k
}

// NewKafka starts a cluster in dir; the caller stops it.
func NewKafka(dir, version string, brokers int, sets ...string) (*Kafka, error) {
	args := []string{"start", dir, "--brokers", strconv.Itoa(brokers)}
	for _, s := range sets {
		args = append(args, "--set", s)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	cmd := kafkaCommand(ctx, version, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("kafka %s: %w\n%s", strings.Join(args, " "), err, errs.String())
	}
	lines := strings.Fields(out.String())
	k := &Kafka{Version: version, Dir: dir, Bootstrap: lines[len(lines)-1], Brokers: brokers}
	first := strings.Split(k.Bootstrap, ",")[0]
	k.port, _ = strconv.Atoi(first[strings.LastIndex(first, ":")+1:])
	return k, nil
}

// End kills all nodes: nobody needs what a clean shutdown leaves.
func (k *Kafka) End() {
	for i := range k.Brokers {
		if pid, err := k.pid(i + 1); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			for deadline := time.Now().Add(30 * time.Second); syscall.Kill(pid, 0) == nil && time.Now().Before(deadline); {
				<-time.After(5 * time.Millisecond)
			}
		}
	}
}

// Check returns an error unless every node runs: its last log lines.
func (k *Kafka) Check() error {
	for i := range k.Brokers {
		pid, err := k.pid(i + 1)
		if err == nil {
			err = syscall.Kill(pid, 0)
		}
		if err != nil {
			said, _ := os.ReadFile(filepath.Join(k.Dir, fmt.Sprintf("node-%d", i+1), "server.log"))
			return fmt.Errorf("node %d of the Apache Kafka %s below %s does not run: %w\n%s", i+1, k.Version, k.Dir, err, said[max(0, len(said)-2000):])
		}
	}
	return nil
}

func (k *Kafka) pid(node int) (int, error) {
	b, err := os.ReadFile(filepath.Join(k.Dir, fmt.Sprintf("node-%d", node), "pid"))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(b)))
}

// StopNode shuts node i (from 1) down cleanly.
func (k *Kafka) StopNode(i int) error { return k.run("stop", k.Dir, strconv.Itoa(i)) }

// Kill sends SIGKILL to node i (from 1).
func (k *Kafka) Kill(i int) error { return k.run("kill", k.Dir, strconv.Itoa(i)) }

// StartNode starts node i again and waits until it is up.
func (k *Kafka) StartNode(i int) error { return k.run("start-node", k.Dir, strconv.Itoa(i)) }

func (k *Kafka) run(args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := kafkaCommand(ctx, k.Version, args...)
	// The nodes outlive the script and would hold its output open.
	cmd.Stdout, cmd.Stderr = nil, nil
	return cmd.Run()
}

// Addr is the address of node i (from 1).
func (k *Kafka) Addr(i int) string { return fmt.Sprintf("127.0.0.1:%d", k.port+2*(i-1)) }

// DataDir is the log directory of node i (from 1).
func (k *Kafka) DataDir(i int) string {
	return filepath.Join(k.Dir, fmt.Sprintf("node-%d", i), "data")
}

// Tool runs one of Apache Kafka's own tools and returns what it printed; a failure fails the test.
func Tool(t testing.TB, args ...string) string {
	t.Helper()
	out, err := TryTool(t, "", args...)
	if err != nil {
		t.Fatalf("kafka %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// TryTool runs a tool with an input and returns what it printed.
func TryTool(t testing.TB, input string, args ...string) (string, error) {
	t.Helper()
	NeedKafka(t)
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	cmd := kafkaCommand(ctx, Kafka43, args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
