package broker

import (
	"context"

	"stet/broker/api"
	"stet/broker/meta"
)

type coordinators struct{ groups api.Groups }

func (b *Broker) startCoordinators(ctx context.Context) error { b.coords = &coordinators{}; return nil }
func (c *coordinators) apply(*meta.Delta)                     {}
func (c *coordinators) close()                                {}
