package main_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"stet/internal/testkit"
)

// TestKafkaDropsWhatAPausedMirrorNeeds: real Kafka's cleaner removes a tombstone, and a committed transaction with its marker,
// while the mirror is paused for longer than delete.retention.ms. The copy is made again: the dead key is dead, and
// read-committed readers get past the transaction (C69).
func TestKafkaDropsWhatAPausedMirrorNeeds(t *testing.T) {
	t.Parallel()
	ctx := contextFor(t, 2*time.Minute)
	k := testkit.StartKafka(t, testkit.Kafka43, 1, "log.cleaner.backoff.ms=50", "log.initial.task.delay.ms=50")
	createTopic(ctx, t, k.Bootstrap, "c", 1, "cleanup.policy", "compact", "delete.retention.ms", "100", "segment.ms", "100", "min.cleanable.dirty.ratio", "0.001")
	plain := testkit.Client(t, k.Bootstrap)
	put := func(cl *kgo.Client, key, value string) {
		r := &kgo.Record{Topic: "c", Key: []byte(key)}
		if value != "" {
			r.Value = []byte(value)
		}
		if err := cl.ProduceSync(ctx, r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	put(plain, "dead", "v")
	put(plain, "alive", "v")
	txn := testkit.Client(t, k.Bootstrap, kgo.TransactionalID("t"), kgo.TransactionTimeout(time.Minute))
	if err := txn.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	put(txn, "txn", "v")

	p := testkit.StartProcess(t, "", "mirror.metadata.refresh.interval.ms=500")
	mirror(t, p, "m", k.Bootstrap, "c")
	waitFor(t, p, "m", "lag-zero")
	testkit.MustStet(t, "mirrors", "--bootstrap-server", p.Addr, "--pause", "--topics", "c", "--mirror", "m")
	if err := txn.EndTransaction(ctx, kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	put(plain, "dead", "")
	put(plain, "txn", "later")
	offsets := func(records []string) string {
		var s []string
		for _, r := range records {
			s = append(s, strings.Fields(r)[0])
		}
		return strings.Join(s, " ")
	}
	// Each round rolls the segment and gives the cleaner something to do; a tombstone goes in the second cleaning after its time.
	awaitGone(ctx, t, func(round int) bool {
		put(plain, "filler", fmt.Sprint(round))
		all := strings.Join(readAll(ctx, t, k.Bootstrap, "c", false)[0], "\n")
		return !strings.Contains(all, `"dead"=`)
	})
	testkit.MustStet(t, "mirrors", "--bootstrap-server", p.Addr, "--resume", "--topics", "c", "--mirror", "m")
	waitFor(t, p, "m", "lag-zero")
	got := readAll(ctx, t, p.Addr, "c", true)[0]
	text := strings.Join(got, "\n")
	if strings.Contains(text, `"dead"=`) {
		t.Errorf("a key lives here that is dead at the source:\n%s", text)
	}
	for _, want := range []string{`"alive"="v"`, `"txn"="later"`, `"filler"=`} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is missing; offsets %s", want, offsets(got))
		}
	}
	if want := readAll(ctx, t, k.Bootstrap, "c", true)[0]; got[len(got)-1] != want[len(want)-1] {
		t.Errorf("the last record is %s, the source's %s", got[len(got)-1], want[len(want)-1])
	}
	eventually(t, "the log says that the topic is copied again", p.Stderr, regexp.MustCompile("copied again"))
}

// awaitGone calls ok, with the number of the round, until it holds.
func awaitGone(ctx context.Context, t *testing.T, ok func(round int) bool) {
	t.Helper()
	tick := time.NewTicker(150 * time.Millisecond)
	defer tick.Stop()
	for round := 0; !ok(round); round++ {
		select {
		case <-ctx.Done():
			t.Fatal("Kafka's cleaner has not removed the tombstone")
		case <-tick.C:
		}
	}
}
