package quorum

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestFailedElectionsAreLoggedOnce: raft says the same after each election that a full disk makes fail; it is said once a minute.
func TestFailedElectionsAreLoggedOnce(t *testing.T) { synctest.Test(t, failedElectionsAreLoggedOnce) }

func failedElectionsAreLoggedOnce(t *testing.T) {
	var out bytes.Buffer
	log := hclogTo(slog.New(slog.NewTextHandler(&out, nil)))
	for range 5 {
		log.Error("failed to commit logs", "error", "no space left on device")
		log.Warn("election")
	}
	log.Error("something else")
	log.Error("failed to commit logs", "error", "no space left on device")
	if n, others := strings.Count(out.String(), "failed to commit logs"), strings.Count(out.String(), "something else"); n != 2 || others != 1 {
		t.Errorf("logged %d and %d times:\n%s", n, others, out.String())
	}
	time.Sleep(sameErrorEvery)
	log.Error("failed to commit logs", "error", "no space left on device")
	if n := strings.Count(out.String(), "failed to commit logs"); n != 3 {
		t.Errorf("logged %d times:\n%s", n, out.String())
	}
}
