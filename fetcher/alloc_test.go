package fetcher

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/zerocopy"
	"stet/zerocopy/batch"
)

// devNull takes everything and stays where it is, so that the same response can be appended again.
type devNull struct{ next int64 }

func (*devNull) LogStartOffset() int64 { return 0 }
func (d *devNull) LogEndOffset() int64 { return d.next }
func (*devNull) LatestEpoch() int32    { return 0 }
func (*devNull) LeaderEpoch() int32    { return 100 }
func (*devNull) Append(Append) error   { return nil }
func (*devNull) Observe(Observation)   {}

type noEvents struct{}

func (noEvents) Partition(Event)             {}
func (noEvents) Broker(string, int32, error) {}

type noConn struct{ requests int }

func (c *noConn) FetchVersion() int16             { return newestFetch }
func (c *noConn) RTT() time.Duration              { return 0 }
func (c *noConn) Send(r *kmsg.FetchRequest) error { c.requests += len(r.Topics); return nil }
func (c *noConn) Close() error                    { return nil }
func (c *noConn) Receive(context.Context) (zerocopy.Lease, []byte, error) {
	panic("not called")
}

func testLoop(partitions int) (*loop, []*partition) {
	m := NewManager(Options{Events: noEvents{}})
	mi := &mirror{name: "m", config: DefaultConfig()}
	l := newLoop(m, mi, loopKey{broker: 1}, newGate(func(error) {}))
	var ps []*partition
	for i := range partitions {
		p := newPartition(Assignment{ID: ID{TopicID: [16]byte{1}, Topic: "t", Partition: int32(i)}, Sink: &devNull{}})
		l.add(p)
		ps = append(ps, p)
	}
	l.session.id, l.session.epoch = 5, 1
	return l, ps
}

func testResponse(partitions, batches, size int) []byte {
	resp := kmsg.NewPtrFetchResponse()
	resp.SetVersion(newestFetch)
	resp.SessionID = 5
	topic := kmsg.NewFetchResponseTopic()
	topic.TopicID = [16]byte{1}
	for i := range partitions {
		rp := kmsg.NewFetchResponseTopicPartition()
		rp.Partition, rp.HighWatermark = int32(i), int64(batches)
		for b := range batches {
			rp.RecordBatches = batch.Build(rp.RecordBatches, batch.Header{BaseOffset: int64(b), ProducerID: -1}, batch.KV{Value: make([]byte, size)})
		}
		topic.Partitions = append(topic.Partitions, rp)
	}
	resp.Topics = append(resp.Topics, topic)
	return resp.AppendTo(nil)
}

// TestNoAllocationPerBatch is G10: a response is planned, the next request built, and everything appended
// without allocating.
func TestNoAllocationPerBatch(t *testing.T) {
	l, ps := testLoop(4)
	body := testResponse(4, 50, 1000)
	conn := &noConn{}
	now := time.Now()
	round := func() {
		for _, p := range ps {
			p.next, p.epoch = 0, 0
			l.touch(p)
		}
		if ok, _, err := l.send(conn); !ok || err != nil {
			t.Fatal(ok, err)
		}
		if err := l.plan(body, now); err != nil {
			t.Fatal(err)
		}
		l.append()
		l.deliver()
	}
	if n := testing.AllocsPerRun(200, round); n != 0 {
		t.Errorf("%v allocations per response of 200 batches", n)
	}
	c := l.m.o.Counters
	if c.AppendedBatches.Load() != 201*200 || c.IgnoredBytes.Load() != 0 {
		t.Errorf("appended %d batches, ignored %d bytes", c.AppendedBatches.Load(), c.IgnoredBytes.Load())
	}
	if conn.requests == 0 {
		t.Error("nothing was asked")
	}
}

func BenchmarkResponse(b *testing.B) {
	for _, size := range []int{1000, 16000, 500000} {
		b.Run(map[int]string{1000: "1k", 16000: "16k", 500000: "500k"}[size], func(b *testing.B) {
			l, ps := testLoop(10)
			body := testResponse(10, 1<<20/size, size)
			conn := &noConn{}
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				for _, p := range ps {
					p.next, p.epoch = 0, 0
					l.touch(p)
				}
				if _, _, err := l.send(conn); err != nil {
					b.Fatal(err)
				}
				if err := l.plan(body, time.Time{}); err != nil {
					b.Fatal(err)
				}
				l.append()
				l.deliver()
			}
		})
	}
}
