package mirrorcoord

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"stet/broker/coord"
	"stet/broker/meta"
	"stet/broker/mirrormsg"
	"stet/internal/clock"
	"stet/zerocopy/batch"
)

// Options of New.
type Options struct {
	// Image is the current metadata. The image must be published before Apply is
	// called with its delta.
	Image  func() *meta.Image
	Clock  clock.Clock
	Logger *slog.Logger
	// Linger is mirror.coordinator.append.linger.ms; nil: 10 ms.
	Linger func() time.Duration
	// WriteTimeout is mirror.coordinator.write.timeout.ms; nil: 5 s.
	WriteTimeout func() time.Duration
}

// Coordinator answers for the partitions of __mirror_state that are led here. It
// is safe for concurrent use.
type Coordinator struct {
	o      Options
	rt     *coord.Runtime[*machine]
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// New makes a coordinator that leads nothing yet.
func New(o Options) *Coordinator {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Linger == nil {
		o.Linger = func() time.Duration { return 10 * time.Millisecond }
	}
	c := &Coordinator{o: o}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.rt = coord.New(coord.Options[*machine]{
		Topic: mirrormsg.MirrorStateTopic, Clock: o.Clock, Logger: o.Logger, Linger: o.Linger, WriteTimeout: o.WriteTimeout,
		NewMachine: func(int32) *machine { return &machine{o: &c.o, entries: map[entryKey]*entry{}} },
	})
	return c
}

// BecomeLeader loads a partition of __mirror_state that is led here from now on.
func (c *Coordinator) BecomeLeader(partition, epoch int32, log coord.Log) {
	c.rt.BecomeLeader(partition, epoch, log)
}

// Resign gives a partition up.
func (c *Coordinator) Resign(partition int32) { c.rt.Resign(partition) }

// Close gives all partitions up and waits for what Apply has started.
func (c *Coordinator) Close() {
	c.cancel()
	c.rt.Close()
	c.wg.Wait()
}

// Apply follows the metadata: what was kept for deleted mirrors and topics gets
// tombstones, in the background. It does not block.
func (c *Coordinator) Apply(d *meta.Delta) {
	if len(d.DeletedMirrors)+len(d.DeletedTopics) == 0 {
		return
	}
	c.wg.Go(func() {
		if err := c.Sweep(c.ctx); err != nil && c.ctx.Err() == nil {
			// The next load of the partition, or the next deletion, does it.
			c.o.Logger.Warn("states of deleted mirrors or topics could not be removed yet", "err", err)
		}
	})
}

// Sweep writes tombstones for everything that belongs to a mirror or a topic
// that is gone, in the shards that are led here.
func (c *Coordinator) Sweep(ctx context.Context) error {
	partitions := c.rt.Partitions()
	slices.Sort(partitions)
	for _, p := range partitions {
		for more := true; more; {
			err := c.rt.Do(ctx, p, func(m *machine, _ *coord.Shard) (recs []batch.KV, err error) {
				recs, more = m.sweep(c.o.Image())
				return recs, nil
			})
			if errors.Is(err, kerr.NotCoordinator) || errors.Is(err, kerr.CoordinatorLoadInProgress) {
				break // whoever loads it sweeps it
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// place is the partition of __mirror_state for a key, ok is false while there is
// no such topic.
func place(img *meta.Image, key string) (partition int32, ok bool) {
	t := img.Topic(mirrormsg.MirrorStateTopic)
	if t == nil || len(t.Partitions) == 0 {
		return 0, false
	}
	return mirrormsg.PartitionFor(key, int32(len(t.Partitions))), true
}

// item is one partition of a request.
type item struct {
	key         entryKey
	topic, part int // in the response
}

// plan resolves a request: the mirror's id, and for each partition the shard it
// belongs to. Partitions that cannot be resolved get their error through fail.
type plan struct {
	img      *meta.Image
	mirror   string
	mirrorID [16]byte
	shards   map[int32][]item
}

func newPlan(img *meta.Image, mirror string, mirrorID [16]byte) (*plan, error) {
	m := img.Mirror(mirror)
	switch {
	case m == nil:
		return nil, mirrormsg.Errorf(mirrormsg.UnknownMirror, "There is no mirror '%s'.", mirror)
	case mirrorID != [16]byte{} && mirrorID != m.ID:
		return nil, mirrormsg.Errorf(mirrormsg.UnknownMirror, "Mirror '%s' was deleted and made again; its id is another one now.", mirror)
	}
	if _, ok := place(img, ""); !ok {
		return nil, mirrormsg.Errorf(kerr.CoordinatorNotAvailable, "There is no topic %s yet.", mirrormsg.MirrorStateTopic)
	}
	return &plan{img: img, mirror: mirror, mirrorID: m.ID, shards: map[int32][]item{}}, nil
}

// topic finds a topic by id, or by name if the id is zero; the name must fit.
func (p *plan) topic(id [16]byte, name string) (*meta.Topic, error) {
	t := p.img.TopicByID(id)
	if id == [16]byte{} {
		if t = p.img.Topic(name); t == nil {
			return nil, kerr.UnknownTopicOrPartition
		}
	}
	if t == nil || t.Name != name {
		return nil, kerr.UnknownTopicID
	}
	return t, nil
}

func (p *plan) add(t *meta.Topic, partition int32, topic, part int) error {
	if partition < 0 || int(partition) >= len(t.Partitions) {
		return kerr.UnknownTopicOrPartition
	}
	shard, _ := place(p.img, mirrormsg.StateKey(p.mirror, t.ID, partition))
	p.shards[shard] = append(p.shards[shard], item{entryKey{p.mirrorID, t.ID, partition}, topic, part})
	return nil
}

// ReadMirrorStates returns states and pairs. Partitions that are coordinated
// elsewhere get NOT_COORDINATOR. The error is always nil: it is part of the
// interface that a remote coordinator has as well.
func (c *Coordinator) ReadMirrorStates(ctx context.Context, req *mirrormsg.ReadMirrorStatesRequest) (*mirrormsg.ReadMirrorStatesResponse, error) {
	resp := mirrormsg.NewPtrReadMirrorStatesResponse()
	p, err := newPlan(c.o.Image(), req.MirrorName, req.MirrorID)
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = mirrormsg.CodeAndMessage(err)
		return resp, nil
	}
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := mirrormsg.NewReadMirrorStatesResponseTopic()
		rt.Name = t.Name
		topic, err := p.topic(t.TopicID, t.Name)
		for j := range t.Partitions {
			rp := mirrormsg.NewReadMirrorStatesResponseTopicPartition()
			rp.PartitionIndex = t.Partitions[j].PartitionIndex
			if err == nil {
				rp.ErrorCode = mirrormsg.CodeForError(p.add(topic, rp.PartitionIndex, i, j))
			} else {
				rp.ErrorCode = mirrormsg.CodeForError(err)
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	for shard, items := range p.shards {
		err := c.rt.Do(ctx, shard, func(m *machine, _ *coord.Shard) ([]batch.KV, error) {
			img := c.o.Image()
			for _, it := range items {
				rp := &resp.Topics[it.topic].Partitions[it.part]
				rp.State, rp.LastMirrors = m.read(img, it.key)
			}
			return nil, nil
		})
		for _, it := range items {
			if err != nil {
				rp := &resp.Topics[it.topic].Partitions[it.part]
				rp.State, rp.LastMirrors, rp.ErrorCode = nil, nil, mirrormsg.CodeForError(err)
			}
		}
	}
	return resp, nil
}

// WriteMirrorStates writes states and pairs of each partition, all or nothing per
// partition. The error is always nil, as in ReadMirrorStates.
func (c *Coordinator) WriteMirrorStates(ctx context.Context, req *mirrormsg.WriteMirrorStatesRequest) (*mirrormsg.WriteMirrorStatesResponse, error) {
	resp := mirrormsg.NewPtrWriteMirrorStatesResponse()
	p, err := newPlan(c.o.Image(), req.MirrorName, req.MirrorID)
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = mirrormsg.CodeAndMessage(err)
		return resp, nil
	}
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := mirrormsg.NewWriteMirrorStatesResponseTopic()
		rt.Name = t.Name
		topic, err := p.topic(t.TopicID, t.Name)
		for j := range t.Partitions {
			rp := mirrormsg.NewWriteMirrorStatesResponseTopicPartition()
			rp.PartitionIndex = t.Partitions[j].PartitionIndex
			if err == nil {
				rp.ErrorCode = mirrormsg.CodeForError(p.add(topic, rp.PartitionIndex, i, j))
			} else {
				rp.ErrorCode = mirrormsg.CodeForError(err)
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	for shard, items := range p.shards {
		// One operation per partition: its records share a batch, and a partition that
		// is too large does not take the others with it. They wait together.
		var wg sync.WaitGroup
		for _, it := range items {
			var writer any // one of several is not alone
			if len(items) == 1 {
				writer = it.key
			}
			wg.Go(func() {
				in := &req.Topics[it.topic].Partitions[it.part]
				rp := &resp.Topics[it.topic].Partitions[it.part]
				err := c.rt.DoFor(ctx, shard, writer, func(m *machine, _ *coord.Shard) (recs []batch.KV, err error) {
					rp.StateEpoch, recs, err = m.write(c.o.Image(), it.key, req.MirrorName, in)
					return recs, err
				})
				if err == nil && (in.LastMirror != nil || in.RemoveLastMirror != nil) {
					// Where local writes begin cannot be found out again: a power failure must not take it, nor bring back
					// a pair that the log does not have any more.
					err = c.rt.Sync(shard)
				}
				rp.ErrorCode = mirrormsg.CodeForError(err)
			})
		}
		wg.Wait()
	}
	return resp, nil
}
