package controller

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/broker/meta"
	"stet/broker/mirrormsg"
)

var (
	idA = [16]byte{0xA}
	idB = [16]byte{0xB}
	idM = [16]byte{0x33}
)

// mirrorWorld is an image with a mirror "m" and helpers that apply requests to it.
type mirrorWorld struct {
	t   *testing.T
	img *meta.Image
}

func newMirrorWorld(t *testing.T) *mirrorWorld {
	w := &mirrorWorld{t, newImage(1)}
	req := mirrormsg.NewPtrCreateMirrorRequest()
	req.MirrorName = "m"
	req.Config = []mirrormsg.CreateMirrorRequestConfig{{Name: "bootstrap.servers", Value: kmsg.StringPtr("h:1")}}
	recs, err := createMirror(w.img, &Env{NewID: func() [16]byte { return idM }}, req)
	if err != nil {
		t.Fatal(err)
	}
	w.img = apply(w.img, recs...)
	return w
}

func codes(results []mirrormsg.MirrorTopicResult) string {
	var s []string
	for _, r := range results {
		s = append(s, mirrormsg.CodeName(r.ErrorCode))
	}
	return strings.Join(s, " ")
}

type startOpt func(*mirrormsg.StartMirrorTopicsRequest)

// start sends a start for one topic and returns the code.
func (w *mirrorWorld) start(mirror, topic string, id [16]byte, partitions int32, opts ...startOpt) string {
	req := mirrormsg.NewPtrStartMirrorTopicsRequest()
	req.MirrorName = mirror
	if topic != "" {
		st := mirrormsg.NewStartMirrorTopicsRequestTopic()
		st.TopicName, st.TopicID, st.NumPartitions = topic, id, partitions
		req.Topics = append(req.Topics, st)
	}
	for _, o := range opts {
		o(req)
	}
	recs, resp := startMirrorTopics(w.img, &Env{}, req)
	w.img = apply(w.img, recs...)
	if resp.ErrorCode != 0 {
		return mirrormsg.CodeName(resp.ErrorCode)
	}
	return codes(resp.Topics)
}

func (w *mirrorWorld) stop(topic string, edit ...func(*mirrormsg.StopMirrorTopicsRequest)) string {
	req := mirrormsg.NewPtrStopMirrorTopicsRequest()
	req.MirrorName = "m"
	if topic != "" {
		req.Topics = append(req.Topics, mirrormsg.StopMirrorTopicsRequestTopic{TopicName: topic})
	}
	for _, e := range edit {
		e(req)
	}
	recs, resp := stopMirrorTopics(w.img, req)
	w.img = apply(w.img, recs...)
	if resp.ErrorCode != 0 {
		return mirrormsg.CodeName(resp.ErrorCode)
	}
	return codes(resp.Topics)
}

func (w *mirrorWorld) pause(topic string) string {
	recs, results, err := changeState(w.img, "m", []topicRef{{name: topic}}, pauseTopic)
	if err != nil {
		return code(err)
	}
	w.img = apply(w.img, recs...)
	return codes(results)
}

func (w *mirrorWorld) resume(topic string) string {
	recs, results, err := changeState(w.img, "m", []topicRef{{name: topic}}, resumeTopic)
	if err != nil {
		return code(err)
	}
	w.img = apply(w.img, recs...)
	return codes(results)
}

// bump sends one partition of a BumpLeaderEpochs request.
func (w *mirrorWorld) bump(id [16]byte, partition, minEpoch int32, barrier int64, aligned [16]byte) string {
	req := mirrormsg.NewPtrBumpLeaderEpochsRequest()
	bt := mirrormsg.NewBumpLeaderEpochsRequestTopic()
	bt.TopicID = id
	p := mirrormsg.NewBumpLeaderEpochsRequestTopicPartition()
	p.PartitionIndex, p.MinLeaderEpoch, p.BarrierEnd, p.AlignedMirrorID = partition, minEpoch, barrier, aligned
	bt.Partitions = append(bt.Partitions, p)
	req.Topics = append(req.Topics, bt)
	recs, resp := bumpLeaderEpochs(w.img, req)
	w.img = apply(w.img, recs...)
	return mirrormsg.CodeName(resp.Topics[0].Partitions[0].ErrorCode)
}

func (w *mirrorWorld) want(what, got, want string) {
	w.t.Helper()
	if got != want {
		w.t.Errorf("%s: %s, want %s", what, got, want)
	}
}

func (w *mirrorWorld) state(topic string) string {
	m, s := w.img.TopicMirror(topic)
	return m + " " + s.String()
}

func TestCreateMirror(t *testing.T) {
	w := newMirrorWorld(t)
	if m := w.img.Mirror("m"); m == nil || m.ID != idM {
		t.Fatalf("mirror %+v", m)
	}
	str := kmsg.StringPtr
	boot := mirrormsg.CreateMirrorRequestConfig{Name: "bootstrap.servers", Value: str("h:1")}
	for _, c := range []struct {
		name string
		cfg  []mirrormsg.CreateMirrorRequestConfig
		want string
	}{
		{"m", []mirrormsg.CreateMirrorRequestConfig{boot}, "MIRROR_ALREADY_EXISTS"},
		{"x.stopped", []mirrormsg.CreateMirrorRequestConfig{boot}, "INVALID_MIRROR_NAME"},
		{"", []mirrormsg.CreateMirrorRequestConfig{boot}, "INVALID_MIRROR_NAME"},
		{"x", nil, "INVALID_CONFIG"},
		{"x", []mirrormsg.CreateMirrorRequestConfig{boot, boot}, "INVALID_CONFIG"},
		{"x", []mirrormsg.CreateMirrorRequestConfig{boot, {Name: "mirror.on.gap"}}, "INVALID_CONFIG"},
		{"x", []mirrormsg.CreateMirrorRequestConfig{boot, {Name: "no.such", Value: str("1")}}, "INVALID_CONFIG"},
		{"x", []mirrormsg.CreateMirrorRequestConfig{boot, {Name: "security.protocol", Value: str("SSL")}}, "INVALID_CONFIG"},
		{"x", []mirrormsg.CreateMirrorRequestConfig{boot}, "NONE"},
	} {
		req := &mirrormsg.CreateMirrorRequest{MirrorName: c.name, Config: c.cfg}
		recs, err := createMirror(w.img, &Env{}, req)
		w.want(fmt.Sprintf("create %q %d", c.name, len(c.cfg)), code(err), c.want)
		if err != nil && len(recs) > 0 {
			t.Error("a refused request made records")
		}
	}
}

// The whole life of a topic, with the error table of SPEC section 9 at each state.
func TestMirrorTopicLife(t *testing.T) {
	w := newMirrorWorld(t)
	for _, op := range []func(string) string{w.pause, w.resume, func(n string) string { return w.stop(n) }} {
		w.want("before the start", op("a"), "TOPIC_NOT_IN_MIRROR")
	}
	before := w.img.Offset()
	cfg := func(r *mirrormsg.StartMirrorTopicsRequest) {
		r.Topics[0].Configs = []mirrormsg.StartMirrorTopicsRequestTopicConfig{{Name: "cleanup.policy", Value: kmsg.StringPtr("compact")}}
	}
	w.want("dry run", w.start("m", "a", idA, 2, cfg, func(r *mirrormsg.StartMirrorTopicsRequest) { r.DryRun = true }), "NONE")
	if w.img.Offset() != before {
		t.Fatal("a dry run changed the metadata")
	}
	w.want("start", w.start("m", "a", idA, 2, cfg), "NONE")
	topic := w.img.Topic("a")
	if topic.ID != idA || len(topic.Partitions) != 2 || topic.Partitions[1].AlignedMirrorID != idM {
		t.Errorf("topic %+v", topic)
	}
	if c := w.img.Config(meta.ResourceTopic, "a"); c["cleanup.policy"] != "compact" || c["mirror.start"] != fmt.Sprint(before) {
		t.Errorf("configs %v", c)
	}
	if keys := w.img.MirrorSetConfigs(idM, idA); len(keys) != 1 || keys[0] != "cleanup.policy" {
		t.Errorf("noted keys %v", keys)
	}
	w.want("state", w.state("a"), "m active")

	running := w.img.Offset()
	w.want("start of a running topic", w.start("m", "a", idA, 2), "NONE")
	if w.img.Offset() != running {
		t.Error("the start of a running topic changed the metadata")
	}
	w.want("resume", w.resume("a"), "MIRROR_TOPIC_NOT_PAUSED")
	w.want("pause", w.pause("a"), "NONE")
	w.want("state", w.state("a"), "m paused")
	w.want("pause again", w.pause("a"), "MIRROR_TOPIC_ALREADY_PAUSED")
	w.want("start of a paused topic", w.start("m", "a", idA, 2), "TOPIC_ALREADY_IN_MIRROR")
	w.want("resume", w.resume("a"), "NONE")
	w.want("delete the mirror", codeOf(deleteMirror(w.img, "m")), "MIRROR_NOT_EMPTY")

	w.want("stop", w.stop("a"), "NONE")
	w.want("state", w.state("a"), "m stopping")
	w.want("start", w.start("m", "a", idA, 2), "MIRROR_TOPIC_BEING_STOPPED")
	w.want("pause", w.pause("a"), "MIRROR_TOPIC_BEING_STOPPED")
	w.want("resume", w.resume("a"), "MIRROR_TOPIC_NOT_PAUSED")
	w.want("stop again", w.stop("a"), "NONE")
	w.want("delete the mirror", codeOf(deleteMirror(w.img, "m")), "MIRROR_NOT_EMPTY")

	w.want("barrier 0", w.bump(idA, 0, 70000, 10, [16]byte{}), "NONE")
	w.want("state with one barrier", w.state("a"), "m stopping")
	w.want("barrier 1", w.bump(idA, 1, -1, 20, [16]byte{}), "NONE")
	w.want("state with all barriers", w.state("a"), "m stopped")
	if p := w.img.Partition("a", 0); p.LeaderEpoch != 70000 || p.BarrierEnd != 10 || p.AlignedMirrorID != [16]byte{} {
		t.Errorf("partition %+v", p)
	}

	w.want("stop", w.stop("a"), "NONE")
	w.want("pause", w.pause("a"), "INVALID_MIRROR_STATE")
	w.want("resume", w.resume("a"), "MIRROR_TOPIC_NOT_PAUSED")

	// Started again: a new mirror.start, no old barrier, no alignment, a grown source.
	w.want("fewer partitions", w.start("m", "a", idA, 1), "INVALID_PARTITIONS")
	before = w.img.Offset()
	w.want("start again", w.start("m", "a", idA, 3, func(r *mirrormsg.StartMirrorTopicsRequest) { r.Overwrite = true }), "NONE")
	if c := w.img.Config(meta.ResourceTopic, "a"); c["mirror.start"] != fmt.Sprintf("%d,overwrite", before) {
		t.Errorf("configs %v", c)
	}
	for i, p := range w.img.Topic("a").Partitions {
		aligned := p.AlignedMirrorID == idM
		if p.BarrierEnd != -1 || aligned != (i == 2) {
			t.Errorf("partition %d after the new start: %+v", i, p)
		}
	}
	// A late barrier of the old stop does not count.
	w.want("late barrier", w.bump(idA, 0, -1, 10, [16]byte{}), "INVALID_MIRROR_STATE")

	w.want("stop", w.stop("a"), "NONE")
	for p := range int32(3) {
		w.bump(idA, p, -1, 30, [16]byte{})
	}
	recs, err := deleteMirror(w.img, "m")
	w.want("delete the mirror", code(err), "NONE")
	w.img = apply(w.img, recs...)
	if c := w.img.Config(meta.ResourceTopic, "a"); w.img.Mirror("m") != nil || c["mirror.name"] != "" || c["mirror.start"] != "" {
		t.Errorf("after the deletion: %v", c)
	}
	if w.img.Partition("a", 0).BarrierEnd != 30 {
		t.Error("the barrier's end was forgotten with the mirror")
	}
	w.want("delete again", codeOf(deleteMirror(w.img, "m")), "UNKNOWN_MIRROR")
	w.want("start", w.start("m", "a", idA, 3), "UNKNOWN_MIRROR")
	w.want("stop", w.stop("a"), "UNKNOWN_MIRROR")
	w.want("pause", w.pause("a"), "UNKNOWN_MIRROR")
}

func codeOf(_ []meta.Record, err error) string { return code(err) }

func TestStartRefusals(t *testing.T) {
	w := newMirrorWorld(t)
	w.img = mustCreate(t, w.img, createReq("own", 2, 1, withID(idB)))
	w.img = apply(w.img, &meta.CreateMirror{Name: "n", ID: [16]byte{4}})
	w.want("first", w.start("n", "taken", idA, 1), "NONE")
	for _, c := range []struct {
		topic      string
		id         [16]byte
		partitions int32
		want       string
	}{
		{"new", idB, 1, "TOPIC_ALREADY_EXISTS"}, // the id is another topic's
		{"own", [16]byte{7}, 2, "INCONSISTENT_TOPIC_ID"},
		{"own", idB, 1, "INVALID_PARTITIONS"},
		{"taken", idA, 1, "TOPIC_ALREADY_IN_MIRROR"},
		{"new", [16]byte{}, 1, "UNKNOWN_TOPIC_OR_PARTITION"},
		{"new", [16]byte{7}, -1, "INVALID_PARTITIONS"},
		{"__consumer_offsets", [16]byte{7}, 1, "INVALID_TOPIC_EXCEPTION"},
		{"a b", [16]byte{7}, 1, "INVALID_TOPIC_EXCEPTION"},
	} {
		before := w.img.Offset()
		w.want(c.topic, w.start("m", c.topic, c.id, c.partitions), c.want)
		if w.img.Offset() != before {
			t.Errorf("the refused start of %s changed the metadata", c.topic)
		}
	}
	bad := func(r *mirrormsg.StartMirrorTopicsRequest) {
		r.Topics[0].Configs = []mirrormsg.StartMirrorTopicsRequestTopicConfig{{Name: "no.such", Value: kmsg.StringPtr("1")}}
	}
	w.want("unknown config", w.start("m", "new", [16]byte{7}, 1, bad), "INVALID_CONFIG")
	// A topic of our own with the source's id joins (failback); PREPARING decides about its data.
	w.want("own topic", w.start("m", "own", idB, 2), "NONE")
}

// Racing requests (SPEC section 9, StateOffset).
func TestStateOffset(t *testing.T) {
	w := newMirrorWorld(t)
	w.start("m", "a", idA, 1)
	looked := w.img.Offset()
	w.want("restart of FAILED partitions", w.start("m", "a", idA, 1, func(r *mirrormsg.StartMirrorTopicsRequest) { r.StateOffset = looked }), "NONE")
	if c := w.img.Config(meta.ResourceTopic, "a"); c["mirror.start"] != fmt.Sprint(looked) {
		t.Errorf("no new start: %v", c)
	}
	w.want("the second of two", w.start("m", "a", idA, 1, func(r *mirrormsg.StartMirrorTopicsRequest) { r.StateOffset = looked }), "INVALID_MIRROR_STATE")
	w.want("stop with an old look", w.stop("a", func(r *mirrormsg.StopMirrorTopicsRequest) { r.StateOffset = looked }), "INVALID_MIRROR_STATE")
	now := w.img.Offset()
	w.want("stop with a new look", w.stop("a", func(r *mirrormsg.StopMirrorTopicsRequest) { r.StateOffset = now }), "NONE")
}

func TestStopPatternsAndIDs(t *testing.T) {
	w := newMirrorWorld(t)
	for i := range 4 {
		w.want("start", w.start("m", fmt.Sprintf("orders-%d", i), [16]byte{1, byte(i)}, 1), "NONE")
	}
	before := w.img.Offset()
	pattern := func(p string, dry bool) func(*mirrormsg.StopMirrorTopicsRequest) {
		return func(r *mirrormsg.StopMirrorTopicsRequest) { r.Patterns, r.DryRun = append(r.Patterns, p), dry }
	}
	w.want("dry run", w.stop("", pattern("orders-[01]", true)), "NONE NONE")
	if w.img.Offset() != before {
		t.Error("a dry run changed the metadata")
	}
	w.want("pattern and name", w.stop("orders-0", pattern("orders-[01]", false)), "NONE NONE")
	w.want("partial match", w.stop("", pattern("orders", false)), "")
	w.want("state", w.state("orders-2"), "m active")
	w.want("bad pattern", w.stop("", pattern("(", false)), "INVALID_REGULAR_EXPRESSION")
	w.want("by id", w.stop("", func(r *mirrormsg.StopMirrorTopicsRequest) {
		r.Topics = append(r.Topics, mirrormsg.StopMirrorTopicsRequestTopic{TopicID: [16]byte{1, 2}})
	}), "NONE")
	w.want("state", w.state("orders-2"), "m stopping")
	w.want("name and wrong id", w.stop("", func(r *mirrormsg.StopMirrorTopicsRequest) {
		r.Topics = append(r.Topics, mirrormsg.StopMirrorTopicsRequestTopic{TopicName: "orders-3", TopicID: [16]byte{1, 2}})
	}), "INCONSISTENT_TOPIC_ID")
}

func TestPatternBookkeeping(t *testing.T) {
	w := newMirrorWorld(t)
	lists := func() string {
		c := w.img.Config(meta.ResourceMirror, "m")
		return fmt.Sprintf("include=%s exclude=%s", c["mirror.topics.include"], c["mirror.topics.exclude"])
	}
	patterns := func(include, exclude []string) startOpt {
		return func(r *mirrormsg.StartMirrorTopicsRequest) { r.IncludePatterns, r.ExcludePatterns = include, exclude }
	}
	w.want("start", w.start("m", "", [16]byte{}, 0, patterns([]string{"a.*", "b.*"}, []string{"ax"})), "")
	w.want("lists", lists(), "include=a.*,b.* exclude=__.*,ax")
	// Taken out of the other list.
	w.start("m", "", [16]byte{}, 0, patterns([]string{"ax"}, []string{"b.*"}))
	w.want("lists", lists(), "include=a.*,ax exclude=__.*,b.*")
	stop := func(p string) {
		w.stop("", func(r *mirrormsg.StopMirrorTopicsRequest) { r.Patterns = []string{p} })
	}
	stop("a.*") // in include: removed
	w.want("lists", lists(), "include=ax exclude=__.*,b.*")
	stop("a.*") // not in include: excluded
	w.want("lists", lists(), "include=ax exclude=__.*,b.*,a.*")
	// A kept start is taken back by its name.
	w.start("m", "", [16]byte{}, 0, patterns([]string{`or\.ders`}, nil))
	w.want("stop of a kept start", w.stop("or.ders"), "NONE")
	w.want("lists", lists(), "include=ax exclude=__.*,b.*,a.*")
	w.want("comma", w.start("m", "", [16]byte{}, 0, patterns([]string{"a{1,2}"}, nil)), "INVALID_REGULAR_EXPRESSION")
}

func TestBumpLeaderEpochs(t *testing.T) {
	w := newMirrorWorld(t)
	w.start("m", "a", idA, 1)
	epoch := func() int32 { return w.img.Partition("a", 0).LeaderEpoch }
	w.want("bump", w.bump(idA, 0, 17, -1, [16]byte{}), "NONE")
	if epoch() != 17 {
		t.Errorf("epoch %d", epoch())
	}
	before := w.img.Offset()
	w.want("reached already", w.bump(idA, 0, 17, -1, [16]byte{}), "NONE")
	w.want("no bump", w.bump(idA, 0, -1, -1, [16]byte{}), "NONE")
	w.want("aligned already", w.bump(idA, 0, -1, -1, idM), "NONE")
	if w.img.Offset() != before {
		t.Error("requests for nothing made records")
	}
	w.want("unknown id", w.bump([16]byte{9}, 0, 17, -1, [16]byte{}), "UNKNOWN_TOPIC_ID")
	w.want("unknown partition", w.bump(idA, 5, 17, -1, [16]byte{}), "UNKNOWN_TOPIC_OR_PARTITION")
	w.want("barrier of an active topic", w.bump(idA, 0, -1, 10, [16]byte{}), "INVALID_MIRROR_STATE")
	w.want("aligned with another mirror", w.bump(idA, 0, -1, -1, idB), "INVALID_MIRROR_STATE")
	w.stop("a")
	w.bump(idA, 0, -1, 10, [16]byte{})
	w.want("state", w.state("a"), "m stopped")
	w.want("aligned after the stop", w.bump(idA, 0, -1, -1, idM), "INVALID_MIRROR_STATE")
	// A barrier that was run again after a loss moves the end.
	w.want("barrier again", w.bump(idA, 0, -1, 8, [16]byte{}), "NONE")
	if p := w.img.Partition("a", 0); p.BarrierEnd != 8 {
		t.Errorf("partition %+v", p)
	}
}

func TestReadOnlyTopicsAreProtected(t *testing.T) {
	w := newMirrorWorld(t)
	w.start("m", "a", idA, 1)
	for _, state := range []meta.MirrorTopicState{meta.MirrorActive, meta.MirrorPaused, meta.MirrorStopping} {
		img := apply(w.img, mirrorNameRecord("a", "m", state))
		if err := checkNotReadOnly(img, "a"); code(err) != "POLICY_VIOLATION" || !strings.Contains(err.Error(), "mirror 'm'") {
			t.Errorf("%v: %v", state, err)
		}
	}
	if err := checkNotReadOnly(apply(w.img, mirrorNameRecord("a", "m", meta.MirrorStopped)), "a"); err != nil {
		t.Error(err)
	}
}
