package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/broker/meta"
	"stet/broker/mirrormsg"
	"stet/broker/replica"
)

// FindCoordinator (key 10), versions 0-6.
//
// Key types: 0 group (partition of __consumer_offsets) and 3 mirror (partition
// of __mirror_state, for the two strings of SPEC section 2). The internal topic
// of groups is created when it is first asked for. Transactions (1) and share
// groups (2) are not served: INVALID_REQUEST.
var findCoordinator = handler{key: 10, min: 0, max: 6, serve: serveFindCoordinator}

const (
	coordinatorGroup       = 0
	coordinatorTransaction = 1
	coordinatorMirror      = mirrormsg.CoordinatorTypeMirror
	offsetsTopic           = "__consumer_offsets"
	mirrorStateTopic       = "__mirror_state"
)

func serveFindCoordinator(ctx context.Context, a *API, r *Request) (Reply, error) {
	req := r.Msg.(*kmsg.FindCoordinatorRequest)
	resp := kmsg.NewPtrFindCoordinatorResponse()
	keys := req.CoordinatorKeys
	if r.Version < 4 {
		keys = []string{req.CoordinatorKey}
	}
	for _, key := range keys {
		b, err := a.coordinator(ctx, req.CoordinatorType, key)
		c := kmsg.NewFindCoordinatorResponseCoordinator()
		c.Key, c.NodeID, c.Port = key, -1, -1
		c.ErrorCode, c.ErrorMessage = code(err), message(err)
		if err == nil {
			c.NodeID = b.ID
			c.Host, c.Port = a.Advertised(r.Listener, b)
		}
		resp.Coordinators = append(resp.Coordinators, c)
	}
	if r.Version < 4 {
		c := &resp.Coordinators[0]
		resp.ErrorCode, resp.ErrorMessage = c.ErrorCode, c.ErrorMessage
		resp.NodeID, resp.Host, resp.Port = c.NodeID, c.Host, c.Port
		resp.Coordinators = nil
	}
	return resp, nil
}

func (a *API) coordinator(ctx context.Context, typ int8, key string) (*meta.Broker, error) {
	var topic string
	switch typ {
	case coordinatorGroup:
		topic = offsetsTopic
		if err := a.EnsureInternal(ctx, topic); err != nil {
			return nil, replica.Refuse(kerr.CoordinatorNotAvailable, "%s: %v", topic, err)
		}
	case coordinatorMirror:
		topic = mirrorStateTopic
		if _, _, _, _, err := mirrormsg.ParseCoordinatorKey(key); err != nil {
			return nil, replica.Refuse(kerr.InvalidRequest, "%v", err)
		}
	case coordinatorTransaction:
		return nil, replica.Refuse(kerr.InvalidRequest, "transactions of local producers are not built yet")
	default:
		return nil, replica.Refuse(kerr.InvalidRequest, "coordinators of key type %d are not served", typ)
	}
	img := a.Image()
	t := img.Topic(topic)
	if t == nil {
		return nil, replica.Refuse(kerr.CoordinatorNotAvailable, "%s does not exist yet", topic)
	}
	p := t.Partitions[mirrormsg.PartitionFor(key, int32(len(t.Partitions)))]
	if b := img.Broker(p.Leader); b != nil && !b.Fenced {
		return b, nil
	}
	return nil, replica.Refuse(kerr.CoordinatorNotAvailable, "%s has no leader for %q", topic, key)
}
