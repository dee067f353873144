package api

import (
	"context"

	"stet/broker/mirrormsg"
)

// ResumeMirrorTopics (key 1283), version 0 (SPEC section 9): goes on after a pause.
var resumeMirrorTopics = handler{key: mirrormsg.KeyResumeMirrorTopics, serve: func(ctx context.Context, a *API, r *Request) (Reply, error) {
	return a.Mirrors.ResumeMirrorTopics(ctx, r.Msg.(*mirrormsg.ResumeMirrorTopicsRequest)), nil
}}
