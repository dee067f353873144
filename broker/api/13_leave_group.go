package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// LeaveGroup (key 13), versions 0-5. One member below version 3, several from there on (KIP-345).
var leaveGroup = handler{key: 13, min: 0, max: 5, serve: func(ctx context.Context, a *API, r *Request) (Reply, error) {
	return a.Groups.LeaveGroup(ctx, r.Msg.(*kmsg.LeaveGroupRequest)), nil
}}
