package group

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/broker/coord"
	"stet/broker/meta"
	"stet/broker/mirrormsg"
	"stet/internal/clock"
	"stet/zerocopy/batch"
)

// OffsetsTopic is the internal topic of the group coordinator.
const OffsetsTopic = "__consumer_offsets"

// Config are the broker settings that concern groups.
type Config struct {
	OffsetsRetention      time.Duration // offsets.retention.minutes
	RetentionCheck        time.Duration // offsets.retention.check.interval.ms
	OffsetMetadataMax     int           // offset.metadata.max.bytes
	CommitTimeout         time.Duration // offsets.commit.timeout.ms
	InitialRebalanceDelay time.Duration // group.initial.rebalance.delay.ms
	MinSessionTimeout     time.Duration // group.min.session.timeout.ms
	MaxSessionTimeout     time.Duration // group.max.session.timeout.ms
	MaxSize               int           // group.max.size
}

// DefaultConfig has Kafka's defaults.
func DefaultConfig() Config {
	return Config{
		OffsetsRetention: 7 * 24 * time.Hour, RetentionCheck: 10 * time.Minute, OffsetMetadataMax: 4096, CommitTimeout: 5 * time.Second,
		InitialRebalanceDelay: 3 * time.Second, MinSessionTimeout: 6 * time.Second, MaxSessionTimeout: 30 * time.Minute, MaxSize: 1<<31 - 1,
	}
}

// Options of New.
type Options struct {
	Config Config
	// Image is the current metadata: topics, ids, mirrors.
	Image  func() *meta.Image
	Clock  clock.Clock
	Logger *slog.Logger
}

// Coordinator answers the group requests for the partitions of
// __consumer_offsets that are led here. It is safe for concurrent use.
type Coordinator struct {
	o      Options
	rt     *coord.Runtime[*machine]
	clamps clamps
}

// New makes a coordinator that leads nothing yet.
func New(o Options) *Coordinator {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Coordinator{o: o}
	c.rt = coord.New(coord.Options[*machine]{
		Topic: OffsetsTopic, NewMachine: func(p int32) *machine { return newMachine(c, p) }, Clock: o.Clock, Logger: o.Logger,
		WriteTimeout: func() time.Duration { return o.Config.CommitTimeout },
	})
	return c
}

// BecomeLeader loads a partition of __consumer_offsets that is led here from now on.
func (c *Coordinator) BecomeLeader(partition, epoch int32, log coord.Log) {
	c.rt.BecomeLeader(partition, epoch, log)
}

// Resign gives a partition up.
func (c *Coordinator) Resign(partition int32) { c.rt.Resign(partition) }

// Close gives all partitions up, and waits for what ClampOffsets has started.
func (c *Coordinator) Close() {
	c.rt.Close()
	c.clamps.close()
}

// PartitionFor is the partition of __consumer_offsets that coordinates a group;
// ok is false while the topic does not exist.
func (c *Coordinator) PartitionFor(group string) (partition int32, ok bool) {
	t := c.o.Image().Topic(OffsetsTopic)
	if t == nil || len(t.Partitions) == 0 {
		return 0, false
	}
	return mirrormsg.PartitionFor(group, int32(len(t.Partitions))), true
}

// do runs an operation on a group's shard.
func (c *Coordinator) do(ctx context.Context, group string, op func(m *machine) error) error {
	p, ok := c.PartitionFor(group)
	if !ok {
		return kerr.CoordinatorNotAvailable
	}
	return c.rt.Do(ctx, p, func(m *machine, _ *coord.Shard) ([]batch.KV, error) {
		err := op(m)
		return m.take(), err
	})
}

// park runs an operation whose answer may come later.
func park[T any](ctx context.Context, c *Coordinator, group string, op func(m *machine) (*coord.Parked[T], error)) (T, error) {
	var zero T
	p, ok := c.PartitionFor(group)
	if !ok {
		return zero, kerr.CoordinatorNotAvailable
	}
	return coord.DoParked(ctx, c.rt, p, func(m *machine, _ *coord.Shard) (*coord.Parked[T], []batch.KV, error) {
		parked, err := op(m)
		return parked, m.take(), err
	})
}

// code is the error code that a client of the group protocol expects.
func code(err error) int16 {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, kerr.NotCoordinator):
		return kerr.NotCoordinator.Code
	case errors.Is(err, kerr.RequestTimedOut):
		return kerr.CoordinatorNotAvailable.Code
	case errors.Is(err, coord.ErrTooLarge):
		return kerr.InvalidCommitOffsetSize.Code
	}
	return mirrormsg.CodeForError(err)
}

// JoinGroup may block until the rebalance completes or ctx is done. clientHost is
// the peer's address, in Kafka's text with a leading "/".
func (c *Coordinator) JoinGroup(ctx context.Context, req *kmsg.JoinGroupRequest, clientID, clientHost string) *kmsg.JoinGroupResponse {
	fail := func(err error) *kmsg.JoinGroupResponse {
		resp := req.ResponseKind().(*kmsg.JoinGroupResponse)
		resp.ErrorCode, resp.Generation, resp.MemberID = code(err), -1, req.MemberID
		if req.Version < 7 {
			resp.Protocol = kmsg.StringPtr("")
		}
		return resp
	}
	session := time.Duration(req.SessionTimeoutMillis) * time.Millisecond
	switch {
	case req.Group == "":
		return fail(kerr.InvalidGroupID)
	case session < c.o.Config.MinSessionTimeout || session > c.o.Config.MaxSessionTimeout:
		return fail(kerr.InvalidSessionTimeout)
	}
	resp, err := park(ctx, c, req.Group, func(m *machine) (*coord.Parked[*kmsg.JoinGroupResponse], error) {
		return m.join(req, clientID, clientHost)
	})
	if err != nil {
		return fail(err)
	}
	resp.Version = req.Version
	return resp
}

// SyncGroup may block until the leader has sent the assignment or ctx is done.
func (c *Coordinator) SyncGroup(ctx context.Context, req *kmsg.SyncGroupRequest) *kmsg.SyncGroupResponse {
	resp := req.ResponseKind().(*kmsg.SyncGroupResponse)
	if req.Group == "" {
		resp.ErrorCode = kerr.InvalidGroupID.Code
		return resp
	}
	res, err := park(ctx, c, req.Group, func(m *machine) (*coord.Parked[syncResult], error) { return m.sync(req) })
	if err != nil {
		resp.ErrorCode = code(err)
		return resp
	}
	resp.MemberAssignment = res.assignment
	resp.ProtocolType, resp.Protocol = kmsg.StringPtr(res.protocolType), kmsg.StringPtr(res.protocol)
	return resp
}

// Heartbeat keeps a member alive and tells it about rebalances.
func (c *Coordinator) Heartbeat(ctx context.Context, req *kmsg.HeartbeatRequest) *kmsg.HeartbeatResponse {
	resp := req.ResponseKind().(*kmsg.HeartbeatResponse)
	if req.Group == "" {
		resp.ErrorCode = kerr.InvalidGroupID.Code
		return resp
	}
	resp.ErrorCode = code(c.do(ctx, req.Group, func(m *machine) error { return m.heartbeat(req) }))
	return resp
}

// LeaveGroup removes members.
func (c *Coordinator) LeaveGroup(ctx context.Context, req *kmsg.LeaveGroupRequest) *kmsg.LeaveGroupResponse {
	resp := req.ResponseKind().(*kmsg.LeaveGroupResponse)
	if req.Group == "" {
		resp.ErrorCode = kerr.InvalidGroupID.Code
		return resp
	}
	members := req.Members
	if req.Version < 3 {
		members = []kmsg.LeaveGroupRequestMember{{MemberID: req.MemberID}}
	}
	err := c.do(ctx, req.Group, func(m *machine) (err error) {
		resp.Members, err = m.leave(req.Group, members)
		return err
	})
	resp.ErrorCode = code(err)
	if err == nil && req.Version < 3 {
		resp.ErrorCode, resp.Members = resp.Members[0].ErrorCode, nil
	}
	return resp
}
