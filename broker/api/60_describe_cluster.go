package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeCluster (key 60), versions 0-2.
//
// Endpoint type 1 (brokers) only; controllers have no listener of their own:
// MISMATCHED_ENDPOINT_TYPE. Fenced brokers are listed from version 2 when asked for.
var describeCluster = handler{key: 60, min: 0, max: 2, serve: serveDescribeCluster}

func serveDescribeCluster(_ context.Context, a *API, r *Request) (Reply, error) {
	req := r.Msg.(*kmsg.DescribeClusterRequest)
	resp := kmsg.NewPtrDescribeClusterResponse()
	resp.ClusterAuthorizedOperations = opsUnknown
	if r.Version >= 1 && req.EndpointType != 1 {
		resp.ErrorCode = kerr.MismatchedEndpointType.Code
		msg := "this listener describes brokers (endpoint type 1)"
		resp.ErrorMessage = &msg
		return resp, nil
	}
	img := a.Image()
	resp.EndpointType = 1
	resp.ClusterID, resp.ControllerID = img.ClusterID(), a.ControllerID()
	for _, b := range img.Brokers() {
		if b.Fenced && (r.Version < 2 || !req.IncludeFencedBrokers) {
			continue
		}
		rb := kmsg.NewDescribeClusterResponseBroker()
		rb.NodeID, rb.Rack, rb.IsFenced = b.ID, b.Rack, b.Fenced
		rb.Host, rb.Port = a.Advertised(r.Listener, b)
		resp.Brokers = append(resp.Brokers, rb)
	}
	return resp, nil
}
