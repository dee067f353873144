package main_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"stet/internal/testkit"
)

// TestMonitorThreadIsRelaxed: the broker has executed itself, under the same process id, and the threads that serve have
// their usual timer slack again.
func TestMonitorThreadIsRelaxed(t *testing.T) {
	p := testkit.StartProcess(t, "")
	tasks, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(p.Pid), "task"))
	if err != nil {
		t.Skipf("this system does not list threads: %v", err)
	}
	relaxed, usual := 0, 0
	for _, task := range tasks {
		b, err := os.ReadFile(filepath.Join("/proc", task.Name(), "timerslack_ns"))
		if os.IsPermission(err) {
			t.Skipf("the timer slack of other processes is not shown to everybody: %v", err)
		}
		switch strings.TrimSpace(string(b)) {
		case "1000000":
			relaxed++
		case "50000":
			usual++
		}
	}
	if relaxed == 0 || usual == 0 {
		t.Errorf("%d threads with a larger timer slack, %d with the usual one, of %d", relaxed, usual, len(tasks))
	}
}
