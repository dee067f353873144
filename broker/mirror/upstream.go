package mirror

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"stet/broker/meta"
	"stet/broker/meta/configs"
	"stet/broker/mirrormsg"
	"stet/fetcher"
	"stet/fetcher/source"
)

// Rhythms of an upstream.
const (
	// probeEvery is how often a source that is away is tried (SPEC section 3).
	probeEvery = time.Second
	// downGrace is how long a source broker may be away before its partitions become FAILED: a restart within
	// it costs no state changes.
	downGrace = 2 * time.Second
	// missingEvery is the least time between two looks that count towards "deleted".
	missingEvery = 3 * time.Second
)

// upstream is a mirror's view of its source: connection, what is known about topics, and who waits for it.
type upstream struct {
	m    *Manager
	name string
	id   [16]byte
	log  *slog.Logger

	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}
	kicked chan struct{}

	describing describer

	mu      sync.Mutex
	config  map[string]string
	src     *source.Source
	exclude filter // of topic configs
	topics  map[string]described
	missing map[string]missing
	checked bool
	cluster string   // by configuration, or as learned
	fatal   error    // the source is another cluster
	wrong   *failure // how that was found last; it stays
	// generation counts changes of which cluster the source is; checkedGen is the one whose source was found to be the right one.
	generation, checkedGen uint64
	err                    error    // why the source cannot be used now, nil if it can
	blocked                []string // topics that match mirror.topics.include and cannot be mirrored: their names are taken here
	waiting                map[*driver]int32
	down                   map[int32]*time.Timer

	askingMirrors             chan struct{} // full while DescribeMirrors is out
	pairsAnswer, statesAnswer mirrorsAnswer
}

type described struct {
	topic source.Topic
	at    time.Time
}

type missing struct {
	looks int
	last  time.Time
}

// sourceKeys are the settings whose change needs new connections.
var sourceKeys = []string{
	"bootstrap.servers", "security.protocol", "request.timeout.ms", "connections.max.idle.ms", "socket.connection.setup.timeout.ms",
	"socket.connection.setup.timeout.max.ms", "socket.receive.buffer.bytes", "socket.send.buffer.bytes",
}

func newUpstream(m *Manager, mi *meta.Mirror, config map[string]string) *upstream {
	u := &upstream{
		m: m, name: mi.Name, id: mi.ID, log: m.o.Logger.With("mirror", mi.Name), done: make(chan struct{}), kicked: make(chan struct{}, 1), askingMirrors: make(chan struct{}, 1),
		topics: map[string]described{}, missing: map[string]missing{}, waiting: map[*driver]int32{}, down: map[int32]*time.Timer{},
	}
	u.ctx, u.cancel = context.WithCancel(m.ctx)
	u.describing = describer{ctx: u.ctx, ask: u.describeNow}
	u.configure(config)
	go u.run()
	return u
}

// configure takes a new configuration. Only a changed connection setting makes new connections.
func (u *upstream) configure(config map[string]string) {
	u.mu.Lock()
	old, oldSrc := u.config, u.src
	u.config = maps.Clone(config)
	u.exclude, _ = parseFilter(configs.MirrorValue(config, "mirror.topic.properties.exclude")) // checked when it was set
	if id := config["source.cluster.id"]; id != u.cluster {
		if u.cluster != "" { // else it was just learned
			u.generation++
		}
		u.cluster, u.checked = id, false
	}
	changed := oldSrc == nil
	for _, k := range sourceKeys {
		changed = changed || old[k] != config[k]
	}
	if changed {
		o := source.Options{Mirror: u.name, BrokerID: u.m.o.Node, Pool: u.m.o.Pool, Logger: u.log, Dial: u.m.o.Dial}
		if err := o.ReadConfig(config); err != nil {
			u.err = err
		} else {
			u.err = nil
		}
		u.src, u.checked = source.New(o), false
		u.generation++
	}
	src := u.src
	u.mu.Unlock()
	u.m.fetchers.SetMirror(u.name, src, fetchConfig(config))
	if changed && oldSrc != nil {
		oldSrc.Close()
	}
	u.kick()
}

func fetchConfig(config map[string]string) fetcher.Config {
	num := func(key string) int64 {
		n, _ := strconv.ParseInt(configs.MirrorValue(config, key), 10, 64) // checked when it was set
		return n
	}
	return fetcher.Config{
		MaxWait: time.Duration(num("fetch.wait.max.ms")) * time.Millisecond, MinBytes: int32(num("fetch.min.bytes")),
		MaxBytes: int32(num("fetch.response.max.bytes")), PartitionMaxBytes: int32(num("fetch.max.bytes")), Backoff: time.Duration(num("fetch.backoff.ms")) * time.Millisecond,
	}
}

func (u *upstream) close() {
	u.cancel()
	<-u.done
	u.m.fetchers.RemoveMirror(u.name)
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, t := range u.down {
		t.Stop()
	}
	u.src.Close()
}

func (u *upstream) source() *source.Source {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.src
}

func (u *upstream) setting(key string) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return configs.MirrorValue(u.config, key)
}

func (u *upstream) clusterID() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.cluster
}

func (u *upstream) failOnGap() bool { return u.setting("mirror.on.gap") == "fail" }

// problem is why nothing can run, nil if the source was reached last time.
func (u *upstream) problem() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.fatal != nil {
		return u.fatal
	}
	return u.err
}

// noted keeps whether the source was reached, and reports whether it just came back.
func (u *upstream) noted(err error) (back bool) {
	if u.ctx.Err() != nil {
		return false
	}
	u.mu.Lock()
	was := u.err
	u.err = err
	u.mu.Unlock()
	if (was == nil) != (err == nil) {
		if err != nil {
			u.log.Warn("source cannot be reached", "err", err)
		} else {
			u.log.Info("source can be reached again")
		}
	}
	return was != nil && err == nil
}

func (u *upstream) kick() {
	select {
	case u.kicked <- struct{}{}:
	default:
	}
}

// describe returns a topic's metadata, at most maxAge old; 0: asked for now.
func (u *upstream) describe(ctx context.Context, topic string, maxAge time.Duration) (source.Topic, error) {
	u.mu.Lock()
	have, ok := u.topics[topic]
	u.mu.Unlock()
	if ok && maxAge > 0 && have.topic.Err == nil && time.Since(have.at) < maxAge {
		return have.topic, nil
	}
	t, err := u.describing.do(ctx, topic)
	if err != nil {
		return t, sourceError(-1, err)
	}
	return t, nil
}

// describeNow asks for topics by name and keeps the answers.
func (u *upstream) describeNow(ctx context.Context, names []string) ([]source.Topic, error) {
	topics, err := u.source().Topics(ctx, names)
	if err != nil {
		if ctx.Err() == nil {
			u.noted(err)
			u.kick()
		}
		return nil, err
	}
	now := time.Now()
	var changed []source.Topic
	u.mu.Lock()
	for _, t := range topics {
		if t.Err != nil || !sameTopic(u.topics[t.Name].topic, t) {
			changed = append(changed, t)
		}
		u.topics[t.Name] = described{t, now}
		if t.Err == nil {
			delete(u.missing, t.Name)
		}
	}
	u.mu.Unlock()
	u.m.refreshed(u.name, changed)
	if u.noted(nil) {
		u.kick()
	}
	return topics, nil
}

// sameTopic says whether two descriptions agree in all that a partition here depends on.
func sameTopic(a, b source.Topic) bool {
	return a.ID == b.ID && a.Err == nil && b.Err == nil &&
		slices.EqualFunc(a.Partitions, b.Partitions, func(p, q source.Partition) bool {
			return p.Index == q.Index && p.Leader == q.Leader && p.LeaderEpoch == q.LeaderEpoch
		})
}

// checkTopic says what is wrong with a topic's description, if anything.
func (u *upstream) checkTopic(t source.Topic, name string, id [16]byte) error {
	switch {
	case errors.Is(t.Err, kerr.UnknownTopicOrPartition), errors.Is(t.Err, kerr.UnknownTopicID):
		u.mu.Lock()
		looks := u.missing[name].looks
		u.mu.Unlock()
		if looks >= 2 {
			return operator(fmt.Errorf("topic %s was deleted at the source", name))
		}
		u.kick()
		return patient(fmt.Errorf("topic %s is not at the source: %w", name, t.Err))
	case t.Err != nil:
		return patient(fmt.Errorf("topic %s at the source: %w", name, t.Err))
	case t.ID != [16]byte{} && t.ID != id:
		return operator(fmt.Errorf("topic %s was deleted and made again at the source: its id there is %s, here %s; stop it, delete the copy and start it again", name, mirrormsg.UUIDString(t.ID), mirrormsg.UUIDString(id)))
	}
	return nil
}

func (u *upstream) offset(ctx context.Context, p source.Partition, topic string, timestamp int64) (int64, error) {
	a, err := u.source().Offset(ctx, p.Leader, source.OffsetQuestion{Topic: topic, Partition: p.Index, LeaderEpoch: p.LeaderEpoch, Timestamp: timestamp})
	switch {
	case err != nil:
		return 0, sourceError(p.Leader, err)
	case a.Err != nil:
		return 0, codeError(fmt.Errorf("the source's offsets of %s-%d: %w", topic, p.Index, a.Err))
	case a.Offset < 0:
		return 0, patient(fmt.Errorf("the source does not know where %s-%d begins or ends", topic, p.Index))
	}
	return a.Offset, nil
}

func (u *upstream) epochEnd(ctx context.Context, p source.Partition, topic string, epoch int32) (epochAnswer, error) {
	a, err := u.source().EpochEnd(ctx, p.Leader, source.EpochQuestion{Topic: topic, Partition: p.Index, LeaderEpoch: p.LeaderEpoch, Epoch: epoch})
	switch {
	case err != nil:
		return epochAnswer{}, sourceError(p.Leader, err)
	case a.Err != nil:
		return epochAnswer{}, codeError(fmt.Errorf("the source's epochs of %s-%d: %w", topic, p.Index, a.Err))
	}
	return epochAnswer{a.Epoch, a.EndOffset}, nil
}

func (u *upstream) learn(broker int32, host string, port int32) {
	if host != "" {
		u.source().Learn(broker, host, port)
	}
}

// await lets a driver sleep until the source, or that broker of it, can be reached.
func (u *upstream) await(d *driver, broker int32) {
	u.mu.Lock()
	u.waiting[d] = broker
	u.mu.Unlock()
	u.kick()
}

func (u *upstream) forget(d *driver) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.waiting, d)
}

// brokerChanged is what the fetchers see of a source broker.
func (u *upstream) brokerChanged(broker int32, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if t := u.down[broker]; t != nil {
		t.Stop()
		delete(u.down, broker)
	}
	if err != nil {
		u.down[broker] = time.AfterFunc(downGrace, func() { u.m.brokerDown(u.name, broker, err) })
	}
	u.kick()
}
