package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// SyncGroup (key 14), versions 0-5. Blocks until the leader's assignment is there.
var syncGroup = handler{key: 14, min: 0, max: 5, serve: func(ctx context.Context, a *API, r *Request) (Reply, error) {
	return a.Groups.SyncGroup(ctx, r.Msg.(*kmsg.SyncGroupRequest)), nil
}}
