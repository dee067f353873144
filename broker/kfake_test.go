package broker_test

import (
	"bytes"
	"context"
	"fmt"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/internal/testkit"
	"stet/zerocopy/batch"
)

func newKfake(t *testing.T, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// TestMirrorOfKfake: a source that is not ours, in the process, whose leaders move
// while it is written to, by transactions too, and whose log start moves.
func TestMirrorOfKfake(t *testing.T) {
	src := newKfake(t, kfake.NumBrokers(3), kfake.SeedTopics(4, "t"))
	w := newWorld(t)
	w.from = strings.Join(src.ListenAddrs(), ",")
	w.create()
	w.startTopics("t")
	plain := testkit.Client(t, w.from, kgo.DefaultProduceTopic("t"), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.ZstdCompression()))
	for round := range 8 {
		for i := range 200 {
			plain.Produce(w.ctx, &kgo.Record{Partition: int32(i % 4), Value: fmt.Appendf(nil, "round %d record %d", round, i)}, nil)
		}
		if err := plain.Flush(w.ctx); err != nil {
			t.Fatal(err)
		}
		txn := testkit.Client(t, w.from, kgo.TransactionalID(fmt.Sprint("txn-", round)), kgo.DefaultProduceTopic("t"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		if err := txn.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		for i := range 8 {
			if err := txn.ProduceSync(w.ctx, &kgo.Record{Partition: int32(i % 4), Value: []byte("in a transaction")}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		if err := txn.EndTransaction(w.ctx, kgo.TransactionEndTry(round%2 == 0)); err != nil {
			t.Fatal(err)
		}
		src.ShufflePartitionLeaders()
	}
	if err := src.DeleteRecords("t", 0, 100); err != nil {
		t.Fatal(err)
	}
	var starts, ends [4]int64
	for p := range int32(4) {
		info := src.PartitionInfo("t", p)
		starts[p], ends[p] = info.LogStartOffset, info.HighWatermark
	}
	w.wait("caught up", func(p part) bool { return mirroring(p) && p.DestinationOffset == ends[p.PartitionIndex] })
	for p := range int32(4) {
		start := starts[p]
		want := fetchAll(w.ctx, t, plain, src.LeaderFor("t", p), "t", p, start)
		if got := w.stored("t", p, start); len(want) == 0 || !bytes.Equal(got, want) {
			t.Errorf("t-%d: %d bytes are stored, the source has %d, or other ones", p, len(got), len(want))
		}
	}
	for deadline := time.Now().Add(20 * time.Second); ; {
		list, err := kadm.NewClient(w.cl).ListStartOffsets(w.ctx, "t")
		if err != nil {
			t.Fatal(err)
		}
		if o, _ := list.Lookup("t", 0); o.Offset == 100 {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("log start %d, the source's is 100", o.Offset)
		}
	}
	// Failed over, it is written on.
	w.stop("t")
	for p := range int32(4) {
		r := w.cl.ProduceSync(w.ctx, &kgo.Record{Topic: "t", Partition: p, Value: []byte("local")})
		if err := r.FirstErr(); err != nil || r[0].Record.Offset != ends[p]+1 {
			t.Errorf("t-%d: offset %d %v, want %d", p, r[0].Record.Offset, err, ends[p]+1)
		}
	}
}

// fetchAll reads the raw batches of a partition from its leader.
func fetchAll(ctx context.Context, t *testing.T, cl *kgo.Client, leader int32, topic string, partition int32, from int64) (out []byte) {
	t.Helper()
	for {
		req := kmsg.NewPtrFetchRequest()
		req.ReplicaID, req.ReplicaState.ID, req.SessionEpoch, req.MaxBytes = -1, -1, -1, 50<<20
		rt := kmsg.NewFetchRequestTopic()
		rt.Topic = topic
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes, rp.CurrentLeaderEpoch, rp.LastFetchedEpoch = partition, from, 50<<20, -1, -1
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		kresp, err := cl.Broker(int(leader)).Request(ctx, &pinned{req, 12})
		if err != nil {
			t.Fatal(err)
		}
		p := kresp.(*kmsg.FetchResponse).Topics[0].Partitions[0]
		if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
			t.Fatal(err)
		}
		if len(p.RecordBatches) == 0 {
			return out
		}
		for rest := p.RecordBatches; len(rest) > 0; {
			b, after, err := batch.Next(rest)
			if err != nil {
				t.Fatal(err)
			}
			out, from, rest = append(out, b...), b.NextOffset(), after
		}
	}
}

// side is one of two clusters that are asked the same.
type side struct {
	t   *testing.T
	ctx context.Context
	cl  *kgo.Client
	// what the cluster itself made
	memberID string
}

func (s *side) ask(req kmsg.Request, version int16) kmsg.Response {
	s.t.Helper()
	resp, err := s.cl.Request(s.ctx, &pinned{req, version})
	if err != nil {
		s.t.Fatalf("%s: %v", kmsg.NameForKey(req.Key()), err)
	}
	return resp
}

func code(c int16) string {
	if err := kerr.TypedErrorForCode(c); err != nil {
		return err.Message
	}
	return "ok"
}

// TestSameAnswersAsKfake sends the same requests to kfake and to Stet, in the same
// order, and compares what a client would go by.
func TestSameAnswersAsKfake(t *testing.T) {
	ctx := testkit.Context(t)
	fake := newKfake(t, kfake.NumBrokers(1), kfake.DefaultNumPartitions(1))
	b := testkit.StartBroker(t, "", "auto.create.topics.enable=false", "group.min.session.timeout.ms=6000")
	open := func(addr string) *side { return &side{t: t, ctx: ctx, cl: testkit.Client(t, addr)} }
	oracle, ours := open(fake.ListenAddrs()[0]), open(b.Addr())
	for _, c := range differential {
		t.Run(c.name, func(t *testing.T) {
			oracle.t, ours.t = t, t
			want, got := c.ask(oracle), c.ask(ours)
			if got != want {
				t.Errorf("Stet answers\n%s\nkfake\n%s", got, want)
			}
			if want == "" {
				t.Error("nothing was compared")
			}
		})
	}
}

// Left out is where kfake differs from Apache Kafka: it takes any topic name and a
// replication factor of 0, lets partitions be "added" to the count that there is, names
// an unknown group where Kafka names an unknown member, and has an error for the offsets
// of an unknown group where Kafka has none.
var differential = []struct {
	name string
	ask  func(*side) string
}{
	{"create topics", func(s *side) string {
		var out []string
		for _, n := range []struct {
			name       string
			partitions int32
			factor     int16
		}{{"t", 3, 1}, {"t", 3, 1}, {"zero", 0, 1}, {"default", -1, -1}, {"far", 1, 5}} {
			req := kmsg.NewPtrCreateTopicsRequest()
			req.TimeoutMillis = 5000
			rt := kmsg.NewCreateTopicsRequestTopic()
			rt.Topic, rt.NumPartitions, rt.ReplicationFactor = n.name, n.partitions, n.factor
			req.Topics = append(req.Topics, rt)
			resp := s.ask(req, 7).(*kmsg.CreateTopicsResponse)
			rp := resp.Topics[0]
			out = append(out, fmt.Sprintf("%.10q %d: %s, %d partitions, id %t", n.name, n.partitions, code(rp.ErrorCode), rp.NumPartitions, rp.TopicID != [16]byte{}))
		}
		return strings.Join(out, "\n")
	}},
	{"metadata", func(s *side) string {
		req := kmsg.NewPtrMetadataRequest()
		for _, n := range []string{"t", "default", "nope"} {
			rt := kmsg.NewMetadataRequestTopic()
			rt.Topic = kmsg.StringPtr(n)
			req.Topics = append(req.Topics, rt)
		}
		resp := s.ask(req, 12).(*kmsg.MetadataResponse)
		var out []string
		for _, rt := range resp.Topics {
			out = append(out, fmt.Sprintf("%s: %s, %d partitions, internal %t", *rt.Topic, code(rt.ErrorCode), len(rt.Partitions), rt.IsInternal))
			for _, p := range rt.Partitions {
				out = append(out, fmt.Sprintf("  %s, leader %t, epoch %d, %d replicas, %d in sync, %d offline", code(p.ErrorCode), p.Leader == resp.ControllerID, p.LeaderEpoch, len(p.Replicas), len(p.ISR), len(p.OfflineReplicas)))
			}
		}
		sort.Strings(out)
		return fmt.Sprintf("%d brokers\n", len(resp.Brokers)) + strings.Join(out, "\n")
	}},
	{"produce", func(s *side) string {
		var out []string
		pid := int64(7_000_000)
		at := func(seq int32, epoch int16, ts int64) []byte {
			return batch.Build(nil, batch.Header{PartitionLeaderEpoch: -1, Timestamp: ts, ProducerID: pid, ProducerEpoch: epoch, BaseSequence: seq}, batch.KV{Value: []byte("v")})
		}
		good := at(0, 0, 5000)
		flipped := bytes.Clone(good)
		flipped[len(flipped)-1] ^= 1
		for _, c := range []struct {
			what, topic string
			partition   int32
			records     []byte
		}{
			{"first", "t", 0, good},
			{"again", "t", 0, good},
			{"next", "t", 0, at(1, 0, 9000)},
			{"gap", "t", 0, at(5, 0, 9000)},
			{"third", "t", 0, at(2, 0, 7000)},
			{"new epoch", "t", 0, at(0, 1, 7500)},
			{"old epoch", "t", 0, at(3, 0, 7500)},
			{"flipped", "t", 1, flipped},
			{"unknown topic", "nope", 0, good},
			{"unknown partition", "t", 77, good},
		} {
			req := kmsg.NewPtrProduceRequest()
			req.Acks, req.TimeoutMillis = -1, 5000
			rt := kmsg.NewProduceRequestTopic()
			rt.Topic = c.topic
			rp := kmsg.NewProduceRequestTopicPartition()
			rp.Partition, rp.Records = c.partition, c.records
			rt.Partitions = append(rt.Partitions, rp)
			req.Topics = append(req.Topics, rt)
			p := s.toLeader(req, 9).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
			offset := p.BaseOffset
			if p.ErrorCode != 0 {
				offset = -1
			}
			out = append(out, fmt.Sprintf("%s: %s, offset %d", c.what, code(p.ErrorCode), offset))
		}
		return strings.Join(out, "\n")
	}},
	{"list offsets", func(s *side) string {
		var out []string
		for _, ts := range []int64{-1, -2, -3, 0, 5000, 5001, 9000, 9001} {
			for _, p := range []int32{0, 1, 77} {
				req := kmsg.NewPtrListOffsetsRequest()
				req.ReplicaID = -1
				rt := kmsg.NewListOffsetsRequestTopic()
				rt.Topic = "t"
				rp := kmsg.NewListOffsetsRequestTopicPartition()
				rp.Partition, rp.Timestamp, rp.CurrentLeaderEpoch = p, ts, -1
				rt.Partitions = append(rt.Partitions, rp)
				req.Topics = append(req.Topics, rt)
				a := s.toLeader(req, 7).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
				out = append(out, fmt.Sprintf("%d of %d: %s %d at %d", ts, p, code(a.ErrorCode), a.Offset, a.Timestamp))
			}
		}
		return strings.Join(out, "\n")
	}},
	{"offset for leader epoch", func(s *side) string {
		var out []string
		for _, c := range [][3]int32{{0, 0, -1}, {0, 5, -1}, {0, 0, 9}, {77, 0, -1}, {1, 0, -1}} {
			req := kmsg.NewPtrOffsetForLeaderEpochRequest()
			req.ReplicaID = -1
			rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
			rt.Topic = "t"
			rp := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			rp.Partition, rp.LeaderEpoch, rp.CurrentLeaderEpoch = c[0], c[1], c[2]
			rt.Partitions = append(rt.Partitions, rp)
			req.Topics = append(req.Topics, rt)
			a := s.toLeader(req, 4).(*kmsg.OffsetForLeaderEpochResponse).Topics[0].Partitions[0]
			out = append(out, fmt.Sprintf("%v: %s epoch %d end %d", c, code(a.ErrorCode), a.LeaderEpoch, a.EndOffset))
		}
		return strings.Join(out, "\n")
	}},
	{"fetch", func(s *side) string {
		var out []string
		for _, c := range []struct {
			what      string
			topic     string
			partition int32
			offset    int64
			epoch     int32
		}{{"start", "t", 0, 0, -1}, {"middle", "t", 0, 2, -1}, {"end", "t", 0, 4, -1}, {"beyond", "t", 0, 5, -1}, {"below", "t", 0, -5, -1}, {"newer epoch", "t", 0, 0, 9}, {"unknown", "t", 77, 0, -1}, {"no topic", "nope", 0, 0, -1}} {
			req := kmsg.NewPtrFetchRequest()
			req.ReplicaID, req.ReplicaState.ID, req.SessionEpoch, req.MaxBytes = -1, -1, -1, 50<<20
			rt := kmsg.NewFetchRequestTopic()
			rt.Topic = c.topic
			rp := kmsg.NewFetchRequestTopicPartition()
			rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes, rp.CurrentLeaderEpoch, rp.LastFetchedEpoch = c.partition, c.offset, 1<<20, c.epoch, -1
			rt.Partitions = append(rt.Partitions, rp)
			req.Topics = append(req.Topics, rt)
			a := s.toLeader(req, 12).(*kmsg.FetchResponse).Topics[0].Partitions[0]
			hw, lso, start := a.HighWatermark, a.LastStableOffset, a.LogStartOffset
			if a.ErrorCode != 0 {
				hw, lso, start = 0, 0, 0
			}
			out = append(out, fmt.Sprintf("%s: %s, watermark %d, stable %d, start %d, records %x", c.what, code(a.ErrorCode), hw, lso, start, a.RecordBatches))
		}
		return strings.Join(out, "\n")
	}},
	{"create partitions", func(s *side) string {
		var out []string
		for _, c := range []struct {
			topic string
			count int32
		}{{"t", 2}, {"nope", 5}, {"t", 4}} {
			req := kmsg.NewPtrCreatePartitionsRequest()
			req.TimeoutMillis = 5000
			rt := kmsg.NewCreatePartitionsRequestTopic()
			rt.Topic, rt.Count = c.topic, c.count
			req.Topics = append(req.Topics, rt)
			out = append(out, fmt.Sprintf("%s %d: %s", c.topic, c.count, code(s.ask(req, 3).(*kmsg.CreatePartitionsResponse).Topics[0].ErrorCode)))
		}
		return strings.Join(out, "\n")
	}},
	{"group members", func(s *side) string {
		var out []string
		s.coordinator()
		join := func(what string, change func(*kmsg.JoinGroupRequest)) *kmsg.JoinGroupResponse {
			req := kmsg.NewPtrJoinGroupRequest()
			req.Group, req.SessionTimeoutMillis, req.RebalanceTimeoutMillis, req.ProtocolType = "g", 300_000, 300_000, "consumer"
			p := kmsg.NewJoinGroupRequestProtocol()
			p.Name, p.Metadata = "range", []byte{0, 1}
			req.Protocols = append(req.Protocols, p)
			change(req)
			resp := s.ask(req, 5).(*kmsg.JoinGroupResponse)
			out = append(out, fmt.Sprintf("join, %s: %s, generation %d, %d members, member id %t", what, code(resp.ErrorCode), resp.Generation, len(resp.Members), resp.MemberID != "" && resp.ErrorCode != kerr.UnknownMemberID.Code))
			return resp
		}
		join("no group", func(r *kmsg.JoinGroupRequest) { r.Group = "" })
		join("session too short", func(r *kmsg.JoinGroupRequest) { r.SessionTimeoutMillis = 10 })
		join("session too long", func(r *kmsg.JoinGroupRequest) { r.SessionTimeoutMillis = 1 << 30 })
		join("unknown member", func(r *kmsg.JoinGroupRequest) { r.MemberID = "who" })
		first := join("without an id", func(*kmsg.JoinGroupRequest) {})
		second := join("with the given id", func(r *kmsg.JoinGroupRequest) { r.MemberID = first.MemberID })
		s.memberID = second.MemberID
		out = append(out, fmt.Sprintf("protocol %s, leader %t", *second.Protocol, second.LeaderID == second.MemberID))
		join("another protocol type", func(r *kmsg.JoinGroupRequest) { r.ProtocolType = "connect" })
		sync := func(what, group, member string, generation int32) {
			req := kmsg.NewPtrSyncGroupRequest()
			req.Group, req.MemberID, req.Generation = group, member, generation
			a := kmsg.NewSyncGroupRequestGroupAssignment()
			a.MemberID, a.MemberAssignment = s.memberID, []byte{7}
			req.GroupAssignment = append(req.GroupAssignment, a)
			resp := s.ask(req, 3).(*kmsg.SyncGroupResponse)
			out = append(out, fmt.Sprintf("sync, %s: %s, %x", what, code(resp.ErrorCode), resp.MemberAssignment))
		}
		beat := func(what, group, member string, generation int32) {
			req := kmsg.NewPtrHeartbeatRequest()
			req.Group, req.MemberID, req.Generation = group, member, generation
			out = append(out, fmt.Sprintf("heartbeat, %s: %s", what, code(s.ask(req, 3).(*kmsg.HeartbeatResponse).ErrorCode)))
		}
		sync("unknown member", "g", "who", second.Generation)
		sync("old generation", "g", s.memberID, second.Generation-1)
		sync("good", "g", s.memberID, second.Generation)
		beat("good", "g", s.memberID, second.Generation)
		beat("old generation", "g", s.memberID, second.Generation+5)
		beat("unknown member", "g", "who", second.Generation)
		return strings.Join(out, "\n")
	}},
	{"group offsets", func(s *side) string {
		var out []string
		commit := func(what, group, member string, generation int32, topic string, partition int32) {
			req := kmsg.NewPtrOffsetCommitRequest()
			req.Group, req.MemberID, req.Generation = group, member, generation
			rt := kmsg.NewOffsetCommitRequestTopic()
			rt.Topic = topic
			rp := kmsg.NewOffsetCommitRequestTopicPartition()
			rp.Partition, rp.Offset, rp.LeaderEpoch, rp.Metadata = partition, 2, 0, kmsg.StringPtr("note")
			rt.Partitions = append(rt.Partitions, rp)
			req.Topics = append(req.Topics, rt)
			out = append(out, fmt.Sprintf("commit, %s: %s", what, code(s.ask(req, 7).(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode)))
		}
		fetch := func(what, group, topic string, partition int32) {
			req := kmsg.NewPtrOffsetFetchRequest()
			req.Group = group
			rt := kmsg.NewOffsetFetchRequestTopic()
			rt.Topic, rt.Partitions = topic, []int32{partition}
			req.Topics = append(req.Topics, rt)
			resp := s.ask(req, 5).(*kmsg.OffsetFetchResponse)
			p := kmsg.NewOffsetFetchResponseTopicPartition()
			p.Offset = -1
			if len(resp.Topics) > 0 && len(resp.Topics[0].Partitions) > 0 { // kfake leaves out what it does not know
				p = resp.Topics[0].Partitions[0]
			}
			note := ""
			if p.Metadata != nil {
				note = *p.Metadata
			}
			out = append(out, fmt.Sprintf("fetch, %s: %s %s, offset %d, epoch %d, %q", what, code(resp.ErrorCode), code(p.ErrorCode), p.Offset, p.LeaderEpoch, note))
		}
		commit("member", "g", s.memberID, 1, "t", 0)
		commit("wrong generation", "g", s.memberID, 9, "t", 0)
		commit("unknown member", "g", "who", 1, "t", 0)
		commit("simple consumer into an active group", "g", "", -1, "t", 0)
		commit("simple consumer", "simple", "", -1, "t", 1)
		commit("member of a group that is not", "none", "who", 3, "t", 0)
		fetch("committed", "g", "t", 0)
		fetch("never committed", "g", "t", 1)
		fetch("simple consumer", "simple", "t", 1)
		fetch("unknown topic", "g", "nope", 0)
		return strings.Join(out, "\n")
	}},
	{"groups", func(s *side) string {
		var out []string
		describe := func() {
			req := kmsg.NewPtrDescribeGroupsRequest()
			req.Groups = []string{"g", "simple", "none"}
			for _, g := range s.ask(req, 5).(*kmsg.DescribeGroupsResponse).Groups {
				out = append(out, fmt.Sprintf("describe %s: %s, %s, type %q, protocol %q, %d members", g.Group, code(g.ErrorCode), g.State, g.ProtocolType, g.Protocol, len(g.Members)))
			}
		}
		remove := func() {
			req := kmsg.NewPtrDeleteGroupsRequest()
			req.Groups = []string{"g", "none"}
			var lines []string
			for _, g := range s.ask(req, 2).(*kmsg.DeleteGroupsResponse).Groups {
				lines = append(lines, fmt.Sprintf("delete %s: %s", g.Group, code(g.ErrorCode)))
			}
			sort.Strings(lines)
			out = append(out, lines...)
		}
		list := func() {
			req := kmsg.NewPtrListGroupsRequest()
			var lines []string
			for _, g := range s.ask(req, 4).(*kmsg.ListGroupsResponse).Groups {
				lines = append(lines, fmt.Sprintf("list %s: %s %q", g.Group, g.GroupState, g.ProtocolType))
			}
			sort.Strings(lines)
			out = append(out, lines...)
		}
		leave := func(member string) {
			req := kmsg.NewPtrLeaveGroupRequest()
			req.Group = "g"
			m := kmsg.NewLeaveGroupRequestMember()
			m.MemberID = member
			req.Members = append(req.Members, m)
			resp := s.ask(req, 4).(*kmsg.LeaveGroupResponse)
			out = append(out, fmt.Sprintf("leave: %s, %s", code(resp.ErrorCode), code(resp.Members[0].ErrorCode)))
		}
		describe()
		remove()
		leave("who")
		leave(s.memberID)
		describe()
		list()
		remove()
		remove()
		return strings.Join(out, "\n")
	}},
	{"delete topics", func(s *side) string {
		var out []string
		for _, n := range []string{"default", "default", "nope"} {
			req := kmsg.NewPtrDeleteTopicsRequest()
			req.TimeoutMillis = 5000
			req.TopicNames = []string{n}
			rt := kmsg.NewDeleteTopicsRequestTopic()
			rt.Topic = kmsg.StringPtr(n)
			req.Topics = append(req.Topics, rt)
			out = append(out, fmt.Sprintf("%s: %s", n, code(s.ask(req, 6).(*kmsg.DeleteTopicsResponse).Topics[0].ErrorCode)))
		}
		return strings.Join(out, "\n")
	}},
	{"find coordinator", func(s *side) string {
		var out []string
		for _, kind := range []int8{0, 9} {
			req := kmsg.NewPtrFindCoordinatorRequest()
			req.CoordinatorType, req.CoordinatorKey, req.CoordinatorKeys = kind, "g", []string{"g"}
			kresp, err := s.cl.Broker(s.node()).Request(s.ctx, &pinned{req, 4})
			if err != nil {
				out = append(out, "closed")
				continue
			}
			c := kresp.(*kmsg.FindCoordinatorResponse).Coordinators[0]
			out = append(out, fmt.Sprintf("%d: %s, a node %t", kind, code(c.ErrorCode), c.Port > 0))
		}
		return strings.Join(out, "\n")
	}},
}

// node is the id of the only broker.
func (s *side) node() int {
	s.t.Helper()
	resp, err := kmsg.NewPtrMetadataRequest().RequestWith(s.ctx, s.cl)
	if err != nil {
		s.t.Fatal(err)
	}
	return int(resp.Brokers[0].NodeID)
}

// toLeader sends a request as it is, without the client's routing.
func (s *side) toLeader(req kmsg.Request, version int16) kmsg.Response {
	s.t.Helper()
	resp, err := s.cl.Broker(s.node()).Request(s.ctx, &pinned{req, version})
	if err != nil {
		s.t.Fatalf("%s: %v", kmsg.NameForKey(req.Key()), err)
	}
	return resp
}

// coordinator waits until the group coordinator is there: the first question makes it.
func (s *side) coordinator() {
	s.t.Helper()
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorKeys = []string{"g"}
	for deadline := time.Now().Add(20 * time.Second); ; {
		c := s.toLeader(req, 4).(*kmsg.FindCoordinatorResponse).Coordinators[0].ErrorCode
		beat := kmsg.NewPtrHeartbeatRequest()
		beat.Group = "g"
		if h := s.toLeader(beat, 3).(*kmsg.HeartbeatResponse).ErrorCode; c == 0 && h != kerr.CoordinatorLoadInProgress.Code && h != kerr.CoordinatorNotAvailable.Code && h != kerr.NotCoordinator.Code {
			return
		} else if time.Now().After(deadline) {
			s.t.Fatalf("no coordinator: %s, %s", code(c), code(h))
		}
	}
}
