package api

import (
	"context"

	"stet/broker/mirrormsg"
)

// StartMirrorTopics (key 1280), version 0 (SPEC section 9): names, ids and patterns are resolved at the source.
var startMirrorTopics = handler{key: mirrormsg.KeyStartMirrorTopics, serve: func(ctx context.Context, a *API, r *Request) (Reply, error) {
	return a.Mirrors.StartMirrorTopics(ctx, r.Msg.(*mirrormsg.StartMirrorTopicsRequest)), nil
}}
