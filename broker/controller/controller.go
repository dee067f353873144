package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"stet/broker/meta"
	"stet/broker/mirrormsg"
	"stet/broker/quorum"
)

// Quorum is what the controller needs of broker/quorum.
type Quorum interface {
	Image() *meta.Image
	Propose(ctx context.Context, base int64, recs []meta.Record) error
}

// Env is what the pure functions know beside the image. The zero value works.
type Env struct {
	Logger *slog.Logger
	// StaticConfig is the properties file: num.partitions, default.replication.factor
	// and the broker-wide defaults of topic keys.
	StaticConfig map[string]string
	// BrokerID is the broker whose configs are shown in answers.
	BrokerID int32
	// NewID makes ids for topics and mirrors; nil: mirrormsg.RandomUUID.
	NewID func() [16]byte
}

func (e *Env) newID(img *meta.Image) [16]byte {
	f := e.NewID
	if f == nil {
		f = mirrormsg.RandomUUID
	}
	for {
		if id := f(); id != [16]byte{} && img.TopicByID(id) == nil {
			return id
		}
	}
}

// Controller runs requests. It is safe for concurrent use.
type Controller struct {
	quorum Quorum
	env    Env
	ops    chan *op
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}
	once   sync.Once
}

// op is one request: decide is called with the image that all requests before it
// have led to, possibly more than once; done is told the outcome of the commit.
type op struct {
	decide func(img *meta.Image) ([]meta.Record, any)
	answer any // of the last decide
	done   chan outcome
}

type outcome struct {
	answer any
	err    error
}

// ErrClosed is returned after Close. The request may or may not have been committed.
var ErrClosed = errors.New("controller: closed")

// A group commit takes at most so many requests.
const maxGroup = 256

// New starts a controller.
func New(q Quorum, env Env) *Controller {
	if env.Logger == nil {
		env.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Controller{quorum: q, env: env, ops: make(chan *op, maxGroup), done: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	go c.run()
	return c
}

// Close ends the goroutine. Requests that are not answered get ErrClosed.
func (c *Controller) Close() {
	c.once.Do(c.cancel)
	<-c.done
}

// do runs one request and waits for its commit. The answer travels with the
// outcome: a caller that stops waiting shares nothing with the goroutine.
func do[T any](ctx context.Context, c *Controller, decide func(img *meta.Image) ([]meta.Record, T)) (T, error) {
	var zero T
	o := &op{
		decide: func(img *meta.Image) ([]meta.Record, any) {
			recs, answer := decide(img)
			return recs, answer
		},
		done: make(chan outcome, 1),
	}
	select {
	case c.ops <- o:
	case <-ctx.Done():
		return zero, ctx.Err()
	case <-c.ctx.Done():
		return zero, ErrClosed
	}
	var out outcome
	select {
	case out = <-o.done:
	case <-ctx.Done():
		return zero, ctx.Err()
	case <-c.done:
		select { // it may have been answered before the end
		case out = <-o.done:
		default:
			return zero, ErrClosed
		}
	}
	if out.err != nil {
		return zero, out.err
	}
	return out.answer.(T), nil
}

func (c *Controller) run() {
	defer close(c.done)
	for {
		select {
		case <-c.ctx.Done():
			return
		case first := <-c.ops:
			c.commit(c.gather(first))
		}
	}
}

// gather takes what is waiting, so that one sync serves all of it.
func (c *Controller) gather(first *op) []*op {
	group := []*op{first}
	for len(group) < maxGroup {
		select {
		case o := <-c.ops:
			group = append(group, o)
		default:
			return group
		}
	}
	return group
}

// commit decides a group on a speculative image and proposes all records as one.
func (c *Controller) commit(group []*op) {
	err := c.propose(group)
	if errors.Is(err, quorum.ErrTooLarge) && len(group) > 1 {
		for _, o := range group {
			err := c.propose([]*op{o})
			o.done <- outcome{o.answer, err}
		}
		return
	}
	for _, o := range group {
		o.done <- outcome{o.answer, err}
	}
}

func (c *Controller) propose(group []*op) error {
	for {
		base := c.quorum.Image()
		speculative := base
		var all []meta.Record
		for _, o := range group {
			recs, answer := o.decide(speculative)
			o.answer = answer
			if len(recs) > 0 {
				all = append(all, recs...)
				speculative, _ = speculative.Apply(recs)
			}
		}
		if len(all) == 0 {
			return nil
		}
		err := c.quorum.Propose(c.ctx, base.Offset(), all)
		if errors.Is(err, quorum.ErrBase) {
			continue // another leader's records came between; decide again on what is there now
		}
		if err != nil {
			return fmt.Errorf("controller: %w", err)
		}
		return nil
	}
}

// change gathers the records of one request; each step sees the ones before it.
type change struct {
	img  *meta.Image
	recs []meta.Record
}

func (c *change) add(recs ...meta.Record) {
	if len(recs) > 0 {
		c.recs = append(c.recs, recs...)
		c.img, _ = c.img.Apply(recs)
	}
}

func (c *change) setConfig(typ meta.ResourceType, name, key, value string) {
	c.add(&meta.SetConfig{Resource: meta.Resource{Type: typ, Name: name}, Key: key, Value: &value})
}
