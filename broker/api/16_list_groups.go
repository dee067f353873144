package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ListGroups (key 16), versions 0-5. Filters by state (version 4) and by type (version 5).
var listGroups = handler{key: 16, min: 0, max: 5, serve: func(ctx context.Context, a *API, r *Request) (Reply, error) {
	return a.Groups.ListGroups(ctx, r.Msg.(*kmsg.ListGroupsRequest)), nil
}}
