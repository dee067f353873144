package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/broker/meta"
	"stet/broker/mirrormsg"
	"stet/broker/quorum"
)

// fakeQuorum commits in memory; hook, if set, runs before each commit.
type fakeQuorum struct {
	mu        sync.Mutex
	img       *meta.Image
	proposals int
	hook      func(n int) error
}

func (q *fakeQuorum) Image() *meta.Image {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.img
}

func (q *fakeQuorum) Propose(_ context.Context, base int64, recs []meta.Record) error {
	q.mu.Lock()
	n := q.proposals
	q.proposals++
	q.mu.Unlock()
	if q.hook != nil {
		if err := q.hook(n); err != nil {
			return err
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if base != q.img.Offset() {
		return quorum.ErrBase
	}
	q.img, _ = q.img.Apply(recs)
	return nil
}

// Requests in flight at once never see the same image, and those that wait
// together share a commit: of many that create the same topic one succeeds, and
// producer ids never overlap.
func TestGroupCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		q := &fakeQuorum{img: newImage(1)}
		q.hook = func(int) error {
			<-gate
			return nil
		}
		c := New(q, Env{})
		defer c.Close()
		ctx := context.Background()
		const n = 100
		var mu sync.Mutex
		results := map[string]int{}
		ids := map[int64]bool{}
		var wg sync.WaitGroup
		for range n {
			wg.Go(func() {
				resp, err := c.CreateTopics(ctx, createReq("t", 1, 1), CreateOpts{})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				results[mirrormsg.CodeName(resp.Topics[0].ErrorCode)]++
			})
			wg.Go(func() {
				first, err := c.AllocateProducerIDs(ctx, 10)
				mu.Lock()
				defer mu.Unlock()
				if err != nil || ids[first] || first%10 != 0 || first >= 10*n {
					t.Errorf("producer ids from %d: %v", first, err)
				}
				ids[first] = true
			})
		}
		synctest.Wait() // one group is being committed, the rest waits
		close(gate)
		wg.Wait()
		if results["NONE"] != 1 || results["TOPIC_ALREADY_EXISTS"] != n-1 || len(ids) != n {
			t.Errorf("results %v, %d id blocks", results, len(ids))
		}
		if q.proposals != 2 {
			t.Errorf("%d proposals for %d requests", q.proposals, 2*n)
		}
	})
}

// Records of another leader between decision and commit: the request is decided again.
func TestDecidedAgain(t *testing.T) {
	q := &fakeQuorum{img: newImage(1)}
	q.hook = func(n int) error {
		if n == 0 {
			q.mu.Lock()
			q.img = mustCreate(t, q.img, createReq("t", 1, 1))
			q.mu.Unlock()
		}
		return nil
	}
	c := New(q, Env{})
	defer c.Close()
	resp, err := c.CreateTopics(context.Background(), createReq("t", 1, 1), CreateOpts{})
	if err != nil || mirrormsg.CodeName(resp.Topics[0].ErrorCode) != "TOPIC_ALREADY_EXISTS" {
		t.Errorf("%v %v", resp, err)
	}
}

func TestTooLargeGroupIsSplit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		q := &fakeQuorum{img: newImage(1)}
		q.hook = func(n int) error {
			switch n {
			case 0:
				<-gate
			case 1:
				return fmt.Errorf("%w: as if", quorum.ErrTooLarge)
			}
			return nil
		}
		c := New(q, Env{})
		defer c.Close()
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				if _, err := c.CreateTopics(context.Background(), createReq(fmt.Sprint("t", i), 1, 1), CreateOpts{}); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait() // the first one is being committed, the others wait together
		}
		close(gate)
		wg.Wait()
		if n := len(q.Image().Topics()); n != 5 || q.proposals != 1+1+4 {
			t.Errorf("%d topics after %d proposals", n, q.proposals)
		}
	})
}

func TestCommitErrorsAndClose(t *testing.T) {
	boom := errors.New("boom")
	q := &fakeQuorum{img: newImage(1)}
	q.hook = func(int) error { return boom }
	c := New(q, Env{})
	if _, err := c.CreateTopics(context.Background(), createReq("t", 1, 1), CreateOpts{}); !errors.Is(err, boom) {
		t.Errorf("error %v", err)
	}
	// A request without records needs no commit.
	if resp, err := c.CreateTopics(context.Background(), createReq("", 1, 1), CreateOpts{}); err != nil || resp.Topics[0].ErrorCode == 0 {
		t.Errorf("%v %v", resp, err)
	}
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := c.AllocateProducerIDs(canceled, 1); err == nil {
		t.Error("a request with an ended context succeeded")
	}
	c.Close()
	if _, err := c.AllocateProducerIDs(context.Background(), 1); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// All requests through the real quorum, and again after a restart.
func TestWithQuorum(t *testing.T) {
	dir := t.TempDir()
	q, err := quorum.Open(quorum.Options{Dir: dir, NodeID: 1})
	if err != nil {
		t.Fatal(err)
	}
	c := New(q, Env{})
	ctx := context.Background()
	if err := c.RegisterBroker(ctx, meta.Broker{ID: 1, Incarnation: [16]byte{1}, Host: "h", Port: 1}); err != nil {
		t.Fatal(err)
	}
	if id, err := c.EnsureClusterID(ctx, "one"); id != "one" || err != nil {
		t.Errorf("cluster id %q %v", id, err)
	}
	if id, err := c.EnsureClusterID(ctx, "two"); id != "one" || err != nil {
		t.Errorf("cluster id %q %v", id, err)
	}
	create := mirrormsg.NewPtrCreateMirrorRequest()
	create.MirrorName = "m"
	create.Config = []mirrormsg.CreateMirrorRequestConfig{{Name: "bootstrap.servers", Value: kmsg.StringPtr("h:1")}}
	if resp, err := c.CreateMirror(ctx, create); err != nil || resp.ErrorCode != 0 {
		t.Fatalf("%+v %v", resp, err)
	}
	id := q.Image().Mirror("m").ID
	if got, err := c.SetSourceClusterID(ctx, "m", id, "src"); got != "src" || err != nil {
		t.Errorf("source id %q %v", got, err)
	}
	if got, err := c.SetSourceClusterID(ctx, "m", id, "other"); got != "src" || err != nil {
		t.Errorf("source id %q %v", got, err)
	}
	if _, err := c.SetSourceClusterID(ctx, "m", [16]byte{1}, "x"); !errors.Is(err, mirrormsg.UnknownMirror) {
		t.Errorf("source id of an older mirror: %v", err)
	}
	start := mirrormsg.NewPtrStartMirrorTopicsRequest()
	start.MirrorName = "m"
	start.Topics = []mirrormsg.StartMirrorTopicsRequestTopic{{TopicID: idA, TopicName: "a", NumPartitions: 3}}
	if resp, err := c.StartMirrorTopics(ctx, start); err != nil || codes(resp.Topics) != "NONE" {
		t.Fatalf("%+v %v", resp, err)
	}
	c.Close()
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	if q, err = quorum.Open(quorum.Options{Dir: dir, NodeID: 1}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = q.Close() }()
	if m, s := q.Image().TopicMirror("a"); m != "m" || s != meta.MirrorActive || len(q.Image().Topic("a").Partitions) != 3 {
		t.Errorf("after the restart: %q %v", m, s)
	}
}
