package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// OffsetCommit (key 8), versions 2-10. Group members and simple consumers (generation -1); topic ids from version 10.
var offsetCommit = handler{key: 8, min: 2, max: 10, serve: func(ctx context.Context, a *API, r *Request) (Reply, error) {
	return a.Groups.OffsetCommit(ctx, r.Msg.(*kmsg.OffsetCommitRequest)), nil
}}
