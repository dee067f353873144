package main_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"stet/internal/testkit"
)

// TestSoak kills the broker again and again (STET_SOAK_ROUNDS, 3; `make soak` says 100) under
// acks=all producers, with retention and compaction running all the time. In the end every record that is
// still due is there once, in order, where its acknowledgement said.
func TestSoak(t *testing.T) {
	t.Parallel()
	rounds := 3
	if s := os.Getenv("STET_SOAK_ROUNDS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		rounds = n
	}
	ctx := contextFor(t, time.Duration(rounds+30)*10*time.Second)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	p := testkit.StartProcess(t, "", "log.retention.check.interval.ms=200", "log.cleaner.backoff.ms=100", "log.flush.offset.checkpoint.interval.ms=500")
	small := []string{"segment.bytes", "65536", "file.delete.delay.ms", "0"}
	createTopic(ctx, t, p.Addr, "retained", 1, append(small, "retention.bytes", "1000000")...)
	createTopic(ctx, t, p.Addr, "compacted", 1, append(small, "cleanup.policy", "compact", "min.cleanable.dirty.ratio", "0.01", "delete.retention.ms", "1000")...)
	writers := []*soakWriter{newSoakWriter(t, p.Addr, "retained"), newSoakWriter(t, p.Addr, "compacted")}
	var wg sync.WaitGroup
	wctx, stop := context.WithCancel(ctx)
	defer stop()
	for _, w := range writers {
		wg.Go(func() { w.run(wctx, ctx) })
	}
	goesOn := func(before []int64, when string) {
		t.Helper()
		for i, w := range writers {
			for deadline := time.Now().Add(60 * time.Second); w.acked.Load() <= before[i]; {
				if time.Now().After(deadline) {
					t.Fatalf("%s: writes to %s do not go on\n%s", when, w.topic, p.Stderr())
				}
				<-time.After(5 * time.Millisecond)
			}
		}
	}
	goesOn([]int64{0, 0}, "before the kills") // franz-go gives up where the broker dies on its first request for a producer id
	for round := range rounds {
		before := []int64{writers[0].acked.Load(), writers[1].acked.Load()}
		wait := time.Duration(rnd.Int64N(int64(600 * time.Millisecond)))
		if round%3 == 1 { // long enough for the second in which retention comes round
			wait += 1200 * time.Millisecond
		}
		moment := time.After(wait) // the moment of the kill is the point
		<-moment
		p.Kill()
		p.Restart(t)
		goesOn(before, fmt.Sprintf("round %d", round))
	}
	stop()
	wg.Wait()
	awaitCleaner(ctx, t, p.Dir, "compacted") // the lives may have been too short for it
	for _, w := range writers {
		w.check(ctx, p.Addr)
	}
}

// soakKeys is how many keys the compacted topic has.
const soakKeys = 50

// soakWriter writes numbered records, many in flight, and keeps what was acknowledged.
type soakWriter struct {
	t     *testing.T
	topic string
	cl    *kgo.Client
	acked atomic.Int64

	mu      sync.Mutex
	offsets map[int]int64 // number -> acknowledged offset
	last    int
}

func newSoakWriter(t *testing.T, addr, topic string) *soakWriter {
	cl := testkit.Client(t, addr, kgo.DefaultProduceTopic(topic), kgo.RequiredAcks(kgo.AllISRAcks()), kgo.RecordRetries(1<<30), kgo.RetryTimeout(3*time.Minute),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }), kgo.MaxBufferedRecords(200), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerLinger(time.Millisecond))
	return &soakWriter{t: t, topic: topic, cl: cl, offsets: map[int]int64{}, last: -1}
}

var soakPadding = bytes.Repeat([]byte("."), 700)

func (w *soakWriter) run(until, ctx context.Context) {
	// Paced, so that a round of the cleaner fits between two kills: one that is killed begins anew.
	pace := time.NewTicker(10 * time.Millisecond)
	defer pace.Stop()
	for i := 0; until.Err() == nil; i++ {
		r := &kgo.Record{Key: fmt.Appendf(nil, "k%d", i%soakKeys), Value: fmt.Appendf(nil, "%d %s", i, soakPadding)}
		w.cl.Produce(ctx, r, func(r *kgo.Record, err error) {
			if err != nil {
				w.t.Errorf("%s: record %d: %v", w.topic, i, err)
				return
			}
			w.mu.Lock()
			w.offsets[i], w.last = r.Offset, max(w.last, i)
			w.mu.Unlock()
			w.acked.Add(1)
		})
		if i%20 == 19 { // many batches, not one large one
			if err := w.cl.Flush(ctx); err != nil {
				w.t.Errorf("%s: %v", w.topic, err)
				return
			}
			<-pace.C
		}
	}
	if err := w.cl.Flush(ctx); err != nil {
		w.t.Errorf("%s: %v", w.topic, err)
	}
}

// check reads the topic from its log start to its end.
func (w *soakWriter) check(ctx context.Context, addr string) {
	t := w.t
	adm := kadm.NewClient(testkit.Client(t, addr))
	starts, err := adm.ListStartOffsets(ctx, w.topic)
	if err != nil {
		t.Fatal(err)
	}
	ends, err := adm.ListEndOffsets(ctx, w.topic)
	if err != nil {
		t.Fatal(err)
	}
	start, _ := starts.Lookup(w.topic, 0)
	end, _ := ends.Lookup(w.topic, 0)
	compacted := w.topic == "compacted"
	cl := testkit.Client(t, addr, kgo.ConsumeTopics(w.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	seen := map[int]int64{}
	lastOf := map[string]int{}
	for next, last := start.Offset, -1; next < end.Offset; {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatal(err)
		}
		for _, r := range fs.Records() {
			var n int
			if _, err := fmt.Sscan(string(r.Value), &n); err != nil {
				t.Fatal(err)
			}
			if _, twice := seen[n]; twice {
				t.Errorf("%s: record %d is there twice, at %d too", w.topic, n, r.Offset)
			}
			if n <= last || (!compacted && last >= 0 && n != last+1) {
				t.Errorf("%s: record %d follows %d at offset %d", w.topic, n, last, r.Offset)
			}
			if at, ok := w.offsets[n]; !ok || at != r.Offset {
				t.Errorf("%s: record %d is at offset %d, acknowledged %v at %d", w.topic, n, r.Offset, ok, at)
			}
			seen[n], last, lastOf[string(r.Key)] = r.Offset, n, n
			next = r.Offset + 1
		}
	}
	if starts, err = adm.ListStartOffsets(ctx, w.topic); err != nil { // retention may have run meanwhile
		t.Fatal(err)
	}
	start, _ = starts.Lookup(w.topic, 0)
	for n, at := range w.offsets {
		_, there := seen[n]
		switch {
		case there, at < start.Offset:
		case compacted && lastOf[fmt.Sprintf("k%d", n%soakKeys)] > n:
		default:
			t.Errorf("%s: acknowledged record %d at offset %d is lost (log %d to %d)", w.topic, n, at, start.Offset, end.Offset)
		}
	}
	if compacted && len(seen) >= len(w.offsets) {
		t.Errorf("compaction never removed one of %d records", len(w.offsets))
	}
	if !compacted && len(w.offsets) > 10_000 && start.Offset == 0 {
		t.Errorf("retention never ran on %d records", len(w.offsets))
	}
	t.Logf("%s: %d acknowledged, log %d to %d, %d records are there; 0 lost, 0 duplicated, 0 reordered unless said above", w.topic, len(w.offsets), start.Offset, end.Offset, len(seen))
}
