package broker

import (
	"context"

	"stet/broker/log"
	"stet/broker/replica"
	"stet/zerocopy/batch"
)

// coordLog lets a coordinator's shard use a partition (coord.Log).
type coordLog struct{ p *replica.Partition }

func (c coordLog) LogStartOffset() int64 { return c.p.Log().LogStartOffset() }
func (c coordLog) LogEndOffset() int64   { return c.p.Log().LogEndOffset() }

func (c coordLog) Read(offset int64, maxBytes int) ([]byte, error) {
	return readBatches(c.p, offset, maxBytes)
}

func (c coordLog) AppendBatch(b []byte) (int64, error) {
	res, err := c.p.AppendAsLeader(b, log.OriginCoordinator)
	if err != nil {
		return 0, err
	}
	return res.LastOffset + 1, nil
}

func (c coordLog) WaitCommitted(ctx context.Context, end int64) error {
	return c.p.WaitCommitted(ctx, end)
}

func (c coordLog) Sync() error { return c.p.Log().Sync() }

// readBatches returns whole batches from the one that holds offset on, none at the log end.
func readBatches(p *replica.Partition, offset int64, maxBytes int) ([]byte, error) {
	end := p.Log().LogEndOffset()
	if offset >= end {
		return nil, nil
	}
	s, err := p.Log().Read(offset, maxBytes, end, true)
	if err != nil {
		return nil, err
	}
	defer s.Release()
	buf := make([]byte, s.Len())
	if _, err := s.ReadAt(buf, 0); err != nil {
		return nil, err
	}
	return wholeBatches(buf), nil
}

// wholeBatches cuts an incomplete batch off the end.
func wholeBatches(b []byte) []byte {
	n := 0
	for rest := b; len(rest) > 0; {
		first, next, err := batch.Next(rest)
		if err != nil {
			break
		}
		n += len(first)
		rest = next
	}
	return b[:n]
}
