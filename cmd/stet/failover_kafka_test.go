package main_test

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"stet/internal/testkit"
)

// TestFailoverFromRealKafka: the source is killed, the mirror is stopped, and every
// kind of client goes on at the right offset (the example of SPEC section 7).
func TestFailoverFromRealKafka(t *testing.T) {
	t.Parallel()
	ctx := contextFor(t, 4*time.Minute)
	k := testkit.StartKafka(t, testkit.Kafka43, 1)
	createTopic(ctx, t, k.Bootstrap, "ex", 1)
	createTopic(ctx, t, k.Bootstrap, "grp", 1)

	// 0 DATA a, 1 DATA a, 2 DATA b are mirrored; 3 COMMIT a and what follows is not.
	begin := func(id string) *kgo.Client {
		cl := testkit.Client(t, k.Bootstrap, kgo.TransactionalID(id), kgo.TransactionTimeout(10*time.Minute))
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		return cl
	}
	write := func(cl *kgo.Client, topic, value string) {
		if err := cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	a, b := begin("a"), begin("b")
	write(a, "ex", "a0")
	write(a, "ex", "a1")
	write(b, "ex", "b2")
	plain := testkit.Client(t, k.Bootstrap)
	for i := range 10 {
		write(plain, "grp", fmt.Sprint(i))
	}
	p := testkit.StartProcess(t, "", "mirror.metadata.refresh.interval.ms=500")
	mirror(t, p, "m", k.Bootstrap, "ex,grp")
	waitFor(t, p, "m", "lag-zero")
	testkit.MustStet(t, "mirrors", "--bootstrap-server", p.Addr, "--pause", "--topics", "ex", "--mirror", "m")
	eventually(t, "the pause", func() string { // it holds a moment after the answer
		return testkit.MustStet(t, "mirrors", "--bootstrap-server", p.Addr, "--describe", "--mirror", "m")
	}, regexp.MustCompile(`ex +0 .*PAUSED`))
	if err := a.EndTransaction(ctx, kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	c := begin("c")
	write(c, "ex", "c4")
	write(plain, "ex", "5")

	// A group here has read seven of the ten records.
	group := kadm.NewClient(testkit.Client(t, p.Addr))
	offs := kadm.Offsets{}
	offs.Add(kadm.Offset{Topic: "grp", Partition: 0, At: 7, LeaderEpoch: -1})
	if err := group.CommitAllOffsets(ctx, "readers", offs); err != nil {
		t.Fatal(err)
	}
	if err := k.Kill(1); err != nil {
		t.Fatal(err)
	}
	out := testkit.MustStet(t, "mirrors", "--bootstrap-server", p.Addr, "--stop", "--topics", "ex,grp", "--mirror", "m")
	contains(t, "stop", out, "Stopped mirroring for 2 topic(s) in mirror m: [ex, grp]", "ex-0: stopped at 3")
	waitFor(t, p, "m", "STOPPED")

	dump := testkit.Tool(t, "dump-log", "--deep-iteration", "--files", filepath.Join(p.Dir, "ex-0", "00000000000000000000.log"))
	var got []string
	for _, line := range strings.Split(dump, "\n") {
		f := strings.Fields(line)
		if len(f) < 3 || f[0] != "|" {
			continue
		}
		kind := "DATA"
		switch {
		case strings.Contains(line, "endTxnMarker: ABORT"):
			kind = "ABORT"
		case strings.Contains(line, "endTxnMarker"):
			kind = "COMMIT"
		case strings.Contains(line, "controlType: UNKNOWN(7)"):
			kind = "RESET"
		}
		got = append(got, f[2]+" "+kind)
	}
	if want := "0 DATA,1 DATA,2 DATA,3 ABORT,4 ABORT,5 RESET"; strings.Join(got, ",") != want {
		t.Errorf("dump-log shows %v, want %s:\n%s", got, want, dump)
	}
	contains(t, "dump-log", dump, "baseOffset: 5 lastOffset: 5 count: 1 baseSequence: -1 lastSequence: -1 producerId: -1")

	// New idempotent producers write from offset 6 on.
	franz := testkit.Client(t, p.Addr)
	r := franz.ProduceSync(ctx, &kgo.Record{Topic: "ex", Value: []byte("franz")})
	if err := r.FirstErr(); err != nil || r[0].Record.Offset != 6 {
		t.Errorf("franz-go: offset %d, %v; want 6", r[0].Record.Offset, err)
	}
	if out, err := testkit.TryTool(t, "java\n", "console-producer", "--bootstrap-server", p.Addr, "--topic", "ex", "--producer-property", "enable.idempotence=true"); err != nil {
		t.Errorf("Java producer: %v\n%s", err, out)
	}
	want := "6 franz\n7 java\n"
	if _, err := exec.LookPath("kcat"); err == nil {
		cmd := exec.Command("kcat", "-b", p.Addr, "-P", "-t", "ex", "-X", "enable.idempotence=true")
		cmd.Stdin = strings.NewReader("kcat\n")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("librdkafka producer: %v\n%s", err, out)
		}
		want += "8 kcat\n"
		// Read-committed consumers of all three clients reach what is written after the fail-over.
		out, err := exec.Command("kcat", "-b", p.Addr, "-C", "-t", "ex", "-o", "beginning", "-e", "-q", "-f", "%o %s\n", "-X", "isolation.level=read_committed").CombinedOutput()
		if err != nil || string(out) != want {
			t.Errorf("librdkafka reads %q (%v), want %q", out, err, want)
		}
	}
	n := strings.Count(want, "\n")
	java := testkit.Tool(t, "console-consumer", "--bootstrap-server", p.Addr, "--topic", "ex", "--from-beginning", "--max-messages", fmt.Sprint(n), "--timeout-ms", "60000", "--consumer-property", "isolation.level=read_committed")
	contains(t, "Java read committed", java, "franz\njava\n", fmt.Sprintf("Processed a total of %d messages", n))
	if recs := readAll(ctx, t, p.Addr, "ex", true)[0]; len(recs) != n {
		t.Errorf("franz-go reads %d committed records, want %d: %v", len(recs), n, recs)
	}

	// The group goes on where it was, and sees what is written now.
	gr := testkit.Client(t, p.Addr, kgo.ConsumerGroup("readers"), kgo.ConsumeTopics("grp"))
	w := franz.ProduceSync(ctx, &kgo.Record{Topic: "grp", Value: []byte("new")})
	if err := w.FirstErr(); err != nil {
		t.Fatal(err)
	}
	var values []string
	for len(values) < 4 {
		fs := gr.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatal(err)
		}
		for _, r := range fs.Records() {
			values = append(values, string(r.Value))
		}
	}
	if strings.Join(values, " ") != "7 8 9 new" {
		t.Errorf("the group reads %v", values)
	}
}

// TestRehearsedFailoverWithRealKafka: stop, write here, start again: what was
// written here is cut, by our own pair, and the copy is identical again.
func TestRehearsedFailoverWithRealKafka(t *testing.T) {
	t.Parallel()
	ctx := contextFor(t, 3*time.Minute)
	k := sharedKafka(t, testkit.Kafka43, 1)
	topics := fill(ctx, t, k.Bootstrap, "reh-")
	p := testkit.StartProcess(t, "", "mirror.metadata.refresh.interval.ms=500")
	mirror(t, p, "m", k.Bootstrap, "reh-.*")
	waitFor(t, p, "m", "lag-zero")
	for round := range 3 {
		testkit.MustStet(t, "mirrors", "--bootstrap-server", p.Addr, "--stop", "--topics", "reh-.*", "--mirror", "m")
		cl := testkit.Client(t, p.Addr, kgo.RecordPartitioner(kgo.ManualPartitioner()))
		for i := range 20 {
			if err := cl.ProduceSync(ctx, &kgo.Record{Topic: topics[0], Partition: int32(i % 5), Value: []byte("rehearsal")}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		dry := testkit.MustStet(t, "mirrors", "--bootstrap-server", p.Addr, "--start", "--dry-run", "--topics", topics[0], "--mirror", "m")
		contains(t, "dry run", dry, topics[0]+"-0: offsets", "would be cut")
		endsBefore := endOffsets(ctx, t, p.Addr, topics[0])
		testkit.MustStet(t, "mirrors", "--bootstrap-server", p.Addr, "--start", "--dry-run", "--topics", topics[0], "--mirror", "m")
		if after := endOffsets(ctx, t, p.Addr, topics[0]); after != endsBefore {
			t.Errorf("the dry run changed the log ends from %s to %s", endsBefore, after)
		}
		// The source goes on meanwhile.
		src := testkit.Client(t, k.Bootstrap, kgo.RecordPartitioner(kgo.ManualPartitioner()))
		for i := range 10 {
			if err := src.ProduceSync(ctx, &kgo.Record{Topic: topics[0], Partition: int32(i % 5), Value: []byte(fmt.Sprint("source ", round))}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		testkit.MustStet(t, "mirrors", "--bootstrap-server", p.Addr, "--start", "--topics", strings.Join(topics, ","), "--mirror", "m")
		waitFor(t, p, "m", "lag-zero")
		sameFiles(t, k.DataDir(1), p.Dir, topics)
	}
}

func endOffsets(ctx context.Context, t *testing.T, addr, topic string) string {
	t.Helper()
	ends, err := kadm.NewClient(testkit.Client(t, addr)).ListEndOffsets(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	var parts []string
	for p := range int32(len(ends[topic])) {
		parts = append(parts, fmt.Sprint(ends[topic][p].Offset))
	}
	return strings.Join(parts, " ")
}
