package api

import (
	"context"

	"stet/broker/mirrormsg"
)

// StopMirrorTopics (key 1281), version 0 (SPEC section 9): runs the failover barrier of SPEC section 7; answers when all partitions are STOPPED or FAILED, or after 30 s.
var stopMirrorTopics = handler{key: mirrormsg.KeyStopMirrorTopics, serve: func(ctx context.Context, a *API, r *Request) (Reply, error) {
	return a.Mirrors.StopMirrorTopics(ctx, r.Msg.(*mirrormsg.StopMirrorTopicsRequest)), nil
}}
