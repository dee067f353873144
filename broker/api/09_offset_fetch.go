package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// OffsetFetch (key 9), versions 1-10. One group per request below version 8, several from there on; topic ids from version 10.
var offsetFetch = handler{key: 9, min: 1, max: 10, serve: func(ctx context.Context, a *API, r *Request) (Reply, error) {
	return a.Groups.OffsetFetch(ctx, r.Msg.(*kmsg.OffsetFetchRequest)), nil
}}
