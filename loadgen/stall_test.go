package loadgen

import (
	"encoding/binary"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// stallingServer answers Produce at once, but holds everything once for a while, first seen from start on.
func stallingServer(c net.Conn, start time.Time, stall time.Duration) {
	defer c.Close()
	stalled := false
	for {
		var head [4]byte
		if _, err := io.ReadFull(c, head[:]); err != nil {
			return
		}
		body := make([]byte, binary.BigEndian.Uint32(head[:]))
		if _, err := io.ReadFull(c, body); err != nil {
			return
		}
		if !stalled && !time.Now().Before(start) {
			stalled = true
			time.Sleep(stall) // the stall itself, in the test's own time
		}
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

// TestAStallShowsInResponseTimesOnly is the proof that there is no coordinated omission, to the record: a server that
// holds everything for 500 ms once is seen by every record that was due meanwhile in the response times, and by the
// requests that were under way alone in the service times. Time is the test's own, so the counts are exact.
func TestAStallShowsInResponseTimesOnly(t *testing.T) {
	const perSecond, stall, step = 1000, 500 * time.Millisecond, time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		o := Options{
			Rate: Rate{PerSecond: perSecond}, RecordSize: 100, BatchSize: 5 * 110, Linger: time.Second, Acks: -1, Producers: 1, Duration: 4 * time.Second, InFlight: 1, Seed: 1,
		}
		l, err := newLoad(&layout{topic: "t", leaders: []string{"here"}}, o)
		if err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(2 * time.Second)
		l.dial = func(string) (*conn, error) {
			ours, theirs := net.Pipe()
			go stallingServer(theirs, at, stall)
			return newConn(ours), nil
		}
		if err := l.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := l.records.Load(); n != 4*perSecond || l.response.Count() != n || l.service.Count() != n || l.slip.Count() != n {
			t.Fatalf("%d records; %d response, %d service, %d slip times", n, l.response.Count(), l.service.Count(), l.slip.Count())
		}
		// The batch of five that met the stall, and 500 ms / 1 ms - 5 that became due behind it; the last ones
		// waited for less than the bound.
		response, service := above(l.response, 100*time.Millisecond), above(l.service, 100*time.Millisecond)
		if response < 395 || response > 405 {
			t.Errorf("%d response times above 100 ms, want the 400 records that were due in the first 400 ms of the stall", response)
		}
		if service != 5 {
			t.Errorf("%d service times above 100 ms, want the 5 records of the request that was under way", service)
		}
		rp99, _ := l.response.Quantile(.99)
		sp99, _ := l.service.Quantile(.99)
		if rp99 < 400 || rp99 > 510 || sp99 > 1 {
			t.Errorf("p99 of the response times %.1f ms, of the service times %.1f ms", rp99, sp99)
		}
		if s := l.response.Summary(); *s.Max < 499 || *s.Max > 506 {
			t.Errorf("the largest response time is %.1f ms", *s.Max)
		}
		if late, _ := l.late.worst(); late > step {
			t.Errorf("the server's stall counts as the generator's own lateness: %s", late)
		}
	})
}

// above counts the samples above a bound.
func above(r *Recorder, bound time.Duration) (n int64) {
	for _, b := range r.Positive().Distribution() {
		if b.From > bound.Microseconds() {
			n += b.Count
		}
	}
	return n
}
