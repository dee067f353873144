package api

import (
	"context"

	"stet/broker/mirrormsg"
)

// WriteMirrorStates (key 1289), version 0 (SPEC section 9): between brokers: fenced writes of the durable state.
var writeMirrorStates = handler{key: mirrormsg.KeyWriteMirrorStates, serve: func(ctx context.Context, a *API, r *Request) (Reply, error) {
	return a.Mirrors.WriteMirrorStates(ctx, r.Msg.(*mirrormsg.WriteMirrorStatesRequest)), nil
}}
