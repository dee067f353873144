package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// IncrementalAlterConfigs (key 44), versions 0-1.
//
// Topics, brokers (id, or empty for the cluster-wide default) and mirrors
// (resource type 64). mirror.name and mirror.start are the controller's own:
// INVALID_CONFIG (SPEC section 6).
var incrementalAlterConfigs = handler{key: 44, min: 0, max: 1, serve: serveIncrementalAlterConfigs}

func serveIncrementalAlterConfigs(ctx context.Context, a *API, r *Request) (Reply, error) {
	req := r.Msg.(*kmsg.IncrementalAlterConfigsRequest)
	resp, err := a.Controller.IncrementalAlterConfigs(ctx, req)
	if err != nil {
		resp = kmsg.NewPtrIncrementalAlterConfigsResponse()
		for i := range req.Resources {
			e := kmsg.NewIncrementalAlterConfigsResponseResource()
			e.ResourceType, e.ResourceName = req.Resources[i].ResourceType, req.Resources[i].ResourceName
			e.ErrorCode, e.ErrorMessage = controllerCode(err), message(err)
			resp.Resources = append(resp.Resources, e)
		}
	}
	return resp, nil
}
