package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeGroups (key 15), versions 0-6. An unknown group is Dead; from version 6 it is GROUP_ID_NOT_FOUND.
var describeGroups = handler{key: 15, min: 0, max: 6, serve: func(ctx context.Context, a *API, r *Request) (Reply, error) {
	return a.Groups.DescribeGroups(ctx, r.Msg.(*kmsg.DescribeGroupsRequest)), nil
}}
