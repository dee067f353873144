package broker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/internal/testkit/scripted"
)

// C42: the distinct answers of SPEC section 13, each through DescribeMirrors and /metrics: never fetched and paused are -1 and differ by the state; idle is 0
// with a young age; throttled and failed keep the last lag while the age grows; and a right that is missing, from the start or later, never shows as 0.
func TestC42DistinctAnswers(t *testing.T) {
	// What has failed rests in that state: while it is tried again, it is MIRRORING until the source's answer is there.
	w := newWorld(t, "mirror.failed.retry.initial.backoff.ms=60000", "mirror.failed.retry.max.backoff.ms=60000")
	names := []string{"idle", "paused", "throttled", "failed", "forbidden", "revoked"}
	topics := map[string]*scripted.Topic{}
	for _, n := range names {
		topics[n] = w.src.CreateTopic(n, 1)
		w.src.Produce(topics[n], 0, 4, 50)
	}
	denied := func(n string) {
		w.src.Change(func() { topics[n].Logs[0].Err = kerr.TopicAuthorizationFailed.Code })
	}
	denied("forbidden")
	w.create()
	w.startTopics(names...)
	w.wait("what can be copied is", func(p part) bool { return p.topic == "forbidden" || mirroring(p) && p.DestinationOffset == 4 })
	w.pause("paused")
	w.alter("throttled", "mirror.replication.throttled.replicas", "*")
	w.alter("", "mirror.replication.throttled.rate", "1")
	held := make(chan struct{})
	w.src.SetHook(func(c *scripted.Call) { // the answer to the setting comes before it holds: a throttled loop asks for little
		if r, ok := c.Request.(*kmsg.FetchRequest); ok && r.MaxBytes < 1000 {
			select {
			case <-held:
			default:
				close(held)
			}
		}
	})
	for i := range 200 { // the first one may still pass, and makes a debt; all are there when it does
		w.src.Change(func() { topics["throttled"].Logs[0].Hidden = i + 1 })
		w.src.Produce(topics["throttled"], 0, 5, 1000)
	}
	select {
	case <-held:
	case <-time.After(time.Minute):
		t.Fatal("no loop is throttled")
	}
	w.src.SetHook(nil)
	w.src.Change(func() { topics["throttled"].Logs[0].Hidden = 0 })
	w.src.Change(func() { topics["failed"].Logs[0].Hidden = 1 }) // nobody fetches the batch before it is corrupt
	w.src.Produce(topics["failed"], 0, 3, 50)
	w.src.Change(func() {
		l := topics["failed"].Logs[0]
		l.Hidden = 0
		b := append([]byte(nil), l.Batches[1]...)
		b[len(b)-5] ^= 1
		l.Batches[1] = b
	})
	w.src.Change(func() { // three more records and no right, at the same moment
		l := topics["revoked"].Logs[0]
		l.Hidden = 1
	})
	w.src.Produce(topics["revoked"], 0, 3, 50)
	denied("revoked")

	type answer struct {
		state     string
		lag       func(float64) bool
		age       func(float64) bool // in seconds
		throttled float64
	}
	is := func(want float64) func(float64) bool { return func(v float64) bool { return v == want } }
	atLeast := func(least float64) func(float64) bool { return func(v float64) bool { return v >= least } }
	young := func(v float64) bool { return v >= 0 && v < 1 }
	answers := map[string]answer{
		"idle":      {"MIRRORING", is(0), young, 0},
		"paused":    {"PAUSED", is(-1), atLeast(-1), 0},
		"throttled": {"MIRRORING", atLeast(900), atLeast(1), 1},
		"failed":    {"FAILED", is(3), atLeast(1), 0},
		"forbidden": {"", is(-1), is(-1), 0}, // never fetched; PREPARING, or FAILED between two attempts
		"revoked":   {"FAILED", atLeast(0), atLeast(1), 0},
	}
	// All of them at the same moment, seen twice: idle stays young, the others grow older.
	check := func() error {
		seen := map[string]part{}
		for _, p := range w.describe() {
			seen[p.topic] = p
		}
		m := counters(t, w.b)
		metric := func(name, topic string) float64 {
			v, ok := m[name+`{mirror="m",partition="0",topic="`+topic+`"}`]
			if !ok {
				return -77
			}
			return v
		}
		for n, want := range answers {
			p := seen[n]
			if want.state != "" && p.State != want.state || want.state == "" && p.State != "PREPARING" && p.State != "FAILED" {
				return fmt.Errorf("%s is %v", n, p)
			}
			ageMs := float64(p.LagAgeMs)
			if ageMs >= 0 {
				ageMs /= 1000
			}
			for how, v := range map[string][2]float64{
				"DescribeMirrors": {float64(p.Lag), ageMs},
				"/metrics":        {metric("stet_mirror_lag_records", n), metric("stet_mirror_lag_age_seconds", n)},
			} {
				if !want.lag(v[0]) || !want.age(v[1]) {
					return fmt.Errorf("%s by %s: lag %v, age %v (%v)", n, how, v[0], v[1], p)
				}
			}
			if got := metric("stet_mirror_partition_throttled", n); got != want.throttled {
				return fmt.Errorf("%s: throttled is %v", n, got)
			}
			if n == "forbidden" || n == "revoked" || n == "failed" {
				if p.ErrorMessage == nil || *p.ErrorMessage == "" {
					return fmt.Errorf("%s: no reason is given: %v", n, p)
				}
			}
		}
		if m[`stet_mirror_partitions{mirror="m",state="PAUSED"}`] != 1 || m[`stet_mirror_partitions{mirror="m",state="FAILED"}`] < 2 {
			return fmt.Errorf("the states by /metrics: %v paused, %v failed", m[`stet_mirror_partitions{mirror="m",state="PAUSED"}`], m[`stet_mirror_partitions{mirror="m",state="FAILED"}`])
		}
		return nil
	}
	until := func() (ages map[string]float64) {
		t.Helper()
		deadline := time.Now().Add(20 * time.Second)
		for err := check(); err != nil; err = check() {
			if time.Now().After(deadline) {
				t.Fatal(err)
			}
			<-time.After(20 * time.Millisecond)
		}
		ages = map[string]float64{}
		for _, p := range w.describe() {
			ages[p.topic] = float64(p.LagAgeMs)
		}
		return ages
	}
	before := until()
	<-time.After(300 * time.Millisecond) // of age
	after := until()
	for _, n := range []string{"throttled", "failed", "revoked"} {
		if after[n] < before[n]+300 {
			t.Errorf("%s: the age went from %v to %v ms", n, before[n], after[n])
		}
	}
}

// C42: no two partitions share a metric, however alike their names are.
func TestC42NoSharedMetrics(t *testing.T) {
	w := newWorld(t)
	w.create()
	names := []string{"a.b", "ab", "a-b", "a.b-1"}
	topics := map[string]*scripted.Topic{}
	for _, n := range names {
		topics[n] = w.src.CreateTopic(n, 3)
	}
	w.startTopics(names...)
	want := map[string]float64{}
	batches := 0
	for _, n := range names {
		for p := range int32(3) {
			batches++
			for range batches {
				w.src.Produce(topics[n], p, 1, 50)
			}
			want[fmt.Sprintf(`stet_mirror_in_batches_total{mirror="m",partition="%d",topic="%s"}`, p, n)] = float64(batches)
		}
	}
	w.wait("copied", func(p part) bool {
		return mirroring(p) && p.DestinationOffset == topics[p.topic].Logs[p.PartitionIndex].End()
	})
	m := counters(t, w.b)
	for series, n := range want {
		if m[series] != n {
			t.Errorf("%s is %v, want %v", series, m[series], n)
		}
	}
}
