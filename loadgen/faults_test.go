package loadgen_test

import (
	"net"
	"strings"
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
	if service == 0 {
		t.Errorf("no service time above %s, want those of the requests that were under way", bound)
	}
	if h := r.Histograms["response_ms"]; *h.Max < 400 || *h.P99 < 250 {
		t.Errorf("response times: p99 %.0f ms, largest %.0f ms", *h.P99, *h.Max)
	}
}

// TestTargetDies: a target that is lost in the middle ends the run at once, with what was measured and why it does not count.
func TestTargetDies(t *testing.T) {
	ctx := testkit.Context(t)
	kinds := map[string]struct {
		produced func(s *sink.Listener) func(int64) bool
		want     string
	}{
		"gone": {func(s *sink.Listener) func(int64) bool {
			return func(n int64) bool {
				if n == 100 {
					go s.Close() // it waits for the connection that is asking
					for {        // a condition is polled
						c, err := net.Dial("tcp", s.Addr())
						if err != nil {
							break
						}
						_ = c.Close()
					}
				}
				return n < 100
			}
		}, "connecting again: connection refused"},
		"closes every connection": {func(*sink.Listener) func(int64) bool {
			return func(n int64) bool { return n < 100 }
		}, "loses every new connection"},
	}
	for name, c := range kinds {
		for _, rate := range []float64{0, 2000} {
			s := startSink(t)
			s.OnProduce = c.produced(s)
			o := options()
			o.Rate, o.Duration, o.Compression, o.Producers, o.Warmup = loadgen.Rate{PerSecond: rate}, time.Hour, "none", 1, 0
			o.InFlight = 1 // a connection closed with unread requests in it may lose answers that were sent
			r, err := loadgen.Produce(ctx, s.Addr(), "load", o)
			if err == nil || !strings.Contains(err.Error(), "was lost") || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), s.Addr()) {
				t.Fatalf("%s, rate %.0f: %v", name, rate, err)
			}
			if r == nil || r.OK() || len(r.NotValid) < 2 || r.Load.Errors == 0 {
				t.Fatalf("%s, rate %.0f: %+v", name, rate, r)
			}
			if n := r.Histograms["response_ms"].Count; n < 99 || n != r.Load.Records {
				t.Errorf("%s, rate %.0f: %d response times of %d records are kept", name, rate, n, r.Load.Records)
			}
		}
	}
}

// TestTargetRefuses: a final answer ends the run with the server's word.
func TestTargetRefuses(t *testing.T) {
	b := testkit.StartBroker(t, "", "message.max.bytes=2000")
	o := options()
	o.Compression, o.Duration, o.RecordSize, o.BatchSize = "none", time.Hour, 3000, 4000 // one record is too large already
	r, err := loadgen.Produce(testkit.Context(t), b.Addr(), "load", o)
	if err == nil || !strings.Contains(err.Error(), "topic load: MESSAGE_TOO_LARGE") || r == nil || len(r.NotValid) == 0 {
		t.Errorf("%v, %+v", err, r)
	}
}
