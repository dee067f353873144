package api

import (
	"context"
	"sync"
)

// blockSize is how many producer ids are taken from the metadata log at once, as in Kafka.
const blockSize = 1000

// ProducerIDs hands out producer ids from blocks that the controller allocates.
// An id is used at most once, also over restarts: the rest of a block is lost.
type ProducerIDs struct {
	// Allocate reserves count ids and returns the first.
	Allocate func(ctx context.Context, count int64) (int64, error)

	mu        sync.Mutex
	next, end int64
}

// Next returns an unused id.
func (p *ProducerIDs) Next(ctx context.Context) (int64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == p.end {
		first, err := p.Allocate(ctx, blockSize)
		if err != nil {
			return -1, err
		}
		p.next, p.end = first, first+blockSize
	}
	p.next++
	return p.next - 1, nil
}
