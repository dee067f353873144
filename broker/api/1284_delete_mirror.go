package api

import (
	"context"

	"stet/broker/mirrormsg"
)

// DeleteMirror (key 1284), version 0 (SPEC section 9): allowed with no topics, or all of them STOPPED.
var deleteMirror = handler{key: mirrormsg.KeyDeleteMirror, serve: func(ctx context.Context, a *API, r *Request) (Reply, error) {
	return a.Mirrors.DeleteMirror(ctx, r.Msg.(*mirrormsg.DeleteMirrorRequest)), nil
}}
