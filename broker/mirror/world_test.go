package mirror_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/broker/controller"
	"stet/broker/meta"
	"stet/broker/mirror"
	"stet/broker/mirrormsg"
	"stet/broker/quorum"
	"stet/fetcher"
	"stet/internal/testkit/scripted"
	"stet/zerocopy/batch"
)

// world is a destination cluster of one broker: real metadata and controller, partitions and coordinator in memory, and a
// source of the test kit.
type world struct {
	t      *testing.T
	source *scripted.Cluster
	ctl    *controller.Controller

	mu        sync.Mutex
	img       *meta.Image
	logs      map[string]*fakeLog
	offline   map[string]error // by topic-partition
	hidden    string           // a topic whose logs could not be opened
	states    map[string]*mirrormsg.PartitionState
	pairs     map[string]map[string]mirrormsg.LastMirrorEpochs
	clamps    []string
	writes    int
	proposals atomic.Int64
	disk      atomic.Int64 // how long a proposal takes, in bubbles
	down      error        // of the coordinator
	ule       bool
	retention time.Duration // delete.retention.ms of the topics; 0: they are not compacted
	step      func(topic string, partition int32, s mirror.BarrierStep) error

	dial     func(ctx context.Context, network, address string) (net.Conn, error)
	settings mirror.Settings
	counters fetcher.Counters
	m        *mirror.Manager
}

func newWorld(t *testing.T, sourceBrokers int) *world {
	w := worldOf(t, scripted.NewCluster(t, sourceBrokers))
	w.settings.RefreshInterval, w.settings.RetryInitial = 100*time.Millisecond, 5*time.Millisecond
	w.start()
	return w
}

// newPipedWorld is a world without a network and with the default settings, for bubbles of testing/synctest, in which days pass at once.
func newPipedWorld(t *testing.T, sourceBrokers int) *world {
	w := worldOf(t, scripted.NewPiped(t, sourceBrokers))
	w.dial = w.source.Dial
	w.start()
	return w
}

// worldOf is to be started.
func worldOf(t *testing.T, source *scripted.Cluster) *world {
	w := &world{
		t: t, source: source, img: meta.Empty(), logs: map[string]*fakeLog{}, states: map[string]*mirrormsg.PartitionState{},
		pairs: map[string]map[string]mirrormsg.LastMirrorEpochs{},
	}
	w.settings = mirror.DefaultSettings()
	w.ctl = controller.New(w, controller.Env{BrokerID: 1, StaticConfig: map[string]string{"default.replication.factor": "1"}})
	t.Cleanup(w.ctl.Close)
	must(t, w.ctl.RegisterBroker(context.Background(), meta.Broker{ID: 1, Incarnation: mirrormsg.RandomUUID(), Host: "h", Port: 1}))
	_, err := w.ctl.EnsureClusterID(context.Background(), "destination")
	must(t, err)
	t.Cleanup(func() { w.m.Close() })
	return w
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) start() {
	logger := slog.New(slog.DiscardHandler)
	if os.Getenv("STET_TEST_LOG") != "" {
		logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	m := mirror.New(mirror.Options{
		Node: 1, Logger: logger, Image: w.image, Partitions: w, Controller: controllerOf{w.ctl}, Coordinator: w, Groups: w, Counters: &w.counters,
		Settings: func() mirror.Settings { return w.settings }, SupportsULE: func(string) bool { return w.ule },
		Compaction: func(string) (time.Duration, bool) { return w.retention, w.retention > 0 }, StopStep: w.stopStep, Dial: w.dial,
	})
	w.mu.Lock()
	w.m = m
	img := w.img
	w.mu.Unlock()
	m.Apply(meta.Diff(meta.Empty(), img))
}

// restart ends the manager as a crash would, and starts another one over what is durable.
func (w *world) restart() {
	w.m.Close()
	w.mu.Lock()
	for _, l := range w.logs {
		if t := w.img.Topic(l.topic); t != nil {
			l.SetGate(mirror.InitialGate(w.img, t, l.partition))
		}
	}
	w.mu.Unlock()
	w.start()
}

func (w *world) stopStep(topic string, partition int32, s mirror.BarrierStep) error {
	w.mu.Lock()
	f := w.step
	w.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(topic, partition, s)
}

// Image and Propose make a quorum of it.
func (w *world) Image() *meta.Image { return w.image() }

func (w *world) image() *meta.Image {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.img
}

func (w *world) Propose(_ context.Context, base int64, recs []meta.Record) error {
	w.proposals.Add(1)
	if d := time.Duration(w.disk.Load()); d > 0 {
		time.Sleep(d)
	}
	w.mu.Lock()
	if w.img.Offset() != base {
		w.mu.Unlock()
		return quorum.ErrBase
	}
	img, delta := w.img.Apply(recs)
	w.img = img
	m := w.m
	w.mu.Unlock()
	if m != nil {
		m.Apply(delta)
	}
	return nil
}

type controllerOf struct{ *controller.Controller }

func (c controllerOf) GrowTopic(ctx context.Context, topic string, count int32) error {
	req := kmsg.NewPtrCreatePartitionsRequest()
	rt := kmsg.NewCreatePartitionsRequestTopic()
	rt.Topic, rt.Count = topic, count
	req.Topics = append(req.Topics, rt)
	resp, err := c.CreatePartitions(ctx, req, controller.CreateOpts{Internal: true})
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.Topics[0].ErrorCode)
}

// Get makes the partition's log when it is first asked for.
func (w *world) Get(topic string, partition int32) mirror.Partition {
	if l := w.log(topic, partition); l != nil {
		return l
	}
	return nil
}

// Offline implements mirror.Partitions.
func (w *world) Offline(topic string, partition int32) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.offline[fmt.Sprintf("%s-%d", topic, partition)]
}

func (w *world) log(topic string, partition int32) *fakeLog {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.img.Topic(topic)
	if t == nil || topic == w.hidden || int(partition) >= len(t.Partitions) {
		return nil
	}
	k := fmt.Sprintf("%s-%d-%d", topic, partition, t.Incarnation)
	l := w.logs[k]
	if l == nil {
		l = &fakeLog{w: w, topic: topic, partition: partition, inc: t.Incarnation}
		l.gate = mirror.InitialGate(w.img, t, partition)
		w.logs[k] = l
	}
	return l
}

func stateKey(mirrorID, topic [16]byte, p int32) string {
	return fmt.Sprintf("%x/%x/%d", mirrorID, topic, p)
}

func (w *world) ReadMirrorStates(_ context.Context, req *mirrormsg.ReadMirrorStatesRequest) (*mirrormsg.ReadMirrorStatesResponse, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down != nil {
		return nil, w.down
	}
	resp := mirrormsg.NewPtrReadMirrorStatesResponse()
	for _, t := range req.Topics {
		rt := mirrormsg.NewReadMirrorStatesResponseTopic()
		rt.Name = t.Name
		for _, p := range t.Partitions {
			k := stateKey(req.MirrorID, t.TopicID, p.PartitionIndex)
			rp := mirrormsg.NewReadMirrorStatesResponseTopicPartition()
			rp.PartitionIndex = p.PartitionIndex
			if s := w.states[k]; s != nil {
				c := *s
				rp.State = &c
			}
			for _, l := range w.pairs[k] {
				rp.LastMirrors = append(rp.LastMirrors, l)
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp, nil
}

func (w *world) WriteMirrorStates(_ context.Context, req *mirrormsg.WriteMirrorStatesRequest) (*mirrormsg.WriteMirrorStatesResponse, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down != nil {
		return nil, w.down
	}
	resp := mirrormsg.NewPtrWriteMirrorStatesResponse()
	for _, t := range req.Topics {
		rt := mirrormsg.NewWriteMirrorStatesResponseTopic()
		rt.Name = t.Name
		for i := range t.Partitions {
			p := &t.Partitions[i]
			w.writes++
			k := stateKey(req.MirrorID, t.TopicID, p.PartitionIndex)
			rp := mirrormsg.NewWriteMirrorStatesResponseTopicPartition()
			rp.PartitionIndex = p.PartitionIndex
			stored := int32(-1)
			if s := w.states[k]; s != nil {
				stored = s.StateEpoch
			}
			if p.State.StateEpoch != stored {
				rp.ErrorCode, rp.StateEpoch = kerr.FencedStateEpoch.Code, stored
			} else {
				s := *p.State
				s.StateEpoch = stored + 1
				w.states[k] = &s
				rp.StateEpoch = s.StateEpoch
				if w.pairs[k] == nil {
					w.pairs[k] = map[string]mirrormsg.LastMirrorEpochs{}
				}
				if p.LastMirror != nil {
					w.pairs[k][p.LastMirror.SourceClusterID] = *p.LastMirror
				}
				if p.RemoveLastMirror != nil {
					delete(w.pairs[k], *p.RemoveLastMirror)
				}
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp, nil
}

func (w *world) EnsureTopic(ctx context.Context) error {
	if w.image().Topic(mirrormsg.MirrorStateTopic) != nil {
		return nil
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = mirrormsg.MirrorStateTopic, 3, 1
	req.Topics = append(req.Topics, rt)
	_, err := w.ctl.CreateTopics(ctx, req, controller.CreateOpts{Internal: true})
	return err
}

func (w *world) ClampOffsets(_ context.Context, topic string, partition int32, end int64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clamps = append(w.clamps, fmt.Sprintf("%s-%d %d", topic, partition, end))
	return nil
}

// createMirror creates mirror "m" of the source.
func (w *world) createMirror(config ...string) {
	w.t.Helper()
	req := mirrormsg.NewPtrCreateMirrorRequest()
	req.MirrorName = "m"
	set := map[string]string{"bootstrap.servers": w.source.Bootstrap(), "fetch.wait.max.ms": "50", "fetch.backoff.ms": "20", "request.timeout.ms": "3000"}
	for i := 0; i < len(config); i += 2 {
		set[config[i]] = config[i+1]
	}
	for k, v := range set {
		c := mirrormsg.NewCreateMirrorRequestConfig()
		c.Name, c.Value = k, &v
		req.Config = append(req.Config, c)
	}
	if resp := w.m.CreateMirror(context.Background(), req); resp.ErrorCode != 0 {
		w.t.Fatalf("create: %s %v", mirrormsg.CodeName(resp.ErrorCode), str(resp.ErrorMessage))
	}
	w.eventually("the manager knows the mirror", func() error {
		for _, mi := range w.m.DescribeMirrors(context.Background(), mirrormsg.NewPtrDescribeMirrorsRequest()).Mirrors {
			if mi.MirrorName == "m" && mi.ErrorCode == 0 {
				return nil
			}
		}
		return errors.New("not yet")
	})
}

func str(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func (w *world) startReq(names ...string) *mirrormsg.StartMirrorTopicsRequest {
	req := mirrormsg.NewPtrStartMirrorTopicsRequest()
	req.MirrorName = "m"
	for _, n := range names {
		rt := mirrormsg.NewStartMirrorTopicsRequestTopic()
		rt.TopicName = n
		req.Topics = append(req.Topics, rt)
	}
	return req
}

func (w *world) startTopics(names ...string) *mirrormsg.StartMirrorTopicsResponse {
	w.t.Helper()
	resp := w.m.StartMirrorTopics(context.Background(), w.startReq(names...))
	if resp.ErrorCode != 0 {
		w.t.Fatalf("start: %s %v", mirrormsg.CodeName(resp.ErrorCode), str(resp.ErrorMessage))
	}
	for _, r := range resp.Topics {
		if r.ErrorCode != 0 {
			w.t.Fatalf("start of %s: %s %v", r.Name, mirrormsg.CodeName(r.ErrorCode), str(r.ErrorMessage))
		}
	}
	return resp
}

func (w *world) stopReq(names ...string) *mirrormsg.StopMirrorTopicsRequest {
	req := mirrormsg.NewPtrStopMirrorTopicsRequest()
	req.MirrorName = "m"
	for _, n := range names {
		rt := mirrormsg.NewStopMirrorTopicsRequestTopic()
		rt.TopicName = n
		req.Topics = append(req.Topics, rt)
	}
	return req
}

func (w *world) stopTopics(names ...string) *mirrormsg.StopMirrorTopicsResponse {
	w.t.Helper()
	resp := w.m.StopMirrorTopics(context.Background(), w.stopReq(names...))
	if resp.ErrorCode != 0 {
		w.t.Fatalf("stop: %s %v", mirrormsg.CodeName(resp.ErrorCode), str(resp.ErrorMessage))
	}
	for _, r := range resp.Topics {
		if r.ErrorCode != 0 {
			w.t.Fatalf("stop of %s: %s %v", r.Name, mirrormsg.CodeName(r.ErrorCode), str(r.ErrorMessage))
		}
	}
	return resp
}

// status is what describe says about a partition.
func (w *world) status(topic string, partition int32) (mirror.PartitionStatus, bool) {
	for _, s := range w.m.Partitions() {
		if s.Topic == topic && s.Partition == partition {
			return s, true
		}
	}
	return mirror.PartitionStatus{}, false
}

func (w *world) untilState(topic string, partition int32, state string) mirror.PartitionStatus {
	w.t.Helper()
	var s mirror.PartitionStatus
	w.eventually(fmt.Sprintf("%s-%d is %s", topic, partition, state), func() error {
		var ok bool
		if s, ok = w.status(topic, partition); !ok || s.State.String() != state {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	return s
}

// untilEqual waits until the copy has all of the source's bytes.
func (w *world) untilEqual(t *scripted.Topic, partition int32) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("%s-%d equals the source", t.Name, partition), func() error {
		l := w.log(t.Name, partition)
		if l == nil {
			return errors.New("no partition")
		}
		if got, want := l.bytes(), w.source.Bytes(t, partition); !bytes.Equal(got, want) {
			s, _ := w.status(t.Name, partition)
			return fmt.Errorf("%d bytes, the source has %d; %+v", len(got), len(want), s)
		}
		return nil
	})
}

// eventually polls: what it waits for happens in goroutines that have no hook for tests.
func (w *world) eventually(what string, ok func() error) {
	w.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		err := ok()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("timeout: %s: %v", what, err)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// stored is the stored state of a partition.
func (w *world) stored(topic string, partition int32) (mirrormsg.PartitionState, []mirrormsg.LastMirrorEpochs) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := stateKey(w.img.Mirror("m").ID, w.img.Topic(topic).ID, partition)
	var out []mirrormsg.LastMirrorEpochs
	for _, l := range w.pairs[k] {
		out = append(out, l)
	}
	s := mirrormsg.NewPartitionState()
	if w.states[k] != nil {
		s = *w.states[k]
		s.Events = slices.Clone(s.Events)
	}
	return s, out
}

// tx appends a transactional data batch to the source.
func (w *world) tx(t *scripted.Topic, producer int64) {
	l := t.Logs[0]
	w.source.Append(t, 0, batch.Build(nil, batch.Header{BaseOffset: l.End(), PartitionLeaderEpoch: l.Epoch, Attributes: batch.AttrTransactional, ProducerID: producer}, batch.KV{Value: []byte("v")}))
}

// alter sets configs of mirror "m".
func (w *world) alter(kvs ...string) {
	w.t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceType(meta.ResourceMirror), "m"
	for i := 0; i < len(kvs); i += 2 {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Value = kvs[i], &kvs[i+1]
		r.Configs = append(r.Configs, c)
	}
	req.Resources = append(req.Resources, r)
	resp, err := w.ctl.IncrementalAlterConfigs(context.Background(), req)
	must(w.t, err)
	if resp.Resources[0].ErrorCode != 0 {
		w.t.Fatalf("alter: %s", str(resp.Resources[0].ErrorMessage))
	}
}
