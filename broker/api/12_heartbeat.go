package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Heartbeat (key 12), versions 0-4. Keeps a member alive; REBALANCE_IN_PROGRESS tells it to join again.
var heartbeat = handler{key: 12, min: 0, max: 4, serve: func(ctx context.Context, a *API, r *Request) (Reply, error) {
	return a.Groups.Heartbeat(ctx, r.Msg.(*kmsg.HeartbeatRequest)), nil
}}
