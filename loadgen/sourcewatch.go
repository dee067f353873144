package loadgen

import (
	"context"
	"fmt"
	"sync"
	"time"
)

const (
	// sourceInterval is how often a scenario that does not load the source looks whether it is there.
	sourceInterval = 500 * time.Millisecond
	// sourcePatience is how long the source may take to answer.
	sourcePatience = 10 * time.Second
)

// watchSource gives a context that ends, with the reason, when a leader of the topics at the source is lost.
func (f *failover) watchSource(ctx context.Context) (watched context.Context, stop func(), err error) {
	seen := map[string]bool{}
	for _, topic := range f.topics {
		l, err := f.src.layout(ctx, topic)
		if err != nil {
			return nil, nil, err
		}
		for _, addr := range l.leaders {
			if !seen[addr] && addr != "" {
				seen[addr] = true
				f.leaders = append(f.leaders, addr)
			}
		}
	}
	watched, cancel := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(sourceInterval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if err := f.sourceListens(); err != nil {
					cancel(err)
					return
				}
			case <-watched.Done():
				return
			}
		}
	})
	return watched, func() { cancel(nil); wg.Wait() }, nil
}

// sourceListens says which leader at the source takes no connection.
func (f *failover) sourceListens() error {
	for _, addr := range f.leaders {
		c, err := dial(addr)
		if err != nil {
			return fmt.Errorf("the source was lost: its leader %s: %w", addr, err)
		}
		c.close()
	}
	return nil
}

// sourceAnswers says why the source does not tell the ends of the topics.
func (f *failover) sourceAnswers(ctx context.Context) error {
	if err := f.sourceListens(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, sourcePatience)
	defer cancel()
	for _, topic := range f.topics {
		if _, err := f.src.ends(ctx, topic, false); err != nil {
			return fmt.Errorf("the source was lost: %w", err)
		}
	}
	return nil
}
