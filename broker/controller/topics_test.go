package controller

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/broker/meta"
	"stet/broker/mirrormsg"
)

// newImage has brokers 1..n alive.
func newImage(n int32) *meta.Image {
	img := meta.Empty()
	for id := int32(1); id <= n; id++ {
		img, _ = img.Apply(registerBroker(img, meta.Broker{ID: id, Incarnation: [16]byte{byte(id)}, Host: "h", Port: 9092}))
	}
	return img
}

func code(err error) string { return mirrormsg.CodeName(mirrormsg.CodeForError(err)) }

func createReq(name string, partitions int32, factor int16, edit ...func(*kmsg.CreateTopicsRequestTopic)) *kmsg.CreateTopicsRequest {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version = 7
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, partitions, factor
	for _, f := range edit {
		f(&t)
	}
	req.Topics = append(req.Topics, t)
	return req
}

func config(key string, value *string) func(*kmsg.CreateTopicsRequestTopic) {
	return func(t *kmsg.CreateTopicsRequestTopic) {
		t.Configs = append(t.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: key, Value: value})
	}
}

func assign(lists ...[]int32) func(*kmsg.CreateTopicsRequestTopic) {
	return func(t *kmsg.CreateTopicsRequestTopic) {
		for i, l := range lists {
			t.ReplicaAssignment = append(t.ReplicaAssignment, kmsg.CreateTopicsRequestTopicReplicaAssignment{Partition: int32(i), Replicas: l})
		}
	}
}

func withID(id [16]byte) func(*kmsg.CreateTopicsRequestTopic) {
	return func(t *kmsg.CreateTopicsRequestTopic) { mirrormsg.SetMirrorInfo(t, id) }
}

// mustCreate applies a request that has to succeed.
func mustCreate(t *testing.T, img *meta.Image, req *kmsg.CreateTopicsRequest) *meta.Image {
	t.Helper()
	recs, resp := createTopics(img, &Env{}, req, CreateOpts{})
	for _, r := range resp.Topics {
		if r.ErrorCode != 0 {
			t.Fatalf("create %s: %s", r.Topic, *r.ErrorMessage)
		}
	}
	img, _ = img.Apply(recs)
	return img
}

// The codes were taken from Apache Kafka 4.3.1 by sending the same requests.
func TestCreateTopics(t *testing.T) {
	used := [16]byte{9}
	img := mustCreate(t, newImage(1), createReq("t.x", 2, 1, withID(used)))
	str := kmsg.StringPtr
	for _, c := range []struct {
		name string
		req  *kmsg.CreateTopicsRequest
		code string
		text string
	}{
		{"defaults", createReq("ok", -1, -1), "NONE", ""},
		{"empty name", createReq("", 1, 1), "INVALID_TOPIC_EXCEPTION", "empty"},
		{"dot", createReq(".", 1, 1), "INVALID_TOPIC_EXCEPTION", "'.'"},
		{"space", createReq("a b", 1, 1), "INVALID_TOPIC_EXCEPTION", "'a b'"},
		{"long", createReq(strings.Repeat("x", 250), 1, 1), "INVALID_TOPIC_EXCEPTION", "249"},
		{"exists", createReq("t.x", 1, 1), "TOPIC_ALREADY_EXISTS", "'t.x' already exists"},
		{"collision", createReq("t_x", 1, 1), "INVALID_TOPIC_EXCEPTION", "collides with existing topic: t.x"},
		{"0 partitions", createReq("ok", 0, 1), "INVALID_PARTITIONS", "non-positive"},
		{"-2 partitions", createReq("ok", -2, 1), "INVALID_PARTITIONS", "non-positive"},
		{"very many partitions", createReq("ok", 1<<30, 1), "INVALID_PARTITIONS", "at most"},
		{"0 replicas", createReq("ok", 1, 0), "INVALID_REPLICATION_FACTOR", "larger than 0"},
		{"3 replicas", createReq("ok", 1, 3), "INVALID_REPLICATION_FACTOR", "only 1 broker"},
		{"unknown config", createReq("ok", 1, 1, config("foo", str("1"))), "INVALID_CONFIG", "Unknown topic config name: foo"},
		{"bad config", createReq("ok", 1, 1, config("retention.ms", str("x"))), "INVALID_CONFIG", "Invalid value x for configuration retention.ms"},
		{"null config", createReq("ok", 1, 1, config("retention.ms", nil)), "INVALID_CONFIG", "Null value not supported for topic configs: retention.ms"},
		{"hidden config", createReq("ok", 1, 1, config("mirror.name", str("m"))), "INVALID_CONFIG", "mirror.name"},
		{"assignment", createReq("ok", -1, -1, assign([]int32{1}, []int32{1})), "NONE", ""},
		{"assignment and partitions", createReq("ok", 2, -1, assign([]int32{1})), "INVALID_REQUEST", "numPartitions"},
		{"assignment and factor", createReq("ok", -1, 1, assign([]int32{1})), "INVALID_REQUEST", "replication factor"},
		{"assignment to nobody", createReq("ok", -1, -1, assign([]int32{})), "INVALID_REPLICA_ASSIGNMENT", "empty"},
		{"assignment to a stranger", createReq("ok", -1, -1, assign([]int32{7})), "INVALID_REPLICA_ASSIGNMENT", "broker 7"},
		{"assignment twice", createReq("ok", -1, -1, assign([]int32{1, 1})), "INVALID_REPLICA_ASSIGNMENT", "more than once"},
		{"internal", createReq("__mirror_state", 1, 1), "INVALID_REQUEST", "prohibited"},
		{"given id", createReq("ok", 1, 1, withID([16]byte{4})), "NONE", ""},
		{"used id", createReq("ok", 1, 1, withID(used)), "TOPIC_ALREADY_EXISTS", "used by topic 't.x'"},
		{"zero id", createReq("ok", 1, 1, withID([16]byte{})), "INVALID_REQUEST", "zero"},
	} {
		t.Run(c.name, func(t *testing.T) {
			recs, resp := createTopics(img, &Env{}, c.req, CreateOpts{})
			r := resp.Topics[0]
			if mirrormsg.CodeName(r.ErrorCode) != c.code || c.text != "" && !strings.Contains(*r.ErrorMessage, c.text) {
				t.Fatalf("got %s %v, want %s with %q", mirrormsg.CodeName(r.ErrorCode), r.ErrorMessage, c.code, c.text)
			}
			if (len(recs) > 0) != (c.code == "NONE") {
				t.Errorf("%d records", len(recs))
			}
			c.req.ValidateOnly = true
			if recs, again := createTopics(img, &Env{}, c.req, CreateOpts{}); len(recs) != 0 || again.Topics[0].ErrorCode != r.ErrorCode {
				t.Errorf("validate only: %d records, %s", len(recs), mirrormsg.CodeName(again.Topics[0].ErrorCode))
			}
		})
	}
}

func TestCreateTopicsAnswer(t *testing.T) {
	env := &Env{StaticConfig: map[string]string{"num.partitions": "4", "log.retention.hours": "1"}}
	img := newImage(3)
	req := createReq("a", -1, 3, config("cleanup.policy", kmsg.StringPtr("compact")), withID([16]byte{7}))
	recs, resp := createTopics(img, env, req, CreateOpts{})
	r := resp.Topics[0]
	if r.NumPartitions != 4 || r.ReplicationFactor != 3 || r.TopicID != [16]byte{7} {
		t.Errorf("answer %+v", r)
	}
	got := map[string]string{}
	for _, c := range r.Configs {
		got[c.Name] = fmt.Sprint(*c.Value, " ", c.Source)
	}
	if got["cleanup.policy"] != "compact 1" || got["retention.ms"] != "3600000 4" || got["segment.bytes"] != "1073741824 5" {
		t.Errorf("configs %v", got)
	}
	base := img.Offset()
	img, delta := img.Apply(recs)
	topic := img.Topic("a")
	if topic.Incarnation != base || len(delta.CreatedTopics) != 1 || len(topic.Partitions) != 4 {
		t.Errorf("topic %+v", topic)
	}
	leaders := map[int32]int{}
	for i, p := range topic.Partitions {
		leaders[p.Leader]++
		seen := map[int32]bool{}
		for _, r := range p.Replicas {
			seen[r] = true
		}
		if len(seen) != 3 || len(p.ISR) != 3 || p.Leader != p.Replicas[0] || p.BarrierEnd != -1 {
			t.Errorf("partition %d %+v", i, p)
		}
	}
	if len(leaders) != 3 {
		t.Errorf("leaders are not spread: %v", leaders)
	}
}

func TestCreateTopicsDuplicates(t *testing.T) {
	img := newImage(1)
	req := createReq("dup", 1, 1)
	req.Topics = append(req.Topics, req.Topics[0], createReq("fine", 1, 1).Topics[0], createReq("fi_ne", 1, 1).Topics[0], createReq("fi.ne", 1, 1).Topics[0])
	recs, resp := createTopics(img, &Env{}, req, CreateOpts{})
	var codes []string
	for _, r := range resp.Topics {
		codes = append(codes, r.Topic+" "+mirrormsg.CodeName(r.ErrorCode))
	}
	if got := strings.Join(codes, ", "); got != "dup INVALID_REQUEST, fine NONE, fi_ne NONE, fi.ne INVALID_TOPIC_EXCEPTION" {
		t.Errorf("got %s", got)
	}
	if img, _ = img.Apply(recs); len(img.Topics()) != 2 {
		t.Errorf("%d topics", len(img.Topics()))
	}
}

// MirrorInfo needs every assigned replica alive; an ordinary topic does not.
func TestMirrorInfoNeedsAllReplicas(t *testing.T) {
	img := newImage(2)
	down := *img.Broker(2)
	down.ShuttingDown = true
	img, _ = img.Apply([]meta.Record{&meta.RegisterBroker{Broker: down}})
	_, resp := createTopics(img, &Env{}, createReq("a", -1, -1, assign([]int32{1, 2})), CreateOpts{})
	if resp.Topics[0].ErrorCode != 0 {
		t.Errorf("ordinary topic: %s", *resp.Topics[0].ErrorMessage)
	}
	_, resp = createTopics(img, &Env{}, createReq("a", -1, -1, assign([]int32{1, 2}), withID([16]byte{3})), CreateOpts{})
	if r := resp.Topics[0]; mirrormsg.CodeName(r.ErrorCode) != "INVALID_REPLICA_ASSIGNMENT" || !strings.Contains(*r.ErrorMessage, "broker 2") {
		t.Errorf("with MirrorInfo: %d %v", r.ErrorCode, r.ErrorMessage)
	}
}

func TestDeleteTopics(t *testing.T) {
	img := mustCreate(t, newImage(1), createReq("a", 1, 1, withID([16]byte{1})))
	img = mustCreate(t, img, createReq("m", 1, 1))
	img = apply(img, mirrorNameRecord("m", "mm", meta.MirrorPaused))
	del := func(edit func(*kmsg.DeleteTopicsRequest)) ([]meta.Record, string) {
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.Version = 6
		edit(req)
		recs, resp := deleteTopics(img, &Env{}, req)
		var s []string
		for _, r := range resp.Topics {
			s = append(s, mirrormsg.CodeName(r.ErrorCode))
		}
		return recs, strings.Join(s, " ")
	}
	topic := func(name *string, id [16]byte) func(*kmsg.DeleteTopicsRequest) {
		return func(r *kmsg.DeleteTopicsRequest) {
			r.Topics = append(r.Topics, kmsg.DeleteTopicsRequestTopic{Topic: name, TopicID: id})
		}
	}
	str := kmsg.StringPtr
	for _, c := range []struct {
		edit func(*kmsg.DeleteTopicsRequest)
		want string
	}{
		{topic(str("a"), [16]byte{}), "NONE"},
		{topic(nil, [16]byte{1}), "NONE"},
		{topic(str("b"), [16]byte{}), "UNKNOWN_TOPIC_OR_PARTITION"},
		{topic(nil, [16]byte{2}), "UNKNOWN_TOPIC_ID"},
		{topic(nil, [16]byte{}), "INVALID_REQUEST"},
		{topic(str("a"), [16]byte{1}), "INVALID_REQUEST"},
		{topic(str("m"), [16]byte{}), "POLICY_VIOLATION"},
		{func(r *kmsg.DeleteTopicsRequest) { r.Version, r.TopicNames = 3, []string{"a", "m"} }, "NONE POLICY_VIOLATION"},
		{func(r *kmsg.DeleteTopicsRequest) { r.Version, r.TopicNames = 3, []string{"a", "a"} }, "INVALID_REQUEST"},
		// by name and by id at once: the second does not find it any more
		{func(r *kmsg.DeleteTopicsRequest) {
			topic(str("a"), [16]byte{})(r)
			topic(nil, [16]byte{1})(r)
		}, "NONE UNKNOWN_TOPIC_ID"},
	} {
		if _, got := del(c.edit); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
	recs, _ := del(topic(str("a"), [16]byte{}))
	if after := apply(img, recs...); after.Topic("a") != nil {
		t.Error("the topic is still there")
	}
	// A stopped mirror topic can be deleted.
	img = apply(img, mirrorNameRecord("m", "mm", meta.MirrorStopped))
	if _, got := del(topic(str("m"), [16]byte{})); got != "NONE" {
		t.Errorf("stopped mirror topic: %s", got)
	}
}

func apply(img *meta.Image, recs ...meta.Record) *meta.Image {
	img, _ = img.Apply(recs)
	return img
}

func TestCreatePartitions(t *testing.T) {
	img := mustCreate(t, newImage(2), createReq("t", 2, 2))
	img = mustCreate(t, img, createReq("m", 1, 1))
	img = apply(img, &meta.CreateMirror{Name: "mm", ID: [16]byte{5}}, mirrorNameRecord("m", "mm", meta.MirrorActive))
	add := func(name string, count int32, opts CreateOpts, lists ...[]int32) ([]meta.Record, string) {
		req := kmsg.NewPtrCreatePartitionsRequest()
		rt := kmsg.NewCreatePartitionsRequestTopic()
		rt.Topic, rt.Count = name, count
		for _, l := range lists {
			rt.Assignment = append(rt.Assignment, kmsg.CreatePartitionsRequestTopicAssignment{Replicas: l})
		}
		req.Topics = append(req.Topics, rt)
		recs, resp := createPartitions(img, req, opts)
		req.ValidateOnly = true
		if dry, _ := createPartitions(img, req, opts); len(dry) > 0 {
			t.Error("validate only made records")
		}
		return recs, mirrormsg.CodeName(resp.Topics[0].ErrorCode)
	}
	for _, c := range []struct {
		name  string
		count int32
		lists [][]int32
		want  string
	}{
		{"t", 1, nil, "INVALID_PARTITIONS"},
		{"t", 2, nil, "INVALID_PARTITIONS"},
		{"t", 0, nil, "INVALID_PARTITIONS"},
		{"t", 1 << 30, nil, "INVALID_PARTITIONS"},
		{"t", 3, nil, "NONE"},
		{"t", 3, [][]int32{{1, 2}, {1, 2}}, "INVALID_REPLICA_ASSIGNMENT"},
		{"t", 3, [][]int32{{9, 1}}, "INVALID_REPLICA_ASSIGNMENT"},
		{"t", 3, [][]int32{{1}}, "INVALID_REPLICA_ASSIGNMENT"},
		{"t", 3, [][]int32{{2, 1}}, "NONE"},
		{"nope", 3, nil, "UNKNOWN_TOPIC_OR_PARTITION"},
		{"m", 3, nil, "POLICY_VIOLATION"},
	} {
		if _, got := add(c.name, c.count, CreateOpts{}, c.lists...); got != c.want {
			t.Errorf("%s to %d %v: %s, want %s", c.name, c.count, c.lists, got, c.want)
		}
	}
	recs, got := add("m", 3, CreateOpts{Internal: true})
	if got != "NONE" {
		t.Fatalf("mirroring adds partitions: %s", got)
	}
	after := apply(img, recs...).Topic("m")
	if len(after.Partitions) != 3 || after.Partitions[2].AlignedMirrorID != [16]byte{5} || after.Partitions[0].AlignedMirrorID != [16]byte{} {
		t.Errorf("partitions %+v", after.Partitions)
	}
}

func TestRestartBumpsLeaderEpochs(t *testing.T) {
	img := mustCreate(t, newImage(2), createReq("t", 2, 1))
	b := *img.Broker(1)
	if recs := registerBroker(img, b); len(recs) != 0 {
		t.Errorf("the same registration again makes %d records", len(recs))
	}
	b.Incarnation = [16]byte{42}
	after := apply(img, registerBroker(img, b)...)
	for i := range 2 {
		was, is := img.Partition("t", int32(i)), after.Partition("t", int32(i))
		want := was.LeaderEpoch
		if was.Leader == 1 {
			want++
		}
		if is.LeaderEpoch != want || is.Leader != was.Leader {
			t.Errorf("partition %d: %+v after the restart of broker 1, was %+v", i, is, was)
		}
	}
}

func TestErrorsAreWireErrors(t *testing.T) {
	err := CheckTopicName("..")
	if !errors.Is(err, kerr.InvalidTopicException) || code(err) != "INVALID_TOPIC_EXCEPTION" {
		t.Errorf("%v", err)
	}
}
