package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// DeleteGroups (key 42), versions 0-2. Only empty groups: NON_EMPTY_GROUP otherwise.
var deleteGroups = handler{key: 42, min: 0, max: 2, serve: func(ctx context.Context, a *API, r *Request) (Reply, error) {
	return a.Groups.DeleteGroups(ctx, r.Msg.(*kmsg.DeleteGroupsRequest)), nil
}}
