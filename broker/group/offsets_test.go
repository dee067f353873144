package group

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/broker/meta"
	"stet/broker/mirrormsg"
	"stet/zerocopy/batch"
)

func TestCommitBySimpleConsumer(t *testing.T) {
	run(t, nil, func(w *world) {
		w.want("nothing yet", w.fetch(), "-1/-1/")
		w.want("commit", w.commit(func(r *kmsg.OffsetCommitRequest) {
			r.Topics[0].Partitions[0].Metadata = kmsg.StringPtr("note")
		}), "NONE")
		w.want("fetch", w.fetch(), "5/3/note")
		w.want("old version", w.commit(func(r *kmsg.OffsetCommitRequest) { r.Version = 2; r.RetentionTimeMillis = -1 }), "NONE")
		w.want("no epoch before version 6", w.fetch(), "5/-1/")
		w.want("state", w.state(), "Empty 0")
		// With members only members may commit.
		a := w.client()
		w.form(a)
		w.want("simple consumer", w.commit(func(*kmsg.OffsetCommitRequest) {}), "UNKNOWN_MEMBER_ID")
		w.want("member", a.commit(6), "NONE")
		w.want("other member", w.commit(func(r *kmsg.OffsetCommitRequest) { r.MemberID, r.Generation = "x", 1 }), "UNKNOWN_MEMBER_ID")
	})
}

func TestCommitErrors(t *testing.T) {
	run(t, func(c *Config) { c.OffsetMetadataMax = 4 }, func(w *world) {
		w.want("generation of a group that does not exist", w.commit(func(r *kmsg.OffsetCommitRequest) { r.Generation = 1 }), "GROUP_ID_NOT_FOUND")
		w.want("the same, version 8", w.commit(func(r *kmsg.OffsetCommitRequest) { r.Generation, r.Version = 1, 8 }), "ILLEGAL_GENERATION")
		got := w.commit(func(r *kmsg.OffsetCommitRequest) {
			p := r.Topics[0].Partitions[0]
			p.Partition = 77
			r.Topics[0].Partitions = append(r.Topics[0].Partitions, p)
			p.Partition, p.Metadata = 1, kmsg.StringPtr("too long")
			r.Topics[0].Partitions = append(r.Topics[0].Partitions, p)
			other := r.Topics[0]
			other.Topic = "nope"
			other.Partitions = other.Partitions[:1]
			r.Topics = append(r.Topics, other)
		})
		w.want("mixed", got, "NONE UNKNOWN_TOPIC_OR_PARTITION OFFSET_METADATA_TOO_LARGE UNKNOWN_TOPIC_OR_PARTITION")
		w.want("by id", w.commit(func(r *kmsg.OffsetCommitRequest) {
			r.Version, r.Topics[0].Topic, r.Topics[0].TopicID, r.Topics[0].Partitions[0].Offset = 10, "", topicID, 9
		}), "NONE")
		w.want("fetch", w.fetch(), "9/3/")
		w.want("unknown id", w.commit(func(r *kmsg.OffsetCommitRequest) {
			r.Version, r.Topics[0].TopicID = 10, [16]byte{99}
		}), "UNKNOWN_TOPIC_ID")
		w.log.Fail(fmt.Errorf("disk"))
		w.want("failed append", w.commit(func(*kmsg.OffsetCommitRequest) {}), "COORDINATOR_NOT_AVAILABLE")
	})
}

func TestOffsetFetchShapes(t *testing.T) {
	run(t, nil, func(w *world) {
		w.commit(func(r *kmsg.OffsetCommitRequest) {
			p := r.Topics[0].Partitions[0]
			p.Partition, p.Offset = 2, 8
			r.Topics[0].Partitions = append(r.Topics[0].Partitions, p)
			u := r.Topics[0]
			u.Topic = "u"
			r.Topics = append(r.Topics, u)
		})
		for v := int16(1); v <= 7; v++ {
			req := kmsg.NewPtrOffsetFetchRequest()
			req.Version, req.Group = v, "g"
			req.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: "t", Partitions: []int32{2, 3}}}
			resp := w.c.OffsetFetch(context.Background(), req)
			if len(resp.Topics) != 1 || resp.Topics[0].Partitions[0].Offset != 8 || resp.Topics[0].Partitions[1].Offset != -1 || resp.ErrorCode != 0 {
				t.Errorf("version %d: %+v", v, resp)
			}
			req.Topics = nil
			resp = w.c.OffsetFetch(context.Background(), req)
			if want := map[bool]int{true: 2, false: 0}[v >= 2]; len(resp.Topics) != want {
				t.Errorf("version %d without topics: %+v", v, resp)
			}
			req.Group = "nobody"
			if resp = w.c.OffsetFetch(context.Background(), req); len(resp.Topics) != 0 || resp.ErrorCode != 0 {
				t.Errorf("version %d, unknown group: %+v", v, resp)
			}
		}
		for v := int16(8); v <= 10; v++ {
			req := kmsg.NewPtrOffsetFetchRequest()
			req.Version = v
			all := kmsg.NewOffsetFetchRequestGroup()
			all.Group, all.MemberEpoch = "g", -1
			some := all
			some.Topics = []kmsg.OffsetFetchRequestGroupTopic{{Topic: "t", TopicID: topicID, Partitions: []int32{0}}, {Topic: "x", TopicID: [16]byte{99}, Partitions: []int32{1}}}
			none := all
			none.Group = "nobody"
			member := none
			member.MemberID, member.MemberEpoch = kmsg.StringPtr("m"), 3
			req.Groups = append(req.Groups, all, some, none, member)
			gs := w.c.OffsetFetch(context.Background(), req).Groups
			if len(gs) != 4 || len(gs[0].Topics) != 2 || len(gs[0].Topics[0].Partitions) != 2 || len(gs[2].Topics) != 0 || gs[2].ErrorCode != 0 {
				t.Fatalf("version %d: %+v", v, gs)
			}
			if mirrormsg.CodeName(gs[3].ErrorCode) != "GROUP_ID_NOT_FOUND" {
				t.Errorf("version %d: member of an unknown group: %d", v, gs[3].ErrorCode)
			}
			unknown := gs[1].Topics[1].Partitions[0]
			want := map[bool]string{true: "UNKNOWN_TOPIC_ID", false: "NONE"}[v >= 10]
			if unknown.Offset != -1 || mirrormsg.CodeName(unknown.ErrorCode) != want || gs[1].Topics[0].Partitions[0].Offset != 5 {
				t.Errorf("version %d: %+v", v, gs[1])
			}
			if v >= 10 && gs[0].Topics[0].TopicID != topicID {
				t.Errorf("version %d: no topic id", v)
			}
		}
		w.c.Resign(0)
		req := kmsg.NewPtrOffsetFetchRequest()
		req.Version, req.Group, req.Topics = 1, "g", []kmsg.OffsetFetchRequestTopic{{Topic: "t", Partitions: []int32{0}}}
		if resp := w.c.OffsetFetch(context.Background(), req); mirrormsg.CodeName(resp.Topics[0].Partitions[0].ErrorCode) != "NOT_COORDINATOR" {
			t.Errorf("version 1 has its error in the partitions: %+v", resp)
		}
		req.Version = 5
		if resp := w.c.OffsetFetch(context.Background(), req); mirrormsg.CodeName(resp.ErrorCode) != "NOT_COORDINATOR" {
			t.Errorf("version 5 has its error at the top: %+v", resp)
		}
	})
}

func TestOffsetsExpire(t *testing.T) {
	run(t, func(c *Config) { c.OffsetsRetention = time.Hour }, func(w *world) {
		w.commit(func(*kmsg.OffsetCommitRequest) {})
		time.Sleep(55 * time.Minute)
		w.want("young", w.fetch(), "5/3/")
		time.Sleep(16 * time.Minute)
		w.want("a simple consumer's, too old", w.fetch(), "-1/-1/")
		w.want("group", w.state(), "GROUP_ID_NOT_FOUND")

		a := w.client()
		a.session = 30 * time.Minute
		w.form(a)
		w.want("commit", a.commit(7), "NONE")
		for range 5 {
			time.Sleep(25 * time.Minute)
			w.want("alive", a.heartbeat(), "NONE")
		}
		w.want("a stable group keeps its topics' offsets", w.fetch(), "7/3/")
		w.want("leave", a.leave(), "NONE")
		time.Sleep(50 * time.Minute)
		w.want("empty for less than the retention", w.fetch(), "7/3/")
		time.Sleep(21 * time.Minute)
		w.want("empty for longer", w.fetch(), "-1/-1/")
		w.want("group", w.state(), "GROUP_ID_NOT_FOUND")
		w.failOver()
		w.want("group after a fail-over", w.state(), "GROUP_ID_NOT_FOUND")

		// Versions 2 to 4 may bring their own time.
		w.commit(func(r *kmsg.OffsetCommitRequest) { r.Version, r.RetentionTimeMillis = 3, 5*60*1000 })
		w.failOver()
		w.want("before its time", w.fetch(), "5/-1/")
		time.Sleep(11 * time.Minute)
		w.want("after its time", w.fetch(), "-1/-1/")
	})
}

// Offsets of a topic that a stable group does not consume any more expire too.
func TestUnsubscribedOffsetsExpire(t *testing.T) {
	run(t, func(c *Config) { c.OffsetsRetention = time.Hour }, func(w *world) {
		a := w.client()
		a.session, a.topics = 30*time.Minute, []string{"u"}
		w.form(a)
		w.want("commit", a.commit(7), "NONE")
		for range 3 {
			time.Sleep(25 * time.Minute)
			w.want("alive", a.heartbeat(), "NONE")
		}
		w.want("fetch", w.fetch(), "-1/-1/")
		w.want("state", w.state(), "Stable 1")
	})
}

func TestOffsetDelete(t *testing.T) {
	run(t, nil, func(w *world) {
		del := func(topic string, partition int32) string {
			req := kmsg.NewPtrOffsetDeleteRequest()
			req.Group = "g"
			x := kmsg.NewOffsetDeleteRequestTopic()
			x.Topic = topic
			x.Partitions = []kmsg.OffsetDeleteRequestTopicPartition{{Partition: partition}}
			req.Topics = append(req.Topics, x)
			resp := w.c.OffsetDelete(context.Background(), req)
			if resp.ErrorCode != 0 {
				return mirrormsg.CodeName(resp.ErrorCode)
			}
			return mirrormsg.CodeName(resp.Topics[0].Partitions[0].ErrorCode)
		}
		w.want("no group", del("t", 0), "GROUP_ID_NOT_FOUND")
		a := w.client()
		w.form(a)
		a.commit(3)
		w.want("consumed topic", del("t", 0), "GROUP_SUBSCRIBED_TO_TOPIC")
		w.want("other topic", del("u", 0), "NONE")
		w.want("unknown partition", del("t", 50), "UNKNOWN_TOPIC_OR_PARTITION")
		a.leave()
		w.want("empty group", del("t", 0), "NONE")
		w.want("fetch", w.fetch(), "-1/-1/")
	})
}

func TestListDescribeDelete(t *testing.T) {
	run(t, nil, func(w *world) {
		list := func(states, types []string) string {
			req := kmsg.NewPtrListGroupsRequest()
			req.Version, req.StatesFilter, req.TypesFilter = 5, states, types
			var s []string
			for _, g := range w.c.ListGroups(context.Background(), req).Groups {
				s = append(s, fmt.Sprintf("%s/%s/%s/%s", g.Group, g.ProtocolType, g.GroupState, g.GroupType))
			}
			return strings.Join(s, " ")
		}
		del := func(id string) string {
			req := kmsg.NewPtrDeleteGroupsRequest()
			req.Groups = []string{id}
			return mirrormsg.CodeName(w.c.DeleteGroups(context.Background(), req).Groups[0].ErrorCode)
		}
		w.want("nothing", list(nil, nil), "")
		a := w.client()
		w.form(a)
		w.commit(func(r *kmsg.OffsetCommitRequest) { r.Group = "simple" })
		w.want("both", list(nil, nil), "g/consumer/Stable/Classic simple//Empty/Classic")
		w.want("by state", list([]string{"stable"}, nil), "g/consumer/Stable/Classic")
		w.want("by type", list(nil, []string{"consumer"}), "")
		w.want("by type", list([]string{"Empty"}, []string{"classic"}), "simple//Empty/Classic")

		req := kmsg.NewPtrDescribeGroupsRequest()
		req.Groups = []string{"g", "nobody", ""}
		for v := range int16(7) {
			req.Version = v
			gs := w.c.DescribeGroups(context.Background(), req).Groups
			m := gs[0].Members[0]
			if gs[0].Protocol != "range" || m.ClientHost != "/127.0.0.1" || string(m.MemberAssignment) != a.assignment || len(m.ProtocolMetadata) == 0 {
				t.Errorf("version %d: %+v", v, gs[0])
			}
			if want := map[bool]string{true: "GROUP_ID_NOT_FOUND", false: "NONE"}[v >= 6]; gs[1].State != "Dead" || mirrormsg.CodeName(gs[1].ErrorCode) != want {
				t.Errorf("version %d, unknown group: %+v", v, gs[1])
			}
			if mirrormsg.CodeName(gs[2].ErrorCode) != "INVALID_GROUP_ID" {
				t.Errorf("version %d, empty id: %+v", v, gs[2])
			}
		}
		w.want("with members", del("g"), "NON_EMPTY_GROUP")
		w.want("unknown", del("nobody"), "GROUP_ID_NOT_FOUND")
		w.want("empty id", del(""), "INVALID_GROUP_ID")
		a.commit(4)
		a.leave()
		w.want("empty", del("g"), "NONE")
		w.want("fetch", w.fetch(), "-1/-1/")
		w.failOver()
		w.want("after a fail-over", list(nil, nil), "simple//Empty/Classic")
	})
}

// A group with more offsets than one batch holds can be deleted, clamped and forgotten.
func TestManyOffsets(t *testing.T) {
	run(t, nil, func(w *world) {
		w.topic("big", [16]byte{9}, 20000)
		for from := int32(0); from < 20000; from += 5000 {
			got := w.commit(func(r *kmsg.OffsetCommitRequest) {
				r.Topics[0].Topic = "big"
				p := r.Topics[0].Partitions[0]
				p.Offset = 100
				r.Topics[0].Partitions = nil
				for i := range int32(5000) {
					p.Partition = from + i
					r.Topics[0].Partitions = append(r.Topics[0].Partitions, p)
				}
			})
			if strings.Trim(strings.ReplaceAll(got, "NONE", ""), " ") != "" {
				t.Fatal("a commit failed")
			}
		}
		req := kmsg.NewPtrDeleteGroupsRequest()
		req.Groups = []string{"g"}
		w.want("delete", mirrormsg.CodeName(w.c.DeleteGroups(context.Background(), req).Groups[0].ErrorCode), "NONE")
		w.failOver()
		w.want("state", w.state(), "GROUP_ID_NOT_FOUND")
	})
}

func TestClampAndForget(t *testing.T) {
	run(t, nil, func(w *world) {
		w.commit(func(r *kmsg.OffsetCommitRequest) { r.Topics[0].Partitions[0].Offset = 950 })
		w.commit(func(r *kmsg.OffsetCommitRequest) { r.Group, r.Topics[0].Partitions[0].Offset = "low", 700 })
		n, err := w.c.ClampOffsets(context.Background(), "t", 0, 800)
		if n != 1 || err != nil {
			t.Errorf("%d clamped, %v", n, err)
		}
		w.failOver()
		w.want("clamped", w.fetch(), "800/-1/")
		// A topic made again with another id keeps what was committed to it since.
		if err := w.c.ForgetTopic(context.Background(), "t", [16]byte{99}); err != nil {
			t.Error(err)
		}
		w.want("another id", w.fetch(), "800/-1/")
		if err := w.c.ForgetTopic(context.Background(), "t", topicID); err != nil {
			t.Error(err)
		}
		w.want("forgotten", w.fetch(), "-1/-1/")
	})
}

// Commits that mirroring has synced are refused where consumers are at work here
// or the topic is not being mirrored (SPEC section 8).
func TestSyncedCommits(t *testing.T) {
	run(t, nil, func(w *world) {
		synced := func() string {
			return w.commit(func(r *kmsg.OffsetCommitRequest) { mirrormsg.SetCommitMirrorID(r, mirrorID) })
		}
		name := func(s meta.MirrorTopicState) {
			v := meta.MirrorNameValue("m", s)
			w.img, _ = w.img.Apply([]meta.Record{&meta.SetConfig{Resource: meta.Resource{Type: meta.ResourceTopic, Name: "t"}, Key: meta.ConfigMirrorName, Value: &v}})
		}
		w.img, _ = w.img.Apply([]meta.Record{&meta.CreateMirror{Name: "m", ID: mirrorID}})
		w.want("topic in no mirror", synced(), "INVALID_MIRROR_STATE")
		name(meta.MirrorActive)
		w.want("active", synced(), "NONE")
		for _, s := range []meta.MirrorTopicState{meta.MirrorPaused, meta.MirrorStopping, meta.MirrorStopped} {
			name(s)
			w.want(s.String(), synced(), "INVALID_MIRROR_STATE")
		}
		name(meta.MirrorActive)
		a := w.client()
		w.form(a)
		w.want("group with members", synced(), "NON_EMPTY_GROUP")
		w.want("malformed mark", w.commit(func(r *kmsg.OffsetCommitRequest) { r.UnknownTags.Set(mirrormsg.Tag1279, []byte{1}) }), "INVALID_REQUEST")
	})
}

// The records are Kafka's: offset key 1 with value 4, group key 2 with value 3.
func TestRecordFormats(t *testing.T) {
	run(t, nil, func(w *world) {
		a := w.client()
		w.form(a)
		a.commit(12)
		data, err := w.log.Read(0, 0)
		if err != nil {
			t.Fatal(err)
		}
		key, value, err := batch.Batch(data).FirstRecord()
		if err != nil || key[1] != 2 || value[1] != 3 {
			t.Fatalf("group record %x %x %v", key, value, err)
		}
		var g kmsg.GroupMetadataValue
		if err := g.ReadFrom(value); err != nil || g.Generation != 1 || *g.Leader != a.id || g.Members[0].MemberID != a.id || string(g.Members[0].Assignment) != a.assignment {
			t.Errorf("%+v %v", g, err)
		}
		data, _ = w.log.Read(1, 0)
		key, value, err = batch.Batch(data).FirstRecord()
		if err != nil || key[1] != 1 || value[1] != 4 {
			t.Fatalf("offset record %x %x %v", key, value, err)
		}
		var o kmsg.OffsetCommitValue
		if err := o.ReadFrom(value); err != nil || o.Offset != 12 || o.LeaderEpoch != 3 || o.TopicID != topicID {
			t.Errorf("%+v %v", o, err)
		}
	})
}

func TestNoOffsetsTopic(t *testing.T) {
	run(t, nil, func(w *world) {
		w.img = meta.Empty()
		if _, ok := w.c.PartitionFor("g"); ok {
			t.Error("there is a partition without the topic")
		}
		w.want("fetch", w.fetch(), "COORDINATOR_NOT_AVAILABLE")
	})
}
