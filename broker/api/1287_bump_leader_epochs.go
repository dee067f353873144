package api

import (
	"context"

	"stet/broker/mirrormsg"
)

// BumpLeaderEpochs (key 1287), version 0 (SPEC section 9): between brokers: raises leader epochs, records the end of a stop barrier.
var bumpLeaderEpochs = handler{key: mirrormsg.KeyBumpLeaderEpochs, serve: func(ctx context.Context, a *API, r *Request) (Reply, error) {
	return a.Mirrors.BumpLeaderEpochs(ctx, r.Msg.(*mirrormsg.BumpLeaderEpochsRequest)), nil
}}
