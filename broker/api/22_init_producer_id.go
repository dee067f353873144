package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// InitProducerId (key 22), versions 0-5.
//
// Idempotent producers get a new id with epoch 0, also when they bring one to
// recover from (KIP-360), as Kafka does without a transactional id. A
// transactional id is refused with INVALID_REQUEST: transactions are not served.
// Where the metadata cannot be written there is no new block of ids: producers are
// told COORDINATOR_LOAD_IN_PROGRESS, which they retry, as Kafka does without one.
var initProducerID = handler{key: 22, min: 0, max: 5, serve: serveInitProducerID}

func serveInitProducerID(ctx context.Context, a *API, r *Request) (Reply, error) {
	req := r.Msg.(*kmsg.InitProducerIDRequest)
	resp := kmsg.NewPtrInitProducerIDResponse()
	resp.ProducerID, resp.ProducerEpoch = -1, -1
	if req.TransactionalID != nil {
		resp.ErrorCode = kerr.InvalidRequest.Code
		return resp, nil
	}
	id, err := a.ProducerIDs.Next(ctx)
	if err != nil {
		a.Logger.Debug("no producer ids", "err", err)
		resp.ErrorCode = kerr.CoordinatorLoadInProgress.Code
		return resp, nil
	}
	resp.ProducerID, resp.ProducerEpoch = id, 0
	return resp, nil
}
