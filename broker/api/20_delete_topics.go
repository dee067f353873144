package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// DeleteTopics (key 20), versions 1-6.
//
// By name, or by id from version 6. A mirror topic that is not stopped is
// refused with POLICY_VIOLATION (SPEC section 6).
var deleteTopics = handler{key: 20, min: 1, max: 6, serve: serveDeleteTopics}

func serveDeleteTopics(ctx context.Context, a *API, r *Request) (Reply, error) {
	req := r.Msg.(*kmsg.DeleteTopicsRequest)
	resp, err := a.Controller.DeleteTopics(ctx, req)
	if err != nil {
		resp = kmsg.NewPtrDeleteTopicsResponse()
		for i := range req.Topics {
			t := kmsg.NewDeleteTopicsResponseTopic()
			t.Topic, t.TopicID = req.Topics[i].Topic, req.Topics[i].TopicID
			t.ErrorCode, t.ErrorMessage = controllerCode(err), message(err)
			resp.Topics = append(resp.Topics, t)
		}
		for i := range req.TopicNames {
			t := kmsg.NewDeleteTopicsResponseTopic()
			t.Topic, t.ErrorCode, t.ErrorMessage = &req.TopicNames[i], controllerCode(err), message(err)
			resp.Topics = append(resp.Topics, t)
		}
	}
	return resp, nil
}
