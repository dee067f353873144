package loadgen_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"stet/broker/mirrormsg"
	"stet/internal/testkit"
	"stet/loadgen"
)

// TestFailoverSaysWhatIsStopped: whatever ends a fail-over, the report says in which state the topics are then.
func TestFailoverSaysWhatIsStopped(t *testing.T) {
	src, err := testkit.TryBroker(filepath.Join(t.TempDir(), "src"))
	if err != nil {
		t.Fatal(err)
	}
	dst, err := testkit.TryBroker(filepath.Join(t.TempDir(), "dst"), "mirror.metadata.refresh.interval.ms=200")
	if err != nil {
		t.Fatal(err)
	}
	all := testkit.Context(t)
	startMirror(all, t, src.Addr(), dst.Addr())
	growing := func(f func()) (done chan struct{}) {
		done = make(chan struct{})
		began := records(all, t, src.Addr())
		go func() {
			defer close(done)
			for all.Err() == nil && records(all, t, src.Addr()) == began { // a condition is polled
				time.Sleep(5 * time.Millisecond)
			}
			f()
		}()
		return done
	}
	base := func() loadgen.FailoverOptions {
		o := options()
		o.Create, o.CPU, o.Duration = false, nil, time.Second
		return loadgen.FailoverOptions{Options: o, Source: src.Addr(), Destination: dst.Addr(), Mirror: "m", Topics: "load", Rounds: 1}
	}
	again := "; to mirror again: stet mirrors --bootstrap-server " + dst.Addr() + " --start --topics 'load' --mirror m"
	run := func(ctx context.Context, o loadgen.FailoverOptions, left, why string) {
		t.Helper()
		r, err := loadgen.Failover(ctx, o)
		if err == nil || r == nil || r.OK() || len(r.Left) != 1 || !strings.HasPrefix(r.Left[0], left) || !strings.Contains(strings.Join(r.NotValid, ";"), why) {
			t.Errorf("%v\n%+v\nwant left %q, not valid %q", err, r, left, why)
		}
	}

	o := base()
	o.SourcePID = 99999999
	if r, err := loadgen.Failover(all, o); r != nil || err == nil || err.Error() != "--source-pid 99999999: no such process" {
		t.Errorf("a process that is not there: %v, %+v", err, r)
	}

	// In the first round, before the stop.
	ctx, cancel := context.WithCancel(all)
	o = base()
	o.Duration = time.Hour
	o.Acked = nil
	done := growing(cancel) // at any moment of an hour
	run(ctx, o, "the topics are not stopped; their partitions: 3 ", "ended: early: interrupted")
	<-done

	// The source refuses the load.
	o = base()
	o.RecordSize, o.BatchSize, o.Compression, o.Duration = 2<<20, 2<<20, "none", time.Hour
	run(all, o, "the topics are not stopped; their partitions: 3 ", "MESSAGE_TOO_LARGE")

	// Between two rounds: what is said is what is so.
	ctx, cancel = context.WithCancel(all)
	o = base()
	o.Rounds, o.Progress = 20, &when{text: "round 1 of", f: cancel}
	r, err := loadgen.Failover(ctx, o)
	if err == nil || r == nil || len(r.Left) != 1 || strings.Contains(err.Error(), "minute") || !strings.Contains(strings.Join(r.NotValid, ";"), "ended: early: interrupted") {
		t.Fatalf("%v, %+v", err, r)
	}
	if now := states(all, t, dst.Addr()); (now == "STOPPED:3") != (r.Left[0] == "the topics are stopped now"+again) || now != "STOPPED:3" && !strings.HasPrefix(r.Left[0], "the topics are not stopped; ") {
		t.Errorf("the partitions are %s, the report says: %s", now, r.Left[0])
	}

	// A whole run ends with what it always said.
	r, err = loadgen.Failover(all, base())
	if err != nil || len(r.Left) != 1 || r.Left[0] != "the topics are stopped now"+again {
		t.Errorf("%v, %+v", err, r)
	}

	// The source is lost before the stop.
	if _, err := loadgen.Catchup(all, loadgen.CatchupOptions{Options: o.Options, Source: src.Addr(), Destination: dst.Addr(), Mirror: "m", Topics: "load"}); err == nil {
		t.Error("stopped topics were paused")
	}
	startAgain(all, t, dst.Addr())
	o = base()
	o.Duration = time.Hour
	done = growing(func() { testkit.StopBroker(t, src) })
	run(all, o, "the topics are not stopped; their partitions: ", "was lost")
	<-done
	testkit.StopBroker(t, dst)
}

// records are how many topic load has.
func records(ctx context.Context, t *testing.T, addr string) (n int64) {
	ends, err := kadm.NewClient(testkit.Client(t, addr)).ListEndOffsets(ctx, "load")
	if err != nil {
		t.Error(err)
	}
	ends.Each(func(o kadm.ListedOffset) { n += o.Offset })
	return n
}

func startAgain(ctx context.Context, t *testing.T, dst string) {
	t.Helper()
	start := mirrormsg.NewPtrStartMirrorTopicsRequest()
	st := mirrormsg.NewStartMirrorTopicsRequestTopic()
	st.TopicName = "load"
	start.MirrorName, start.Topics = "m", append(start.Topics, st)
	if r, err := start.RequestWith(ctx, testkit.Client(t, dst)); err != nil || r.ErrorCode != 0 || r.Topics[0].ErrorCode != 0 {
		t.Fatal(err, r)
	}
	for got := ""; got != "MIRRORING:3"; got = states(ctx, t, dst) { // a condition is polled
		if ctx.Err() != nil {
			t.Fatalf("the topics are %s", got)
		}
	}
}
