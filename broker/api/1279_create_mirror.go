package api

import (
	"context"

	"stet/broker/mirrormsg"
)

// CreateMirror (key 1279), version 0 (SPEC section 9): creates a mirror; its source need not be there.
var createMirror = handler{key: mirrormsg.KeyCreateMirror, serve: func(ctx context.Context, a *API, r *Request) (Reply, error) {
	return a.Mirrors.CreateMirror(ctx, r.Msg.(*mirrormsg.CreateMirrorRequest)), nil
}}
