package mirror

import (
	"context"
	"sync"

	"stet/fetcher/source"
)

// describer joins questions about topics that come while another is out, as a thousand topics that start at once do.
type describer struct {
	ctx context.Context
	ask func(ctx context.Context, names []string) ([]source.Topic, error)

	mu      sync.Mutex
	pending map[string][]chan description
	flying  bool
}

type description struct {
	topic source.Topic
	err   error
}

// describeAtOnce is how many topics are asked for in one request.
const describeAtOnce = 500

func (b *describer) do(ctx context.Context, name string) (source.Topic, error) {
	c := make(chan description, 1)
	b.mu.Lock()
	if b.pending == nil {
		b.pending = map[string][]chan description{}
	}
	b.pending[name] = append(b.pending[name], c)
	if !b.flying {
		b.flying = true
		go b.fly()
	}
	b.mu.Unlock()
	select {
	case d := <-c:
		return d.topic, d.err
	case <-ctx.Done():
		return source.Topic{}, ctx.Err()
	}
}

func (b *describer) fly() {
	for {
		b.mu.Lock()
		var names []string
		who := map[string][]chan description{}
		for name, cs := range b.pending {
			if len(names) == describeAtOnce {
				break
			}
			names = append(names, name)
			who[name] = cs
			delete(b.pending, name)
		}
		if len(names) == 0 {
			b.flying = false
			b.mu.Unlock()
			return
		}
		b.mu.Unlock()
		topics, err := b.ask(b.ctx, names)
		answered := map[string]description{}
		for _, t := range topics {
			answered[t.Name] = description{topic: t}
		}
		for name, cs := range who {
			d, ok := answered[name]
			if !ok && err == nil {
				d = description{topic: source.Topic{Name: name, Err: errNotAnswered}}
			}
			if err != nil {
				d = description{err: err}
			}
			for _, c := range cs {
				c <- d
			}
		}
	}
}
