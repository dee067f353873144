package loadgen

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// slowServer answers each Produce after a while, one after the other.
func slowServer(c net.Conn, each time.Duration) {
	defer c.Close()
	for {
		var head [4]byte
		if _, err := io.ReadFull(c, head[:]); err != nil {
			return
		}
		body := make([]byte, binary.BigEndian.Uint32(head[:]))
		if _, err := io.ReadFull(c, body); err != nil {
			return
		}
		time.Sleep(each) // in the test's own time
		resp := kmsg.NewPtrProduceResponse()
		resp.Version = produceVersion
		t, p := kmsg.NewProduceResponseTopic(), kmsg.NewProduceResponseTopicPartition()
		t.Partitions = append(t.Partitions, p)
		resp.Topics = append(resp.Topics, t)
		out := append(make([]byte, 4), body[4:8]...) // correlation id
		out = resp.AppendTo(out)
		binary.BigEndian.PutUint32(out, uint32(len(out)-4))
		if _, err := c.Write(out); err != nil {
			return
		}
	}
}

// slowRun runs a load against a server that answers a batch of ten records every 10 ms: 1000 records per second.
func slowRun(t *testing.T, o Options) (l *load, took time.Duration, err error) {
	t.Helper()
	o.RecordSize, o.BatchSize, o.Acks, o.Producers, o.InFlight, o.Seed = 100, 10*110, -1, 1, 1, 1
	l, err = newLoad(&layout{topic: "t", leaders: []string{"here"}}, o)
	if err != nil {
		t.Fatal(err)
	}
	l.dial = func(string) (*conn, error) {
		ours, theirs := net.Pipe()
		go slowServer(theirs, 10*time.Millisecond)
		return newConn(ours), nil
	}
	start := time.Now()
	err = l.run(t.Context())
	return l, time.Since(start), err
}

// TestHopelessRate: a rate that the target will never take ends the run with its schedule, and is said; what can still be
// sent in time is sent, and records that wait for their linger are not late.
func TestHopelessRate(t *testing.T) {
	for _, rate := range []float64{1e5, 1e8} {
		synctest.Test(t, func(t *testing.T) {
			l, took, err := slowRun(t, Options{Rate: Rate{PerSecond: rate}, Warmup: time.Second, Duration: time.Second, Linger: time.Millisecond})
			if err == nil || !strings.Contains(err.Error(), "the target took ") || !strings.Contains(err.Error(), "s of the schedule of 2s, warm-up included, were not sent") || strings.Contains(err.Error(), "took 0 ") {
				t.Fatalf("%v", err)
			}
			if took > 4*time.Second {
				t.Errorf("it ended after %s", took)
			}
			e := l.evidence(context.Background(), err)
			if sent := l.sent.Load(); e.errors != 0 || e.unsent == 0 || e.unsent+sent != int64(2*rate) {
				t.Errorf("%d errors, %d sent and %d not sent of %.0f", e.errors, sent, e.unsent, 2*rate)
			}
			r := newReport("produce", l.o)
			if r.judge(e); r.OK() {
				t.Error("the run is valid")
			}
		})
	}
	synctest.Test(t, func(t *testing.T) { // four times too much: everything is sent late
		l, took, err := slowRun(t, Options{Rate: Rate{PerSecond: 4000}, Duration: 2 * time.Second, Linger: time.Millisecond})
		if err != nil || l.records.Load() != 8000 || took < 7*time.Second {
			t.Errorf("%v after %s, %d records", err, took, l.records.Load())
		}
	})
	synctest.Test(t, func(t *testing.T) { // the linger is longer than the run
		l, _, err := slowRun(t, Options{Rate: Rate{PerSecond: 2}, Duration: 3 * time.Second, Linger: time.Minute})
		if err != nil || l.records.Load() != 6 {
			t.Errorf("%v, %d records", err, l.records.Load())
		}
	})
}
