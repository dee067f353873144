package api

import (
	"context"

	"stet/broker/mirrormsg"
)

// PauseMirrorTopics (key 1282), version 0 (SPEC section 9): ends fetching, keeps the topics read-only.
var pauseMirrorTopics = handler{key: mirrormsg.KeyPauseMirrorTopics, serve: func(ctx context.Context, a *API, r *Request) (Reply, error) {
	return a.Mirrors.PauseMirrorTopics(ctx, r.Msg.(*mirrormsg.PauseMirrorTopicsRequest)), nil
}}
