package loadgen_test

import (
	"testing"
	"time"

	"stet/benchmarks/sink"
	"stet/internal/testkit"
	"stet/loadgen"
)

// startSink starts a listener that acknowledges and forgets, and ends with the test.
func startSink(t *testing.T) *sink.Listener {
	t.Helper()
	s, err := sink.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// TestStalledServer: over TCP a server that stalls for 500 ms shows in the response times of what was due meanwhile, and
// in the service times of the requests that were under way. stall_test.go has the same with exact counts.
func TestStalledServer(t *testing.T) {
	const perSecond, stall, bound = 2000, 500 * time.Millisecond, 100 * time.Millisecond
	s := startSink(t)
	started := time.Now()
	stalled := false
	s.OnProduce = func(int64) bool { // one connection, so one goroutine
		if !stalled && time.Since(started) > 700*time.Millisecond {
			stalled = true
			time.Sleep(stall) // the stall itself
		}
		return true
	}
	o := options()
	o.Rate, o.Producers, o.Duration, o.Linger, o.Compression, o.Acks = loadgen.Rate{PerSecond: perSecond}, 1, 2*time.Second, time.Millisecond, "none", 1
	o.MaxSlip = time.Minute // other tests share the machine
	r, err := loadgen.Produce(testkit.Context(t), s.Addr(), "load", o)
	if err != nil {
		t.Fatal(err)
	}
	if !r.OK() || r.Load.Records != 2*perSecond {
		t.Errorf("%d records, %v", r.Load.Records, r.Checks)
	}
	above := func(name string) (n int64) {
		for _, b := range r.Recorder(name).Positive().Distribution() {
			if b.From > bound.Microseconds() {
				n += b.Count
			}
		}
		return n
	}
	due := int64(perSecond * (stall - bound).Seconds())
	response, service := above("response_ms"), above("service_ms")
	if response < due*9/10 {
		t.Errorf("%d response times above %s, want about the %d records that were due in the stall", response, bound, due)
	}
	if service == 0 || service > response/3 {
		t.Errorf("%d service times above %s beside %d response times, want the few requests that were under way", service, bound, response)
	}
	if h := r.Histograms["response_ms"]; *h.Max < 400 || *h.P99 < 250 {
		t.Errorf("response times: p99 %.0f ms, largest %.0f ms", *h.P99, *h.Max)
	}
}
