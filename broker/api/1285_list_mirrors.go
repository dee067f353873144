package api

import (
	"context"

	"stet/broker/mirrormsg"
)

// ListMirrors (key 1285), version 0 (SPEC section 9): all mirrors with their source and count of topics.
var listMirrors = handler{key: mirrormsg.KeyListMirrors, serve: func(ctx context.Context, a *API, r *Request) (Reply, error) {
	return a.Mirrors.ListMirrors(ctx, r.Msg.(*mirrormsg.ListMirrorsRequest)), nil
}}
