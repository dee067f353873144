package source

import (
	"context"
	"sync"
)

// batchers joins questions to the same broker that come while another request to it is out: a thousand
// partitions that prepare at once cost a few requests, whatever the round trip time.
type batchers[Q, A any] struct {
	ctx context.Context
	ask func(ctx context.Context, broker int32, qs []Q) ([]A, error)

	mu      sync.Mutex
	pending map[int32][]waiting[Q, A]
	flying  map[int32]bool
}

type waiting[Q, A any] struct {
	q      Q
	answer chan result[A]
}

type result[A any] struct {
	a   A
	err error
}

func (b *batchers[Q, A]) do(ctx context.Context, broker int32, q Q) (A, error) {
	w := waiting[Q, A]{q, make(chan result[A], 1)}
	b.mu.Lock()
	if b.pending == nil {
		b.pending, b.flying = map[int32][]waiting[Q, A]{}, map[int32]bool{}
	}
	b.pending[broker] = append(b.pending[broker], w)
	if !b.flying[broker] {
		b.flying[broker] = true
		go b.fly(broker)
	}
	b.mu.Unlock()
	select {
	case r := <-w.answer:
		return r.a, r.err
	case <-ctx.Done():
		var none A
		return none, ctx.Err()
	}
}

// fly asks until nothing is pending for the broker.
func (b *batchers[Q, A]) fly(broker int32) {
	for {
		b.mu.Lock()
		ws := b.pending[broker]
		delete(b.pending, broker)
		if len(ws) == 0 {
			delete(b.flying, broker)
			b.mu.Unlock()
			return
		}
		b.mu.Unlock()
		qs := make([]Q, len(ws))
		for i, w := range ws {
			qs[i] = w.q
		}
		as, err := b.ask(b.ctx, broker, qs)
		for i, w := range ws {
			r := result[A]{err: err}
			if err == nil {
				r.a = as[i]
			}
			w.answer <- r
		}
	}
}
