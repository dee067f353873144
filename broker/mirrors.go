package broker

import (
	"context"
	"slices"
	"strings"
	"time"

	"stet/broker/group"
	"stet/broker/meta"
	"stet/broker/meta/configs"
	"stet/broker/mirror"
	"stet/broker/mirrormsg"
	"stet/broker/replica"
	"stet/fetcher"
	"stet/internal/clock"
	"stet/metrics"
	"stet/quota"
	"stet/zerocopy"
)

// mirrors is the mirror manager with what it needs of this broker.
type mirrors struct {
	*mirror.Manager
	b        *Broker
	pool     *zerocopy.Pool
	counters *fetcher.Counters
	throttle *quota.Limiter
	totals   *mirrorTotals
}

func (b *Broker) startMirrors() {
	m := &mirrors{
		b: b, counters: &fetcher.Counters{}, pool: zerocopy.NewPool(int64(b.live("mirror.fetch.memory.bytes")())),
		throttle: quota.NewLimiter(time.Now(), b.throttledRate()), totals: newMirrorTotals(),
	}
	fetches, stops := b.metrics.Durations(metrics.MirrorFetchDuration), b.metrics.Durations(metrics.MirrorStopDuration)
	requests, throttle := b.metrics.Totals(metrics.MirrorFetchRequests), b.metrics.Totals(metrics.MirrorThrottle)
	syncErrors := b.metrics.Totals(metrics.MirrorSyncErrors)
	m.Manager = mirror.New(mirror.Options{
		Node: b.node, Logger: b.logger, Clock: clock.System, Image: b.quorum.Image,
		Partitions: mirrorPartitions{b}, Controller: mirrorController{b}, Coordinator: b.coords, Groups: mirrorGroups{b.coords.groups},
		Settings: b.mirrorSettings, SupportsULE: b.supportsULE, Compaction: b.compaction, Pool: m.pool, Counters: m.counters,
		OnFetch: func(name string, d time.Duration) {
			fetches.Observe(d, name)
			requests.Add(1, name)
		},
		OnThrottle: func(name string, own bool, d time.Duration) {
			side := "source"
			if own {
				side = "own"
			}
			throttle.Add(d.Seconds(), name, side)
		},
		Throttle: m.throttle, Throttled: b.throttled,
		OnSyncError: func(name, step string) { syncErrors.Add(1, name, step) },
		OnStop:      func(name string, d time.Duration) { stops.Observe(d, name) },
	})
	b.mirrors = m
	b.metrics.Source(m.collect)
	m.Apply(meta.Diff(meta.Empty(), b.quorum.Image()))
}

func (m *mirrors) apply(d *meta.Delta) {
	if slices.ContainsFunc(d.Configs, func(r meta.Resource) bool { return r.Type == meta.ResourceBroker }) {
		m.throttle.SetRate(time.Now(), m.b.throttledRate())
		m.pool.SetBudget(int64(m.b.live("mirror.fetch.memory.bytes")()))
	}
	m.Apply(d)
}

// throttledRate is mirror.replication.throttled.rate in bytes per second.
func (b *Broker) throttledRate() int64 { return int64(b.live("mirror.replication.throttled.rate")()) }

// throttled says whether the mirror throttle applies to the replica of a partition
// on this broker (SPEC section 12): there is a rate, and the topic lists it.
func (b *Broker) throttled(topic string, partition int32) bool {
	if b.throttledRate() == quota.Unlimited {
		return false
	}
	const key = "mirror.replication.throttled.replicas"
	img := b.quorum.Image()
	v, ok := img.Config(meta.ResourceTopic, topic)[key]
	if !ok {
		v, _ = configs.BrokerValue(b.levels(img), key)
	}
	return configs.Replicas(v).Contains(partition, b.node)
}

func (m *mirrors) close() { m.Close() }

// gateOf is the gate of a partition before the mirror manager has looked at it.
func gateOf(img *meta.Image, t *meta.Topic, p int32) replica.Gate {
	return gate(mirror.InitialGate(img, t, p), t.Name)
}

// mirrorSettings are the broker's settings as they are now.
func (b *Broker) mirrorSettings() mirror.Settings {
	n := func(key string) int { return b.live(key)() }
	ms := func(key string) time.Duration { return time.Duration(n(key)) * time.Millisecond }
	return mirror.Settings{
		Fetchers: n("mirror.num.replica.fetchers"), RefreshInterval: ms("mirror.metadata.refresh.interval.ms"),
		RetryInitial: ms("mirror.failed.retry.initial.backoff.ms"), RetryMax: ms("mirror.failed.retry.max.backoff.ms"),
		RetryAttempts: n("mirror.failed.retry.max.attempts"),
	}
}

func (b *Broker) supportsULE(topic string) bool {
	img := b.quorum.Image()
	return configs.Bool(configs.TopicValues(img.Config(meta.ResourceTopic, topic), b.levels(img)), "mirror.support.unclean.leader.election")
}

// compaction says whether a topic is compacted, and its delete.retention.ms.
func (b *Broker) compaction(topic string) (deleteRetention time.Duration, compacted bool) {
	img := b.quorum.Image()
	values := configs.TopicValues(img.Config(meta.ResourceTopic, topic), b.levels(img))
	return time.Duration(configs.Int64(values, "delete.retention.ms")) * time.Millisecond, strings.Contains(values["cleanup.policy"], "compact")
}

// mirrorController is the controller as the mirror sees it.
type mirrorController struct{ b *Broker }

func (c mirrorController) CreateMirror(ctx context.Context, r *mirrormsg.CreateMirrorRequest) (*mirrormsg.CreateMirrorResponse, error) {
	return c.b.control.CreateMirror(ctx, r)
}

func (c mirrorController) DeleteMirror(ctx context.Context, r *mirrormsg.DeleteMirrorRequest) (*mirrormsg.DeleteMirrorResponse, error) {
	return c.b.control.DeleteMirror(ctx, r)
}

func (c mirrorController) StartMirrorTopics(ctx context.Context, r *mirrormsg.StartMirrorTopicsRequest) (*mirrormsg.StartMirrorTopicsResponse, error) {
	return c.b.control.StartMirrorTopics(ctx, r)
}

func (c mirrorController) StopMirrorTopics(ctx context.Context, r *mirrormsg.StopMirrorTopicsRequest) (*mirrormsg.StopMirrorTopicsResponse, error) {
	return c.b.control.StopMirrorTopics(ctx, r)
}

func (c mirrorController) PauseMirrorTopics(ctx context.Context, r *mirrormsg.PauseMirrorTopicsRequest) (*mirrormsg.PauseMirrorTopicsResponse, error) {
	return c.b.control.PauseMirrorTopics(ctx, r)
}

func (c mirrorController) ResumeMirrorTopics(ctx context.Context, r *mirrormsg.ResumeMirrorTopicsRequest) (*mirrormsg.ResumeMirrorTopicsResponse, error) {
	return c.b.control.ResumeMirrorTopics(ctx, r)
}

func (c mirrorController) BumpLeaderEpochs(ctx context.Context, r *mirrormsg.BumpLeaderEpochsRequest) (*mirrormsg.BumpLeaderEpochsResponse, error) {
	return c.b.control.BumpLeaderEpochs(ctx, r)
}

func (c mirrorController) SetSourceClusterID(ctx context.Context, name string, id [16]byte, cluster string) (string, error) {
	return c.b.control.SetSourceClusterID(ctx, name, id, cluster)
}

func (c mirrorController) SyncTopicConfigs(ctx context.Context, name string, id [16]byte, set map[string]string, remove []string) error {
	return c.b.control.SyncTopicConfigs(ctx, name, id, set, remove)
}

func (c mirrorController) GrowTopic(ctx context.Context, topic string, count int32) error {
	return c.b.growTopic(ctx, topic, count)
}

// mirrorGroups are the consumer groups as the mirror sees them.
type mirrorGroups struct{ g *group.Coordinator }

func (m mirrorGroups) ClampOffsets(ctx context.Context, topic string, partition int32, end int64) error {
	_, err := m.g.ClampOffsets(ctx, topic, partition, end)
	return err
}
