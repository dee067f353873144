package api

import (
	"context"

	"stet/broker/mirrormsg"
)

// DescribeMirrors (key 1286), version 0 (SPEC section 9): state, offsets and lag per partition; with ClusterId the LMEs kept for that cluster's mirrors.
var describeMirrors = handler{key: mirrormsg.KeyDescribeMirrors, serve: func(ctx context.Context, a *API, r *Request) (Reply, error) {
	return a.Mirrors.DescribeMirrors(ctx, r.Msg.(*mirrormsg.DescribeMirrorsRequest)), nil
}}
