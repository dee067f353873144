package quorum

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

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

// TestFullDiskInAnElection: a disk that is full when the term must be saved ends nothing; the node leads again when there is room, without a restart,
// and stops at once where there is none.
func TestFullDiskInAnElection(t *testing.T) {
	for _, room := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var full atomic.Bool
			fault := func() error {
				if full.Load() {
					return syscall.ENOSPC
				}
				return nil
			}
			dir := t.TempDir()
			q, err := Open(Options{Dir: dir, NodeID: 1, fault: fault})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = q.Close() }()
			recs := []meta.Record{&meta.ClusterID{ID: "c"}}
			full.Store(true)
			for range 10 {
				begin := time.Now()
				if err := q.Propose(context.Background(), 0, recs); !errors.Is(err, ErrNotLeader) || !errors.Is(err, syscall.ENOSPC) {
					t.Fatalf("%v", err)
				}
				if took := time.Since(begin); took > time.Second {
					t.Errorf("the refusal took %v", took)
				}
				time.Sleep(3 * singleHeartbeat) // raft stands for election
			}
			if room {
				full.Store(false)
				ctx, cancel := context.WithTimeout(context.Background(), 10*singleHeartbeat)
				defer cancel()
				if err := q.WaitLeader(ctx); err != nil {
					t.Fatal(err)
				}
				if err := q.Propose(ctx, 0, recs); err != nil {
					t.Fatal(err)
				}
			}
			begin := time.Now()
			if err := q.Close(); err != nil {
				t.Error(err)
			}
			if took := time.Since(begin); took > time.Second {
				t.Errorf("Close took %v", took)
			}
			full.Store(false)
			if q, err = Open(Options{Dir: dir, NodeID: 1}); err != nil {
				t.Fatal(err)
			}
			if has := q.Image().ClusterID() == "c"; has != room {
				t.Errorf("the cluster id is %q", q.Image().ClusterID())
			}
			_ = q.Close()
		})
	}
}
