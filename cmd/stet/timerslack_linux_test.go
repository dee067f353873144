package main_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"stet/internal/testkit"
)

// TestMonitorThreadIsRelaxed: the broker has executed itself, under the same process id. The monitor, which is the first thread
// that the runtime starts, has the larger timer slack and the main thread the usual one; the others inherit either.
func TestMonitorThreadIsRelaxed(t *testing.T) {
	p := testkit.StartProcess(t, "")
	dir, err := os.Open(filepath.Join("/proc", strconv.Itoa(p.Pid), "task"))
	if err != nil {
		t.Skipf("this system does not list threads: %v", err)
	}
	defer dir.Close()
	tasks, err := dir.Readdirnames(-1) // in the order in which they were started
	if err != nil || len(tasks) < 2 {
		t.Fatalf("%d threads: %v", len(tasks), err)
	}
	for i, want := range []string{"50000", "1000000"} {
		b, err := os.ReadFile(filepath.Join("/proc", tasks[i], "timerslack_ns"))
		if os.IsPermission(err) {
			t.Skipf("the timer slack of other processes is not shown to everybody: %v", err)
		}
		if got := strings.TrimSpace(string(b)); err != nil || got != want {
			t.Errorf("thread %d (%s) has a timer slack of %s ns, want %s: %v", i, tasks[i], got, want, err)
		}
	}
}
