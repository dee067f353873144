package loadgen_test

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"stet/broker/mirrormsg"
	"stet/internal/testkit"
	"stet/loadgen"
)

// TestMirrorScenarios runs lag, catchup and failover against two brokers in the process.
func TestMirrorScenarios(t *testing.T) {
	src, dst := testkit.StartBroker(t, ""), testkit.StartBroker(t, "", "mirror.metadata.refresh.interval.ms=200")
	ctx := testkit.Context(t)
	if _, err := kadm.NewClient(testkit.Client(t, src.Addr())).CreateTopic(ctx, 3, 1, nil, "load"); err != nil {
		t.Fatal(err)
	}
	cl := testkit.Client(t, dst.Addr())
	addr := src.Addr()
	create := mirrormsg.NewPtrCreateMirrorRequest()
	c := mirrormsg.NewCreateMirrorRequestConfig()
	c.Name, c.Value = "bootstrap.servers", &addr
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

	o.Duration = 300 * time.Millisecond
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
