package controller

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"

	"stet/broker/meta"
	"stet/broker/mirrormsg"
)

// RegisterBroker writes a broker's registration. A new incarnation (a restart)
// raises the leader epoch of every partition it leads, as Kafka's fencing and
// unfencing does: what a crash may have taken from the log is then told apart by
// epoch. The same registration again changes nothing.
func (c *Controller) RegisterBroker(ctx context.Context, b meta.Broker) error {
	_, err := do(ctx, c, func(img *meta.Image) ([]meta.Record, struct{}) { return registerBroker(img, b), struct{}{} })
	return err
}

func registerBroker(img *meta.Image, b meta.Broker) []meta.Record {
	old := img.Broker(b.ID)
	if old != nil {
		same := *old
		same.Epoch = b.Epoch
		if sameRack(same.Rack, b.Rack) {
			same.Rack = b.Rack
			if same == b {
				return nil
			}
		}
	}
	b.Epoch = -1
	recs := []meta.Record{&meta.RegisterBroker{Broker: b}}
	if old != nil && old.Incarnation == b.Incarnation {
		return recs
	}
	for _, t := range img.Topics() {
		for i, p := range t.Partitions {
			if p.Leader == b.ID && old != nil || p.Leader < 0 && slices.Contains(p.ISR, b.ID) {
				change := meta.NewChangePartition(t.ID, int32(i))
				change.Leader = b.ID
				recs = append(recs, change)
			}
		}
	}
	return recs
}

func sameRack(a, b *string) bool {
	return (a == nil) == (b == nil) && (a == nil || *a == *b)
}

// EnsureClusterID writes the cluster's id if there is none and returns the one that holds.
func (c *Controller) EnsureClusterID(ctx context.Context, id string) (string, error) {
	return do(ctx, c, func(img *meta.Image) ([]meta.Record, string) {
		if holds := img.ClusterID(); holds != "" {
			return nil, holds
		}
		return []meta.Record{&meta.ClusterID{ID: id}}, id
	})
}

// AllocateProducerIDs hands out count producer ids beginning with the returned one.
func (c *Controller) AllocateProducerIDs(ctx context.Context, count int64) (first int64, err error) {
	if count <= 0 {
		return 0, mirrormsg.Errorf(kerr.InvalidRequest, "%d producer ids were asked for; it must be at least one", count)
	}
	return do(ctx, c, func(img *meta.Image) ([]meta.Record, int64) {
		first := img.NextProducerID()
		return []meta.Record{&meta.ProducerIDs{Next: first + count}}, first
	})
}
