package broker

import (
	"context"
	"sync"
	"time"

	"stet/broker/group"
	"stet/broker/meta"
	"stet/internal/clock"
)

// coordinators follow the leadership of the internal topics.
type coordinators struct {
	b      *Broker
	ctx    context.Context
	groups *group.Coordinator
	wg     sync.WaitGroup
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
	b.coords = c
	if t := b.quorum.Image().Topic(group.OffsetsTopic); t != nil {
		c.lead(t)
	}
}

// apply follows a change of the metadata; it must not block.
func (c *coordinators) apply(d *meta.Delta) {
	for _, t := range d.CreatedTopics {
		if t.Name == group.OffsetsTopic {
			c.lead(t)
		}
	}
	for _, ch := range d.ChangedTopics {
		if ch.New.Name == group.OffsetsTopic {
			c.lead(ch.New)
		}
	}
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

// lead loads the partitions that are led here. A shard of the same epoch stays as it is.
func (c *coordinators) lead(t *meta.Topic) {
	for i, s := range t.Partitions {
		if p := c.b.replicas.Load().Get(t.Name, int32(i)); p != nil && s.Leader == c.b.node {
			c.groups.BecomeLeader(int32(i), s.LeaderEpoch, coordLog{p})
		}
	}
}

func (c *coordinators) close() {
	c.groups.Close()
	c.wg.Wait()
}
