package loadgen_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"stet/broker"
	"stet/broker/mirrormsg"
	"stet/internal/testkit"
	"stet/loadgen"
)

// startMirror makes topic load at the source, and mirror m of it.
func startMirror(ctx context.Context, t *testing.T, src, dst string) {
	t.Helper()
	if _, err := kadm.NewClient(testkit.Client(t, src)).CreateTopic(ctx, 3, 1, nil, "load"); err != nil {
		t.Fatal(err)
	}
	cl := testkit.Client(t, dst)
	create := mirrormsg.NewPtrCreateMirrorRequest()
	c := mirrormsg.NewCreateMirrorRequestConfig()
	c.Name, c.Value = "bootstrap.servers", &src
	create.MirrorName, create.Config = "m", append(create.Config, c)
	if r, err := create.RequestWith(ctx, cl); err != nil || r.ErrorCode != 0 {
		t.Fatal(err, r)
	}
	start := mirrormsg.NewPtrStartMirrorTopicsRequest()
	st := mirrormsg.NewStartMirrorTopicsRequestTopic()
	st.TopicName = "load"
	start.MirrorName, start.Topics = "m", append(start.Topics, st)
	if r, err := start.RequestWith(ctx, cl); err != nil || r.ErrorCode != 0 || r.Topics[0].ErrorCode != 0 {
		t.Fatal(err, r)
	}
	for states(ctx, t, dst) != "MIRRORING:3" { // a condition is polled
		if ctx.Err() != nil {
			t.Fatal("the topics are not mirrored")
		}
	}
}

// TestMirrorScenarios runs lag, catchup and failover against two brokers in the process.
func TestMirrorScenarios(t *testing.T) {
	src, dst := testkit.StartBroker(t, ""), testkit.StartBroker(t, "", "mirror.metadata.refresh.interval.ms=200")
	ctx := testkit.Context(t)
	startMirror(ctx, t, src.Addr(), dst.Addr())

	o := options()
	o.Create = false
	lag, err := loadgen.Lag(ctx, src.Addr(), dst.Addr(), "load", o)
	if err != nil {
		t.Fatal(err)
	}
	if !lag.OK() || lag.Recorder("added_lag_ms").Count() != lag.Load.Records || lag.Recorder("replication_lag_ms").Count() != lag.Load.Records {
		t.Errorf("lag: %d of %d records measured, checks %v", lag.Recorder("added_lag_ms").Count(), lag.Load.Records, lag.Checks)
	}

	catchup, err := loadgen.Catchup(ctx, loadgen.CatchupOptions{Options: o, Source: src.Addr(), Destination: dst.Addr(), Mirror: "m", Topics: "lo.*", Fill: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if catchup.Load.Bytes < 4<<20 || catchup.Throughput.MBPerSec <= 0 || catchup.Throughput.CPUPerGiB["self"] <= 0 {
		t.Errorf("catchup: %+v %+v", catchup.Load, catchup.Throughput)
	}

	o.Duration = 2 * time.Second // every partition has an acknowledgement before the stop
	fo, err := loadgen.Failover(ctx, loadgen.FailoverOptions{Options: o, Source: src.Addr(), Destination: dst.Addr(), Mirror: "m", Topics: "load", Rounds: 2})
	if err != nil {
		t.Fatal(err)
	}
	if !fo.OK() || fo.Failover.Rounds != 2 || fo.Recorder("first_ack_ms").Count() != 6 || fo.Recorder("first_read_ms").Count() != 6 || fo.Recorder("stop_ms").Count() != 2 || fo.Recorder("write_gap_ms").Count() != 6 {
		t.Errorf("failover: %+v, checks %v", fo.Failover, fo.Checks)
	}
	if _, err := loadgen.Failover(ctx, loadgen.FailoverOptions{Options: o, Source: src.Addr(), Destination: dst.Addr(), Mirror: "nope", Topics: "load", Rounds: 1}); err == nil || !strings.Contains(err.Error(), "nope") {
		t.Errorf("a mirror that is not there: %v", err)
	}
}

func TestE2E(t *testing.T) {
	b := testkit.StartBroker(t, "")
	r, err := loadgen.E2E(testkit.Context(t), b.Addr(), "e2e", options())
	if err != nil {
		t.Fatal(err)
	}
	if !r.OK() || r.Recorder("e2e_ms").Count() != r.Load.Records {
		t.Errorf("%d of %d records measured, checks %v", r.Recorder("e2e_ms").Count(), r.Load.Records, r.Checks)
	}
}

// TestLagLosesASide: when source or destination goes in the middle, the run ends soon, with what was measured.
func TestLagLosesASide(t *testing.T) {
	for _, side := range []string{"source", "destination"} {
		t.Run(side, func(t *testing.T) {
			ctx := testkit.Context(t)
			var brokers [2]*broker.Broker
			for i := range brokers {
				b, err := testkit.TryBroker(filepath.Join(t.TempDir(), "data"), "mirror.metadata.refresh.interval.ms=200")
				if err != nil {
					t.Fatal(err)
				}
				brokers[i] = b
			}
			src, dst := brokers[0], brokers[1]
			startMirror(ctx, t, src.Addr(), dst.Addr())
			lost, stays := src, dst
			if side == "destination" {
				lost, stays = dst, src
			}
			defer testkit.StopBroker(t, stays)
			stopped := make(chan struct{})
			o := options()
			o.Create, o.Duration, o.CPU = false, time.Hour, nil
			o.Progress = &when{text: " ms p99 ", f: func() { defer close(stopped); testkit.StopBroker(t, lost) }} // some lag is measured
			r, err := loadgen.Lag(ctx, src.Addr(), dst.Addr(), "load", o)
			<-stopped
			if err == nil || r == nil || r.OK() || !strings.Contains(strings.Join(r.NotValid, ";"), "ended: early: ") || !strings.Contains(err.Error(), lost.Addr()) {
				t.Fatalf("%v, %+v", err, r)
			}
			if r.Histograms["replication_lag_ms"].Count == 0 {
				t.Errorf("nothing of %d acknowledged records is kept", r.Load.Records)
			}
		})
	}
}
