package quorum

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestStartWaitsForNoTimeout: the only voter stands for election at once, at the first start and at later ones.
func TestStartWaitsForNoTimeout(t *testing.T) {
	dir := t.TempDir()
	for round := range 3 {
		synctest.Test(t, func(t *testing.T) {
			before := time.Now()
			q, err := Open(Options{Dir: dir, NodeID: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = q.Close() }()
			if took := time.Since(before); took >= singleHeartbeat {
				t.Errorf("start %d took %v", round, took)
			}
			time.Sleep(time.Minute)
			if !q.IsLeader() {
				t.Error("does not lead any more")
			}
		})
	}
}
