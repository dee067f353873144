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

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// probedBroker answers what a prober asks. Partition n takes writes from its n-th request on, at offset 10+n.
type probedBroker struct {
	hidden  int32 // its record is never there
	refuses int32 // is refused to readers
	silent  bool  // answers no Fetch
	writes  int32
}

func (b *probedBroker) serve(c net.Conn) {
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
		key := int16(binary.BigEndian.Uint16(body))
		name := int(binary.BigEndian.Uint16(body[8:]))
		var resp kmsg.Response
		switch rest := body[10+name:]; key {
		case 0:
			resp = b.produce(rest)
		case 1:
			if b.silent {
				continue
			}
			resp = b.fetch(rest)
		}
		out := append(make([]byte, 4), body[4:8]...) // correlation id
		out = resp.AppendTo(out)
		binary.BigEndian.PutUint32(out, uint32(len(out)-4))
		if _, err := c.Write(out); err != nil {
			return
		}
	}
}

func (b *probedBroker) produce(body []byte) kmsg.Response {
	req := kmsg.NewPtrProduceRequest()
	req.Version = produceVersion
	if err := req.ReadFrom(body); err != nil {
		panic(err)
	}
	resp := kmsg.NewPtrProduceResponse()
	resp.Version = produceVersion
	t := kmsg.NewProduceResponseTopic()
	for _, p := range req.Topics[0].Partitions {
		rp := kmsg.NewProduceResponseTopicPartition()
		rp.Partition, rp.BaseOffset = p.Partition, int64(10+p.Partition)
		if b.writes < p.Partition {
			rp.ErrorCode = kerr.PolicyViolation.Code
		}
		t.Partitions = append(t.Partitions, rp)
	}
	b.writes++
	resp.Topics = append(resp.Topics, t)
	return resp
}

func (b *probedBroker) fetch(body []byte) kmsg.Response {
	req := kmsg.NewPtrFetchRequest()
	req.Version = fetchVersion
	if err := req.ReadFrom(body); err != nil {
		panic(err)
	}
	resp := kmsg.NewPtrFetchResponse()
	resp.Version = fetchVersion
	t := kmsg.NewFetchResponseTopic()
	ready := false
	for _, p := range req.Topics[0].Partitions {
		rp := kmsg.NewFetchResponseTopicPartition()
		rp.Partition, rp.HighWatermark, rp.LastStableOffset, rp.LogStartOffset = p.Partition, p.FetchOffset, p.FetchOffset, 3
		switch p.Partition {
		case b.hidden:
		case b.refuses:
			rp.ErrorCode, ready = kerr.NotLeaderForPartition.Code, true
		default:
			rp.RecordBatches, ready = []byte{1}, true
		}
		t.Partitions = append(t.Partitions, rp)
	}
	if !ready {
		time.Sleep(time.Duration(req.MaxWaitMillis) * time.Millisecond) // the long poll, in the test's own time
	}
	resp.Topics = append(resp.Topics, t)
	return resp
}

// probe runs a prober of so many partitions for a minute of the test's own time.
func (b *probedBroker) probe(t *testing.T, partitions int32) (results []probeResult, took time.Duration) {
	dial := func() *conn {
		ours, theirs := net.Pipe()
		go b.serve(theirs)
		return newConn(ours)
	}
	p := &prober{topic: "t", record: []byte("batch"), w: dial(), r: dial(), interval: 16 * time.Millisecond}
	defer closeProbes([]*prober{p})
	for i := range partitions {
		p.partitions = append(p.partitions, i)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	began := time.Now()
	return runProbes(ctx, []*prober{p}), time.Since(began)
}

// TestARecordThatDoesNotComeIsAlone: a record that cannot be read is reported with what the broker said of it, one that is refused
// with the refusal, and those that were acknowledged after them are read all the same.
func TestARecordThatDoesNotComeIsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hidden, refuses = 1, 3
		results, _ := (&probedBroker{hidden: hidden, refuses: refuses}).probe(t, 6)
		for _, r := range results {
			text := ""
			if r.err != nil {
				text = r.err.Error()
			}
			switch r.partition {
			case hidden:
				if !strings.Contains(text, "offset 11 was acknowledged but cannot be read: context deadline exceeded") || !strings.Contains(text, "high watermark 11, last stable offset 11, log start 3") {
					t.Errorf("the hidden record: %q", text)
				}
			case refuses:
				if !strings.Contains(text, "offset 13 was acknowledged but cannot be read: NOT_LEADER") || !strings.Contains(text, "(1 fetches") {
					t.Errorf("the refused one: %q", text)
				}
			default:
				if r.err != nil || r.firstRead.IsZero() || r.firstRead.Sub(r.firstAck) > time.Second {
					t.Errorf("partition %d: acknowledged at %s, read at %s, %v", r.partition, r.firstAck, r.firstRead, r.err)
				}
			}
		}
	})
}

// TestAnAnswerThatDoesNotComeEndsTheRun: a broker that says nothing to a Fetch is waited for a little longer than the run, and named as the reason.
func TestAnAnswerThatDoesNotComeEndsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		results, took := (&probedBroker{silent: true}).probe(t, 2)
		if took != time.Minute+answerPatience {
			t.Errorf("the run took %s", took)
		}
		for _, r := range results {
			if r.err == nil || !strings.Contains(r.err.Error(), "cannot be read: no answer in time (no fetch for it was answered)") {
				t.Errorf("partition %d: %v", r.partition, r.err)
			}
		}
	})
}
