package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/broker/controller"
)

// CreateTopics (key 19), versions 2-7.
//
// A topic may carry the private tagged field 1279 MirrorInfo with a topic id to
// use (SPEC section 9). Internal topics cannot be created by clients.
var createTopics = handler{key: 19, min: 2, max: 7, serve: serveCreateTopics}

func serveCreateTopics(ctx context.Context, a *API, r *Request) (Reply, error) {
	req := r.Msg.(*kmsg.CreateTopicsRequest)
	var resp *kmsg.CreateTopicsResponse
	err := a.Logs.CanCreate()
	if err == nil {
		resp, err = a.Controller.CreateTopics(ctx, req, controller.CreateOpts{})
	}
	if err != nil {
		resp = kmsg.NewPtrCreateTopicsResponse()
		for i := range req.Topics {
			t := kmsg.NewCreateTopicsResponseTopic()
			t.Topic, t.ErrorCode, t.ErrorMessage = req.Topics[i].Topic, controllerCode(err), message(err)
			resp.Topics = append(resp.Topics, t)
		}
	}
	return resp, nil
}

// controllerCode is what a client is told when the controller could not act: it
// retries, as it does when a controller moves.
func controllerCode(err error) int16 {
	if c := code(err); c != kerr.UnknownServerError.Code {
		return c
	}
	return kerr.NotController.Code
}
