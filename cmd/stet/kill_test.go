package main_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"stet/internal/testkit"
)

// TestKillKafkaMirrorTwentyTimes: kill -9 of Stet while it mirrors from real Kafka
// and takes local writes. Nothing acknowledged is lost, nothing is there twice, the
// copy is identical in the end.
func TestKillKafkaMirrorTwentyTimes(t *testing.T) {
	t.Parallel()
	testkit.NeedKafka(t)
	k := sharedKafka(t, testkit.Kafka43, 1)
	killTwenty(t, k.Bootstrap, func(p *testkit.Process, topic string) { sameFiles(t, k.DataDir(1), p.Dir, []string{topic}) })
}

// TestKillMirrorTwentyTimes is the same with another Stet as the source, for machines without Java.
func TestKillMirrorTwentyTimes(t *testing.T) {
	t.Parallel()
	src := testkit.StartProcess(t, "")
	killTwenty(t, src.Addr, func(p *testkit.Process, topic string) { sameFiles(t, src.Dir, p.Dir, []string{topic}) })
}

func killTwenty(t *testing.T, source string, same func(*testkit.Process, string)) {
	ctx := contextFor(t, 4*time.Minute)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	topic := fmt.Sprintf("kill-%d", seed)
	createTopic(ctx, t, source, topic, 3)
	p := testkit.StartProcess(t, "", "mirror.metadata.refresh.interval.ms=500")
	createTopic(ctx, t, p.Addr, "local", 1)
	mirror(t, p, "m", source, topic)
	waitFor(t, p, "m", "MIRRORING")

	var wg sync.WaitGroup
	lctx, stop := context.WithCancel(ctx)
	defer stop()
	var acked atomic.Int64
	// Local writes, numbered, by an idempotent producer that retries over the restarts.
	local := testkit.Client(t, p.Addr, kgo.DefaultProduceTopic("local"), kgo.RecordRetries(1<<30), kgo.RetryTimeout(3*time.Minute), kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }))
	wg.Add(2)
	go func() {
		defer wg.Done()
		for i := 0; lctx.Err() == nil; i++ {
			if err := local.ProduceSync(ctx, kgo.StringRecord(fmt.Sprint(i))).FirstErr(); err != nil {
				t.Errorf("local record %d: %v", i, err)
				return
			}
			acked.Store(int64(i) + 1)
		}
	}()
	go func() {
		defer wg.Done()
		src := testkit.Client(t, source, kgo.DefaultProduceTopic(topic))
		for i := 0; lctx.Err() == nil; i++ {
			if err := src.ProduceSync(ctx, kgo.StringRecord(fmt.Sprintf("%d %x", i, rnd.Uint64()))).FirstErr(); err != nil {
				t.Errorf("source record %d: %v", i, err)
				return
			}
		}
	}()
	ackedBeyond := func(before int64, when string) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); acked.Load() <= before; {
			if time.Now().After(deadline) {
				t.Fatalf("%s: local writes do not go on", when)
			}
			<-time.After(5 * time.Millisecond)
		}
	}
	ackedBeyond(0, "before the kills") // franz-go gives up where the broker dies on its first request for a producer id
	for kill := range 20 {
		before := acked.Load()
		wait := time.Duration(rand.New(rand.NewPCG(seed, uint64(kill)+2)).Int64N(int64(250 * time.Millisecond)))
		moment := time.After(wait) // the moment of the kill is the point of the test
		<-moment
		p.Kill()
		p.Restart(t)
		ackedBeyond(before, fmt.Sprintf("kill %d", kill))
	}
	stop()
	wg.Wait()
	for endOffsets(ctx, t, source, topic) != endOffsets(ctx, t, p.Addr, topic) { // the lag is that of the last answer
		if ctx.Err() != nil {
			t.Fatal("the copy does not reach the source's end")
		}
	}
	same(p, topic)

	ends, err := kadm.NewClient(testkit.Client(t, p.Addr)).ListEndOffsets(ctx, "local")
	if err != nil {
		t.Fatal(err)
	}
	recs := map[int]int{}
	cl := testkit.Client(t, p.Addr, kgo.ConsumeTopics("local"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	end, _ := ends.Lookup("local", 0)
	for next, last := int64(0), -1; next < end.Offset; {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatal(err)
		}
		for _, r := range fs.Records() {
			var n int
			if _, err := fmt.Sscan(string(r.Value), &n); err != nil {
				t.Fatal(err)
			}
			if recs[n]++; n != last+1 {
				t.Errorf("record %d follows %d at offset %d", n, last, r.Offset)
			}
			last = n
			next = r.Offset + 1
		}
	}
	for i := range int(acked.Load()) {
		if recs[i] != 1 {
			t.Errorf("acknowledged local record %d is there %d times", i, recs[i])
		}
	}
	t.Logf("%d local records acknowledged over 20 kills", acked.Load())
}
