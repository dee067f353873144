package group

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/broker/coord"
	"stet/broker/meta"
	"stet/broker/mirrormsg"
)

var (
	topicID  = [16]byte{7}
	mirrorID = [16]byte{0x33}
)

// world is a coordinator that leads the only partition of __consumer_offsets. It
// lives in a synctest bubble.
type world struct {
	t   *testing.T
	c   *Coordinator
	img *meta.Image
	log *coord.MemLog
}

func run(t *testing.T, cfg func(*Config), f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, img: meta.Empty(), log: coord.NewMemLog()}
		w.topic(OffsetsTopic, [16]byte{1}, 1)
		w.topic("t", topicID, 4)
		w.topic("u", [16]byte{8}, 4)
		config := DefaultConfig()
		if cfg != nil {
			cfg(&config)
		}
		w.start(config)
		f(w)
		w.c.Close()
	})
}

func (w *world) start(config Config) {
	w.c = New(Options{Config: config, Image: func() *meta.Image { return w.img }})
	w.c.BecomeLeader(0, 1, w.log)
	synctest.Wait()
}

// fail over to a new coordinator on the same log.
func (w *world) failOver() {
	config := w.c.o.Config
	w.c.Close()
	w.start(config)
}

func (w *world) topic(name string, id [16]byte, partitions int32) {
	recs := []meta.Record{&meta.CreateTopic{Name: name, ID: id, Incarnation: -1}}
	for p := range partitions {
		recs = append(recs, &meta.CreatePartition{TopicID: id, Partition: p, State: meta.Partition{BarrierEnd: -1}})
	}
	w.img, _ = w.img.Apply(recs)
}

// client is a member as a client library has it.
type client struct {
	w          *world
	version    int16 // of JoinGroup
	id         string
	instance   *string
	generation int32
	topics     []string
	protocols  []string // of assignors; default range
	session    time.Duration
	rebalance  time.Duration
	joined     *kmsg.JoinGroupResponse
	assignment string
}

func (w *world) client() *client {
	return &client{w: w, version: 9, topics: []string{"t"}, protocols: []string{"range"}, session: 10 * time.Second, rebalance: 60 * time.Second}
}

func subscription(topics ...string) []byte {
	m := kmsg.NewConsumerMemberMetadata()
	m.Topics = topics
	return m.AppendTo(nil)
}

// join sends one JoinGroup and, if the coordinator wants it, a second with the id it gave.
func (c *client) join() string {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Version = c.version
	req.Group, req.MemberID, req.InstanceID, req.ProtocolType = "g", c.id, c.instance, consumerProtocol
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = int32(c.session.Milliseconds()), int32(c.rebalance.Milliseconds())
	for _, p := range c.protocols {
		req.Protocols = append(req.Protocols, kmsg.JoinGroupRequestProtocol{Name: p, Metadata: subscription(c.topics...)})
	}
	resp := c.w.c.JoinGroup(context.Background(), req, "client", "/127.0.0.1")
	name := mirrormsg.CodeName(resp.ErrorCode)
	if name == "MEMBER_ID_REQUIRED" && c.id == "" {
		c.id = resp.MemberID
		return c.join()
	}
	if name == "NONE" {
		c.id, c.generation, c.joined = resp.MemberID, resp.Generation, resp
	}
	return name
}

func (c *client) leads() bool { return c.joined.LeaderID == c.id }

// sync sends SyncGroup; the leader assigns "<member>@<generation>" to everybody.
func (c *client) sync() string {
	req := kmsg.NewPtrSyncGroupRequest()
	req.Version = 5
	req.Group, req.MemberID, req.InstanceID, req.Generation = "g", c.id, c.instance, c.generation
	req.ProtocolType, req.Protocol = kmsg.StringPtr(consumerProtocol), c.joined.Protocol
	for _, m := range c.joined.Members {
		req.GroupAssignment = append(req.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{MemberID: m.MemberID, MemberAssignment: fmt.Appendf(nil, "%s@%d", m.MemberID, c.generation)})
	}
	resp := c.w.c.SyncGroup(context.Background(), req)
	if resp.ErrorCode == 0 {
		c.assignment = string(resp.MemberAssignment)
	}
	return mirrormsg.CodeName(resp.ErrorCode)
}

func (c *client) heartbeat() string {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Version, req.Group, req.MemberID, req.InstanceID, req.Generation = 4, "g", c.id, c.instance, c.generation
	return mirrormsg.CodeName(c.w.c.Heartbeat(context.Background(), req).ErrorCode)
}

func (c *client) leave() string {
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Version, req.Group = 5, "g"
	req.Members = []kmsg.LeaveGroupRequestMember{{MemberID: c.id, InstanceID: c.instance}}
	resp := c.w.c.LeaveGroup(context.Background(), req)
	if resp.ErrorCode != 0 {
		return mirrormsg.CodeName(resp.ErrorCode)
	}
	return mirrormsg.CodeName(resp.Members[0].ErrorCode)
}

func (c *client) commit(offset int64) string {
	return c.w.commit(func(r *kmsg.OffsetCommitRequest) {
		r.MemberID, r.InstanceID, r.Generation = c.id, c.instance, c.generation
		r.Topics[0].Partitions[0].Offset = offset
	})
}

// commit sends a commit of t-0 by a simple consumer unless it is edited.
func (w *world) commit(edit func(*kmsg.OffsetCommitRequest)) string {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.Generation = 9, "g", -1
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic = "t"
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Offset, p.LeaderEpoch = 5, 3
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	edit(req)
	resp := w.c.OffsetCommit(context.Background(), req)
	s := ""
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			s += " " + mirrormsg.CodeName(p.ErrorCode)
		}
	}
	return s[1:]
}

// fetch returns the committed offset of t-0 as "offset/epoch/metadata".
func (w *world) fetch() string {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version = 9
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group, g.MemberEpoch = "g", -1
	g.Topics = []kmsg.OffsetFetchRequestGroupTopic{{Topic: "t", Partitions: []int32{0}}}
	req.Groups = append(req.Groups, g)
	resp := w.c.OffsetFetch(context.Background(), req)
	if resp.Groups[0].ErrorCode != 0 {
		return mirrormsg.CodeName(resp.Groups[0].ErrorCode)
	}
	p := resp.Groups[0].Topics[0].Partitions[0]
	return fmt.Sprintf("%d/%d/%s", p.Offset, p.LeaderEpoch, *p.Metadata)
}

// state describes the group at version 6.
func (w *world) state() string {
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Version, req.Groups = 6, []string{"g"}
	x := w.c.DescribeGroups(context.Background(), req).Groups[0]
	if x.ErrorCode != 0 {
		return mirrormsg.CodeName(x.ErrorCode)
	}
	return fmt.Sprintf("%s %d", x.State, len(x.Members))
}

func (w *world) want(what, got, want string) {
	w.t.Helper()
	if got != want {
		w.t.Errorf("%s: %s, want %s", what, got, want)
	}
}

// all runs functions at the same time and returns their results.
func all(fs ...func() string) []string {
	out := make([]string, len(fs))
	done := make(chan struct{})
	for i, f := range fs {
		go func() {
			out[i] = f()
			done <- struct{}{}
		}()
	}
	for range fs {
		<-done
	}
	return out
}

// form brings clients into one stable generation.
func (w *world) form(cs ...*client) {
	w.t.Helper()
	var joins, syncs []func() string
	for _, c := range cs {
		joins, syncs = append(joins, c.join), append(syncs, c.sync)
	}
	for _, r := range append(all(joins...), all(syncs...)...) {
		if r != "NONE" {
			w.t.Fatalf("forming the group: %s", r)
		}
	}
	for _, c := range cs {
		if want := fmt.Sprintf("%s@%d", c.id, c.generation); c.assignment != want {
			w.t.Fatalf("assignment %q, want %q", c.assignment, want)
		}
	}
}
