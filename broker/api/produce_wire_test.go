package api

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"stet/internal/invariant"
)

func drawProduce(t *rapid.T) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Version = rapid.Int16Range(produce.min, produce.max).Draw(t, "version")
	req.Acks = rapid.Int16Range(-1, 1).Draw(t, "acks")
	if rapid.Bool().Draw(t, "transactional") {
		id := rapid.StringN(0, 20, 20).Draw(t, "transactional id")
		req.TransactionID = &id
	}
	for range rapid.IntRange(0, 3).Draw(t, "topics") {
		rt := kmsg.NewProduceRequestTopic()
		if req.Version >= 13 {
			copy(rt.TopicID[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		} else {
			rt.Topic = rapid.StringN(0, 200, 249).Draw(t, "topic")
		}
		for range rapid.IntRange(0, 3).Draw(t, "partitions") {
			rp := kmsg.NewProduceRequestTopicPartition()
			rp.Partition = rapid.Int32().Draw(t, "partition")
			rp.Records = rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "records")
			rt.Partitions = append(rt.Partitions, rp)
		}
		req.Topics = append(req.Topics, rt)
	}
	return req
}

// TestProduceRequestAsKmsgReadsIt: what kmsg writes is read as it was meant, and nothing that is cut off is taken.
func TestProduceRequestAsKmsgReadsIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		req := drawProduce(t)
		wire := req.AppendTo(nil)
		var c produceCall
		if err := c.parse(req.Version, wire); err != nil {
			t.Fatal(err)
		}
		if c.acks != req.Acks || len(c.topics) != len(req.Topics) {
			t.Fatalf("acks %d and %d topics, want %d and %d", c.acks, len(c.topics), req.Acks, len(req.Topics))
		}
		for i, rt := range req.Topics {
			got := c.topics[i]
			if got.name != rt.Topic || got.id != rt.TopicID || got.to-got.from != len(rt.Partitions) {
				t.Fatalf("topic %d is %+v, want %+v", i, got, rt)
			}
			for j, rp := range rt.Partitions {
				if p := c.parts[got.from+j]; p.index != rp.Partition || !bytes.Equal(p.records, rp.Records) {
					t.Fatalf("partition %d is %+v, want %+v", j, p, rp)
				}
			}
		}
		var cut produceCall
		if n := rapid.IntRange(0, len(wire)-1).Draw(t, "cut"); cut.parse(req.Version, wire[:n:n]) == nil {
			t.Fatalf("%d of %d bytes are taken for a request", n, len(wire))
		}
	})
}

// TestProduceReplyAsKmsgWritesIt holds the encoder against kmsg, byte for byte.
func TestProduceReplyAsKmsgWritesIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		req := drawProduce(t)
		var c produceCall
		if err := c.parse(req.Version, req.AppendTo(nil)); err != nil {
			t.Fatal(err)
		}
		want := kmsg.NewPtrProduceResponse()
		want.Version = req.Version
		for i, rt := range req.Topics {
			wt := kmsg.NewProduceResponseTopic()
			wt.Topic, wt.TopicID = rt.Topic, rt.TopicID
			for j := range rt.Partitions {
				p := &c.parts[c.topics[i].from+j]
				wp := kmsg.NewProduceResponseTopicPartition()
				wp.Partition = p.index
				if rapid.Bool().Draw(t, "refused") {
					text := rapid.StringN(0, 40, 120).Draw(t, "message")
					p.code, p.message = kerr.NotLeaderForPartition.Code, text
					wp.ErrorCode, wp.ErrorMessage = p.code, &text
					if req.Version >= versionProduceLeader && rapid.Bool().Draw(t, "hint") {
						p.leader, p.leaderEpoch = 7, 9
						wp.CurrentLeader.LeaderID, wp.CurrentLeader.LeaderEpoch = 7, 9
					}
				} else {
					p.base, p.appendTime, p.logStart = rapid.Int64().Draw(t, "base"), rapid.Int64().Draw(t, "time"), rapid.Int64().Draw(t, "start")
				}
				wp.BaseOffset, wp.LogAppendTime, wp.LogStartOffset = p.base, p.appendTime, p.logStart
				wt.Partitions = append(wt.Partitions, wp)
			}
			want.Topics = append(want.Topics, wt)
		}
		c.encode(req.Version, 77)
		frame := binary.BigEndian.AppendUint32(nil, 77)
		if want.IsFlexible() {
			frame = append(frame, 0)
		}
		frame = want.AppendTo(frame)
		frame = append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)
		if !bytes.Equal(c.out, frame) {
			t.Fatalf("version %d\n got %x\nwant %x", req.Version, c.out, frame)
		}
	})
}

// TestProduceWireAllocations: reading a request and writing its answer costs no allocation.
func TestProduceWireAllocations(t *testing.T) {
	if invariant.Enabled {
		t.Skip("allocations are counted without -race and invariants")
	}
	for v := produce.min; v <= produce.max; v++ {
		req := kmsg.NewPtrProduceRequest()
		req.Version, req.Acks = v, -1
		rt := kmsg.NewProduceRequestTopic()
		rt.Topic = "topic"
		rp := kmsg.NewProduceRequestTopicPartition()
		rp.Records = make([]byte, 100)
		rt.Partitions = append(rt.Partitions, rp, rp)
		req.Topics = append(req.Topics, rt)
		wire := req.AppendTo(nil)
		var c produceCall
		if n := testing.AllocsPerRun(100, func() {
			c.topics, c.parts = c.topics[:0], c.parts[:0]
			if err := c.parse(v, wire); err != nil {
				t.Fatal(err)
			}
			c.encode(v, 1)
		}); n != 0 {
			t.Errorf("version %d: %v allocations", v, n)
		}
	}
}

// FuzzProduceRequest: whatever comes is read within its bounds, and what is taken is what kmsg takes.
func FuzzProduceRequest(f *testing.F) {
	for v := produce.min; v <= produce.max; v++ {
		req := kmsg.NewPtrProduceRequest()
		req.Version = v
		rt := kmsg.NewProduceRequestTopic()
		rt.Partitions = append(rt.Partitions, kmsg.NewProduceRequestTopicPartition())
		req.Topics = append(req.Topics, rt)
		f.Add(v, req.AppendTo(nil))
	}
	f.Fuzz(func(t *testing.T, v int16, body []byte) {
		if v < produce.min || v > produce.max {
			return
		}
		var c produceCall
		if c.parse(v, body) != nil {
			return
		}
		req := kmsg.NewPtrProduceRequest()
		req.Version = v
		if err := readBody(req, body); err != nil {
			t.Fatalf("taken, and kmsg says %v", err)
		}
		if len(req.Topics) != len(c.topics) {
			t.Fatalf("%d topics, kmsg says %d", len(c.topics), len(req.Topics))
		}
	})
}
