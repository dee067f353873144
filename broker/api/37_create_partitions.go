package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/broker/controller"
)

// CreatePartitions (key 37), versions 0-3.
//
// A mirror topic that is not stopped is refused with POLICY_VIOLATION: its
// partitions follow the source's (SPEC section 6).
var createPartitions = handler{key: 37, min: 0, max: 3, serve: serveCreatePartitions}

func serveCreatePartitions(ctx context.Context, a *API, r *Request) (Reply, error) {
	req := r.Msg.(*kmsg.CreatePartitionsRequest)
	resp, err := a.Controller.CreatePartitions(ctx, req, controller.CreateOpts{})
	if err != nil {
		resp = kmsg.NewPtrCreatePartitionsResponse()
		for i := range req.Topics {
			t := kmsg.NewCreatePartitionsResponseTopic()
			t.Topic, t.ErrorCode, t.ErrorMessage = req.Topics[i].Topic, controllerCode(err), message(err)
			resp.Topics = append(resp.Topics, t)
		}
	}
	return resp, nil
}
