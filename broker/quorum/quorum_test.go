package quorum

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"stet/broker/meta"
)

const childEnv = "STET_QUORUM_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		child(dir)
		return
	}
	os.Exit(m.Run())
}

func topicRecords(i int) []meta.Record {
	id := [16]byte{1, byte(i >> 8), byte(i)}
	return []meta.Record{
		&meta.CreateTopic{Name: fmt.Sprintf("t%d", i), ID: id, Incarnation: -1},
		&meta.CreatePartition{TopicID: id, State: meta.Partition{Replicas: []int32{1}, ISR: []int32{1}, Leader: 1, BarrierEnd: -1}},
	}
}

// child creates topics until it is killed and prints each acknowledged one.
func child(dir string) {
	q, err := Open(Options{Dir: dir, NodeID: 1, SnapshotThreshold: 16})
	if err != nil {
		fmt.Println("error:", err)
		return
	}
	for i := len(q.Image().Topics()); ; i++ {
		if err := q.Propose(context.Background(), q.Image().Offset(), topicRecords(i)); err != nil {
			fmt.Println("error:", err)
			return
		}
		fmt.Printf("t%d\n", i)
		if i%10 == 9 {
			if err := q.Snapshot(); err != nil {
				fmt.Println("error:", err)
			}
		}
	}
}

func open(t *testing.T, dir string, onCommit func(*meta.Delta)) *Quorum {
	t.Helper()
	q, err := Open(Options{Dir: dir, NodeID: 1, OnCommit: onCommit})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.Close() })
	return q
}

// Nothing that was acknowledged before a kill -9 is lost (issue 3, shown by 11).
func TestKill(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "quorum")
	total := 0
	for round := range 4 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childEnv+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; n < 12+7*round && lines.Scan(); n++ {
			if want := fmt.Sprintf("t%d", total); lines.Text() != want {
				t.Fatalf("round %d: child said %q, want %q", round, lines.Text(), want)
			}
			total++
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() { // acknowledged before the kill arrived
			if lines.Text() == fmt.Sprintf("t%d", total) {
				total++
			}
		}
		_ = cmd.Wait()
		q := open(t, dir, nil)
		have := len(q.Image().Topics())
		if have < total || have > total+1 {
			t.Fatalf("round %d: %d topics after the kill, %d were acknowledged", round, have, total)
		}
		total = have
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRestart(t *testing.T) {
	dir := t.TempDir()
	ctx := context.Background()
	q := open(t, dir, nil)
	for i := range 10 {
		if err := q.Propose(ctx, q.Image().Offset(), topicRecords(i)); err != nil {
			t.Fatal(err)
		}
		if i == 5 {
			if err := q.Snapshot(); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := q.Image()
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	var deltas []*meta.Delta
	q = open(t, dir, func(d *meta.Delta) { deltas = append(deltas, d) })
	if q.Image().Offset() != want.Offset() || !reflect.DeepEqual(q.Image().Records(), want.Records()) {
		t.Errorf("image at %d after the restart, want %d", q.Image().Offset(), want.Offset())
	}
	if len(deltas) != 1 || len(deltas[0].CreatedTopics) != 10 || deltas[0].New != q.Image() {
		t.Fatalf("%d deltas after the restart", len(deltas))
	}
	if !q.IsLeader() {
		t.Error("not the leader after Open")
	}
}

func TestBaseMismatch(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	q := open(t, dir, nil)
	base := q.Image().Offset()
	if err := q.Propose(ctx, base, topicRecords(1)); err != nil {
		t.Fatal(err)
	}
	if err := q.Propose(ctx, base, topicRecords(2)); !errors.Is(err, ErrBase) {
		t.Errorf("a proposal for an old image: %v", err)
	}
	if n := len(q.Image().Topics()); n != 1 {
		t.Errorf("%d topics", n)
	}
	// The refusal is the same at the replay.
	_ = q.Close()
	if q = open(t, dir, nil); len(q.Image().Topics()) != 1 {
		t.Errorf("%d topics after a restart", len(q.Image().Topics()))
	}
}

// The delta is delivered before Propose returns, and deltas join up.
func TestOnCommitOrder(t *testing.T) {
	var mu sync.Mutex
	var last *meta.Image
	bad := ""
	q := open(t, t.TempDir(), func(d *meta.Delta) {
		mu.Lock()
		defer mu.Unlock()
		if last != nil && d.Old != last {
			bad = fmt.Sprintf("delta from %d after %d", d.Old.Offset(), last.Offset())
		}
		last = d.New
	})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for {
				img := q.Image()
				err := q.Propose(context.Background(), img.Offset(), topicRecords(i))
				if errors.Is(err, ErrBase) {
					continue
				}
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				if last.Topic(fmt.Sprintf("t%d", i)) == nil {
					t.Errorf("t%d was acknowledged before its delta", i)
				}
				mu.Unlock()
				return
			}
		})
	}
	wg.Wait()
	if bad != "" {
		t.Error(bad)
	}
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	q := open(t, dir, nil)
	if _, err := Open(Options{Dir: dir, NodeID: 1}); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("second opener: %v", err)
	}
	_ = q.Close()
	if _, err := Open(Options{Dir: dir, NodeID: 2}); err == nil || !strings.Contains(err.Error(), "belongs to node 1") {
		t.Errorf("another node: %v", err)
	}
	if _, err := Open(Options{Dir: dir, NodeID: 1, Voters: []int32{1, 2, 3}}); err == nil || !strings.Contains(err.Error(), "one voter") {
		t.Errorf("three voters: %v", err)
	}
	if err := q.Propose(context.Background(), 0, nil); !errors.Is(err, ErrNotLeader) {
		t.Errorf("proposal after Close: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Options{Dir: filepath.Join(file, "x"), NodeID: 1}); err == nil {
		t.Error("a directory below a file was opened")
	}
}

// A metadata log of a newer Stet is refused, not misread.
func TestUnknownRecord(t *testing.T) {
	dir := t.TempDir()
	q := open(t, dir, nil)
	future := q.raft.Apply(append(encodeProposal(0, nil), 2, 99, 0), 0)
	if err := future.Error(); err != nil {
		t.Fatal(err)
	}
	_ = q.Close()
	if _, err := Open(Options{Dir: dir, NodeID: 1}); err == nil || !strings.Contains(err.Error(), "type 99") {
		t.Errorf("opened with %v", err)
	}
}

func BenchmarkOpen(b *testing.B) {
	dir := b.TempDir()
	for b.Loop() {
		q, err := Open(Options{Dir: dir, NodeID: 1})
		if err != nil {
			b.Fatal(err)
		}
		_ = q.Close()
	}
}

func BenchmarkPropose(b *testing.B) {
	q, err := Open(Options{Dir: b.TempDir(), NodeID: 1})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = q.Close() }()
	i := int64(0)
	for b.Loop() {
		i++
		if err := q.Propose(context.Background(), q.Image().Offset(), []meta.Record{&meta.ProducerIDs{Next: i}}); err != nil {
			b.Fatal(err)
		}
	}
}
