package broker

import (
	"context"
	"sync"
	"time"

	"stet/broker/coord"
	"stet/broker/group"
	"stet/broker/meta"
	"stet/broker/mirror/mirrorcoord"
	"stet/broker/mirrormsg"
	"stet/internal/clock"
)

// coordinators follow the leadership of the internal topics. It is the mirror's
// coordinator of states (mirror.Coordinator), which is in this process while
// there is one broker.
type coordinators struct {
	*mirrorcoord.Coordinator
	b      *Broker
	ctx    context.Context
	groups *group.Coordinator
	wg     sync.WaitGroup
}

// leader is a coordinator that can be given partitions.
type leader interface {
	BecomeLeader(partition, epoch int32, log coord.Log)
}

func (b *Broker) startCoordinators(ctx context.Context) {
	ms := func(key string) time.Duration { return time.Duration(b.cfg.int(key)) * time.Millisecond }
	c := &coordinators{b: b, ctx: ctx, groups: group.New(group.Options{
		Image: b.quorum.Image, Clock: clock.System, Logger: b.logger,
		Config: group.Config{
			OffsetsRetention:  time.Duration(b.cfg.int("offsets.retention.minutes")) * time.Minute,
			RetentionCheck:    ms("offsets.retention.check.interval.ms"),
			OffsetMetadataMax: int(b.cfg.int("offset.metadata.max.bytes")), CommitTimeout: ms("offsets.commit.timeout.ms"),
			InitialRebalanceDelay: ms("group.initial.rebalance.delay.ms"), MinSessionTimeout: ms("group.min.session.timeout.ms"),
			MaxSessionTimeout: ms("group.max.session.timeout.ms"), MaxSize: int(b.cfg.int("group.max.size")),
		},
	})}
	live := func(key string) func() time.Duration {
		n := b.live(key)
		return func() time.Duration { return time.Duration(n()) * time.Millisecond }
	}
	c.Coordinator = mirrorcoord.New(mirrorcoord.Options{
		Image: b.quorum.Image, Clock: clock.System, Logger: b.logger,
		Linger: live("mirror.coordinator.append.linger.ms"), WriteTimeout: live("mirror.coordinator.write.timeout.ms"),
	})
	b.coords = c
	for _, t := range b.quorum.Image().Topics() {
		c.lead(t)
	}
}

// EnsureTopic creates __mirror_state when it is missing; the error says what it waits for.
func (c *coordinators) EnsureTopic(ctx context.Context) error {
	return c.b.ensureInternal(ctx, mirrormsg.MirrorStateTopic)
}

// apply follows a change of the metadata; it must not block.
func (c *coordinators) apply(d *meta.Delta) {
	for _, t := range d.CreatedTopics {
		c.lead(t)
	}
	for _, ch := range d.ChangedTopics {
		c.lead(ch.New)
	}
	c.Apply(d)
	for _, t := range d.DeletedTopics {
		if t.Internal() {
			continue
		}
		c.wg.Add(1)
		go func() {
			defer c.wg.Done()
			if err := c.groups.ForgetTopic(c.ctx, t.Name, t.ID); err != nil && c.ctx.Err() == nil {
				c.b.logger.Warn("committed offsets of a deleted topic could not be removed", "topic", t.Name, "err", err)
			}
		}()
	}
}

// lead loads the partitions of an internal topic that are led here. A shard of the
// same epoch stays as it is.
func (c *coordinators) lead(t *meta.Topic) {
	var l leader
	switch t.Name {
	case group.OffsetsTopic:
		l = c.groups
	case mirrormsg.MirrorStateTopic:
		l = c.Coordinator
	default:
		return
	}
	for i, s := range t.Partitions {
		if p := c.b.replicas.Load().Get(t.Name, int32(i)); p != nil && s.Leader == c.b.node {
			l.BecomeLeader(int32(i), s.LeaderEpoch, coordLog{p})
		}
	}
}

func (c *coordinators) close() {
	c.groups.Close()
	c.Coordinator.Close()
	c.wg.Wait()
}
