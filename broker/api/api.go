package api

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/broker/controller"
	"stet/broker/log"
	"stet/broker/meta"
	"stet/broker/meta/configs"
	"stet/broker/mirrormsg"
	"stet/broker/replica"
)

// API is what the handlers work with. All fields are set before the first request.
type API struct {
	Node       int32
	Logger     *slog.Logger
	Image      func() *meta.Image
	Logs       *log.Manager
	Replicas   *replica.Manager
	Controller *controller.Controller
	Groups     Groups
	Mirrors    Mirrors
	// ProducerIDs hands out ids for idempotent producers.
	ProducerIDs *ProducerIDs
	// Advertised is the address of a broker for clients of a listener.
	Advertised func(listener string, broker *meta.Broker) (host string, port int32)
	Settings   Settings
	// Levels are the three levels of this broker's configuration.
	Levels func(*meta.Image) configs.BrokerConfigs
	// ControllerID is the broker that leads the metadata quorum, -1 if unknown.
	ControllerID func() int32
	// EnsureInternal creates an internal topic when it is missing; it returns at once when it is there.
	EnsureInternal func(ctx context.Context, topic string) error

	sessions sessionCache
	Counters Counters
}

// Settings are the broker-wide values that handlers need.
type Settings struct {
	AutoCreateTopics bool
	FetchMaxBytes    int32 // fetch.max.bytes
	FetchSessions    int   // max.incremental.fetch.session.cache.slots
}

// Counters are plain totals that the root registers with metrics.
type Counters struct {
	ProduceBytes, ProduceBatches, FetchBytes, FetchRequests, ProduceRequests atomic.Int64
}

// Mirrors answers the mirror requests (SPEC section 9); broker/mirror implements it.
type Mirrors interface {
	CreateMirror(context.Context, *mirrormsg.CreateMirrorRequest) *mirrormsg.CreateMirrorResponse
	StartMirrorTopics(context.Context, *mirrormsg.StartMirrorTopicsRequest) *mirrormsg.StartMirrorTopicsResponse
	StopMirrorTopics(context.Context, *mirrormsg.StopMirrorTopicsRequest) *mirrormsg.StopMirrorTopicsResponse
	PauseMirrorTopics(context.Context, *mirrormsg.PauseMirrorTopicsRequest) *mirrormsg.PauseMirrorTopicsResponse
	ResumeMirrorTopics(context.Context, *mirrormsg.ResumeMirrorTopicsRequest) *mirrormsg.ResumeMirrorTopicsResponse
	DeleteMirror(context.Context, *mirrormsg.DeleteMirrorRequest) *mirrormsg.DeleteMirrorResponse
	ListMirrors(context.Context, *mirrormsg.ListMirrorsRequest) *mirrormsg.ListMirrorsResponse
	DescribeMirrors(context.Context, *mirrormsg.DescribeMirrorsRequest) *mirrormsg.DescribeMirrorsResponse
	BumpLeaderEpochs(context.Context, *mirrormsg.BumpLeaderEpochsRequest) *mirrormsg.BumpLeaderEpochsResponse
	ReadMirrorStates(context.Context, *mirrormsg.ReadMirrorStatesRequest) *mirrormsg.ReadMirrorStatesResponse
	WriteMirrorStates(context.Context, *mirrormsg.WriteMirrorStatesRequest) *mirrormsg.WriteMirrorStatesResponse
}

// Groups answers the requests of consumer groups; broker/group implements it.
type Groups interface {
	JoinGroup(ctx context.Context, req *kmsg.JoinGroupRequest, clientID, clientHost string) *kmsg.JoinGroupResponse
	SyncGroup(context.Context, *kmsg.SyncGroupRequest) *kmsg.SyncGroupResponse
	Heartbeat(context.Context, *kmsg.HeartbeatRequest) *kmsg.HeartbeatResponse
	LeaveGroup(context.Context, *kmsg.LeaveGroupRequest) *kmsg.LeaveGroupResponse
	OffsetCommit(context.Context, *kmsg.OffsetCommitRequest) *kmsg.OffsetCommitResponse
	OffsetFetch(context.Context, *kmsg.OffsetFetchRequest) *kmsg.OffsetFetchResponse
	OffsetDelete(context.Context, *kmsg.OffsetDeleteRequest) *kmsg.OffsetDeleteResponse
	ListGroups(context.Context, *kmsg.ListGroupsRequest) *kmsg.ListGroupsResponse
	DescribeGroups(context.Context, *kmsg.DescribeGroupsRequest) *kmsg.DescribeGroupsResponse
	DeleteGroups(context.Context, *kmsg.DeleteGroupsRequest) *kmsg.DeleteGroupsResponse
}

// Request is one decoded request.
type Request struct {
	Key, Version int16
	ClientID     string
	Host         string // client address without port
	Listener     string
	Msg          kmsg.Request
}

// Reply is a kmsg.Response, a *FetchReply, or nil where the protocol has no
// answer (produce with acks=0).
type Reply any

type serveFunc func(ctx context.Context, a *API, r *Request) (Reply, error)

// handler serves one API key.
type handler struct {
	key int16
	// min and max are served; advertise (if below min) is what ApiVersions says as minimum.
	min, max  int16
	advertise int16
	serve     serveFunc
	// direct, instead of serve, reads the body and writes the answer itself.
	direct func(ctx context.Context, a *API, version int16, correlation int32, body []byte, w Output) error
}

// Close drops the fetch sessions.
func (a *API) Close() { a.sessions.clear() }
