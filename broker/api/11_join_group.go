package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// JoinGroup (key 11), versions 0-9. Blocks until the rebalance completes. Below version 4 no member id is demanded first (KIP-394).
var joinGroup = handler{key: 11, min: 0, max: 9, serve: func(ctx context.Context, a *API, r *Request) (Reply, error) {
	return a.Groups.JoinGroup(ctx, r.Msg.(*kmsg.JoinGroupRequest), r.ClientID, "/"+r.Host), nil
}}
