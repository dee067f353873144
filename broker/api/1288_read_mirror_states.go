package api

import (
	"context"

	"stet/broker/mirrormsg"
)

// ReadMirrorStates (key 1288), version 0 (SPEC section 9): between brokers: the durable state of partitions.
var readMirrorStates = handler{key: mirrormsg.KeyReadMirrorStates, serve: func(ctx context.Context, a *API, r *Request) (Reply, error) {
	return a.Mirrors.ReadMirrorStates(ctx, r.Msg.(*mirrormsg.ReadMirrorStatesRequest)), nil
}}
