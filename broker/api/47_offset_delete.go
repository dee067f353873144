package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// OffsetDelete (key 47), version 0. Refused for topics that members of the group subscribe to.
var offsetDelete = handler{key: 47, min: 0, max: 0, serve: func(ctx context.Context, a *API, r *Request) (Reply, error) {
	return a.Groups.OffsetDelete(ctx, r.Msg.(*kmsg.OffsetDeleteRequest)), nil
}}
