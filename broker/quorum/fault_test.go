package quorum

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"stet/broker/meta"
)

// TestFullDiskIsTheReason: with a disk that is full raft says that the node does not lead; the error says why.
func TestFullDiskIsTheReason(t *testing.T) {
	dir := t.TempDir()
	var full atomic.Bool
	fault := func() error {
		if full.Load() {
			return syscall.ENOSPC
		}
		return nil
	}
	check := func(err error) {
		t.Helper()
		if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%v", err)
		}
	}
	q, err := Open(Options{Dir: dir, NodeID: 1, fault: fault})
	if err != nil {
		t.Fatal(err)
	}
	recs := []meta.Record{&meta.ClusterID{ID: "c"}}
	full.Store(true)
	err = q.Propose(context.Background(), 0, recs)
	check(err)
	if !errors.Is(err, ErrNotLeader) {
		t.Errorf("%v", err)
	}
	check(q.Propose(context.Background(), 0, recs)) // not the leader any more, still with the reason
	_ = q.Close()
	_, err = Open(Options{Dir: dir, NodeID: 1, fault: fault})
	check(err)
	full.Store(false)
	if q, err = Open(Options{Dir: dir, NodeID: 1, fault: fault}); err != nil {
		t.Fatal(err)
	}
	if err := q.Propose(context.Background(), q.Image().Offset(), recs); err != nil {
		t.Error(err)
	}
	_ = q.Close()
}
