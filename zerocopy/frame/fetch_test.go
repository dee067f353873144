package frame

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// collect walks body and returns copies of everything.
func collect(body []byte, version int16) (w FetchWalker, parts []FetchPartition, err error) {
	if err := w.Reset(body, version); err != nil {
		return w, nil, err
	}
	var p FetchPartition
	for w.Next(&p) {
		parts = append(parts, p)
	}
	return w, parts, w.Err()
}

// compare checks the walker against kmsg on the same bytes.
func compare(t *testing.T, body []byte, version int16) {
	t.Helper()
	want := kmsg.NewPtrFetchResponse()
	want.SetVersion(version)
	wantErr := want.ReadFrom(body)
	w, got, err := collect(body, version)
	if (wantErr == nil) != (err == nil) {
		t.Fatalf("v%d: kmsg says %v, the walker %v: %x", version, wantErr, err, body)
	}
	if err != nil {
		return
	}
	if w.ThrottleMillis != want.ThrottleMillis || w.ErrorCode != want.ErrorCode || w.SessionID != want.SessionID {
		t.Fatalf("v%d: header %d %d %d, want %d %d %d", version, w.ThrottleMillis, w.ErrorCode, w.SessionID, want.ThrottleMillis, want.ErrorCode, want.SessionID)
	}
	i := 0
	for _, wt := range want.Topics {
		for _, wp := range wt.Partitions {
			if i == len(got) {
				t.Fatalf("v%d: only %d partitions", version, i)
			}
			g := got[i]
			i++
			ok := string(g.Topic) == wt.Topic && g.TopicID == wt.TopicID && g.Partition == wp.Partition && g.ErrorCode == wp.ErrorCode &&
				g.HighWatermark == wp.HighWatermark && g.LastStableOffset == wp.LastStableOffset && g.LogStartOffset == wp.LogStartOffset &&
				g.PreferredReadReplica == wp.PreferredReadReplica && bytes.Equal(g.Records, wp.RecordBatches) && (g.Records == nil) == (wp.RecordBatches == nil) &&
				g.DivergingEpoch.Epoch == wp.DivergingEpoch.Epoch && g.DivergingEpoch.EndOffset == wp.DivergingEpoch.EndOffset &&
				g.CurrentLeader.ID == wp.CurrentLeader.LeaderID && g.CurrentLeader.Epoch == wp.CurrentLeader.LeaderEpoch
			if !ok {
				t.Fatalf("v%d: partition %+v, want %+v of topic %q", version, g, wp, wt.Topic)
			}
		}
	}
	if i != len(got) {
		t.Fatalf("v%d: %d partitions too many", version, len(got)-i)
	}
	seen := map[int32]bool{}
	for _, b := range want.Brokers {
		if seen[b.NodeID] {
			continue // the first of an id is the one that counts
		}
		seen[b.NodeID] = true
		if e, ok := w.Endpoint(b.NodeID); !ok || string(e.Host) != b.Host || e.Port != b.Port {
			t.Fatalf("v%d: endpoint %d is %v %v, want %v", version, b.NodeID, e, ok, b)
		}
	}
}

func randomResponse(rnd *rand.Rand, version int16) []byte {
	resp := kmsg.NewPtrFetchResponse()
	resp.SetVersion(version)
	resp.ThrottleMillis = rnd.Int32N(100)
	resp.SessionID = rnd.Int32()
	for range rnd.IntN(4) {
		topic := kmsg.NewFetchResponseTopic()
		topic.Topic = "orders"[:rnd.IntN(7)]
		topic.TopicID = [16]byte{byte(rnd.IntN(256)), 1}
		for range rnd.IntN(4) {
			p := kmsg.NewFetchResponseTopicPartition()
			p.Partition, p.ErrorCode = rnd.Int32N(100), int16(rnd.IntN(100))
			p.HighWatermark, p.LastStableOffset, p.LogStartOffset = rnd.Int64(), rnd.Int64(), rnd.Int64()
			for range rnd.IntN(3) {
				p.AbortedTransactions = append(p.AbortedTransactions, kmsg.NewFetchResponseTopicPartitionAbortedTransaction())
			}
			p.PreferredReadReplica = rnd.Int32N(3) - 1
			if rnd.IntN(3) > 0 {
				p.RecordBatches = make([]byte, rnd.IntN(300))
			}
			if rnd.IntN(3) == 0 {
				p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset = rnd.Int32N(9), rnd.Int64()
			}
			if rnd.IntN(3) == 0 {
				p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = rnd.Int32N(9), rnd.Int32N(9)
			}
			if rnd.IntN(3) == 0 {
				p.UnknownTags.Set(9, []byte("later"))
			}
			topic.Partitions = append(topic.Partitions, p)
		}
		resp.Topics = append(resp.Topics, topic)
	}
	if version >= 16 {
		for id := range rnd.Int32N(4) {
			b := kmsg.NewFetchResponseBroker()
			b.NodeID, b.Host, b.Port = id, "host", 9092+id
			if id == 1 {
				b.Rack = kmsg.StringPtr("r1")
			}
			resp.Brokers = append(resp.Brokers, b)
		}
	}
	return resp.AppendTo(nil)
}

func TestWalkerAgreesWithKmsg(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for version := int16(MinFetchVersion); version <= MaxFetchVersion; version++ {
		for range 300 {
			body := randomResponse(rnd, version)
			compare(t, body, version)
			for range 5 { // and on damaged bytes
				cut := append([]byte(nil), body[:rnd.IntN(len(body)+1)]...)
				if len(cut) > 0 {
					cut[rnd.IntN(len(cut))] ^= 1 << rnd.IntN(8)
				}
				compare(t, cut, version)
			}
		}
	}
}

func FuzzWalker(f *testing.F) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for version := int16(MinFetchVersion); version <= MaxFetchVersion; version++ {
		for range 3 {
			f.Add(randomResponse(rnd, version), version)
		}
	}
	f.Fuzz(func(t *testing.T, body []byte, version int16) {
		if version < MinFetchVersion || version > MaxFetchVersion {
			return
		}
		compare(t, body, version)
	})
}

func TestWalkerRefusesOtherVersions(t *testing.T) {
	for _, v := range []int16{-1, 0, 3, 19} {
		if _, _, err := collect(make([]byte, 100), v); err == nil {
			t.Fatalf("version %d was read", v)
		}
	}
}

func TestWalkerAllocatesNothing(t *testing.T) {
	body := randomResponse(rand.New(rand.NewPCG(5, 6)), 17)
	var w FetchWalker
	var p FetchPartition
	n := testing.AllocsPerRun(100, func() {
		if err := w.Reset(body, 17); err != nil {
			t.Fatal(err)
		}
		for w.Next(&p) {
		}
		if w.Err() != nil {
			t.Fatal(w.Err())
		}
	})
	if n != 0 {
		t.Fatalf("%v allocations per response", n)
	}
}
