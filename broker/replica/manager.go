package replica

import (
	"fmt"
	"log/slog"
	"sync"

	"stet/broker/log"
	"stet/broker/meta"
)

// Manager is the table of the partitions that this broker holds.
type Manager struct {
	node     int32
	logs     *log.Manager
	log      *slog.Logger
	configOf func(img *meta.Image, topic string) log.Config
	minISROf func(img *meta.Image, topic string) int
	// gateOf is the gate a partition starts with, before anybody else says otherwise.
	gateOf func(img *meta.Image, topic *meta.Topic, partition int32) Gate

	mu     sync.RWMutex
	byName map[key]*Partition
	byID   map[idKey]*Partition
	failed map[key]error
}

type key struct {
	topic     string
	partition int32
}

type idKey struct {
	id        [16]byte
	partition int32
}

// Options of a Manager.
type Options struct {
	Node   int32
	Logs   *log.Manager
	Logger *slog.Logger
	// ConfigOf is the effective log configuration of a topic.
	ConfigOf func(img *meta.Image, topic string) log.Config
	// MinISROf is min.insync.replicas of a topic; nil: 1.
	MinISROf func(img *meta.Image, topic string) int
	// GateOf is the first gate of a partition; nil: open.
	GateOf func(img *meta.Image, topic *meta.Topic, partition int32) Gate
}

// New returns a manager without partitions; Apply fills it.
func New(o Options) *Manager {
	if o.GateOf == nil {
		o.GateOf = func(*meta.Image, *meta.Topic, int32) Gate { return Gate{} }
	}
	if o.MinISROf == nil {
		o.MinISROf = func(*meta.Image, string) int { return 1 }
	}
	return &Manager{
		node: o.Node, logs: o.Logs, log: o.Logger, configOf: o.ConfigOf, minISROf: o.MinISROf, gateOf: o.GateOf,
		byName: map[key]*Partition{}, byID: map[idKey]*Partition{}, failed: map[key]error{},
	}
}

// Get returns the partition, or nil.
func (m *Manager) Get(topic string, partition int32) *Partition {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.byName[key{topic, partition}]
}

// GetByID returns the partition, or nil.
func (m *Manager) GetByID(id [16]byte, partition int32) *Partition {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.byID[idKey{id, partition}]
}

// Failed is why a partition that should be here is not, or nil.
func (m *Manager) Failed(topic string, partition int32) error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.failed[key{topic, partition}]
}

// Missing counts the partitions that should be here and are not; Failed says why.
func (m *Manager) Missing() int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return len(m.failed)
}

// All returns the partitions in no order.
func (m *Manager) All() []*Partition {
	m.mu.RLock()
	ps := make([]*Partition, 0, len(m.byName))
	for _, p := range m.byName {
		ps = append(ps, p)
	}
	m.mu.RUnlock()
	return ps
}

// Apply follows a change of the metadata. It is called for one delta at a time,
// in order, before anybody who waits for the change is told.
func (m *Manager) Apply(d *meta.Delta) {
	for _, t := range d.DeletedTopics {
		for i := range t.Partitions {
			m.remove(t, int32(i))
		}
	}
	for _, t := range d.CreatedTopics {
		for i, s := range t.Partitions {
			m.upsert(d.New, t, int32(i), s)
		}
	}
	for _, c := range d.ChangedTopics {
		for i, s := range c.New.Partitions {
			m.upsert(d.New, c.New, int32(i), s)
		}
	}
	for _, r := range d.Configs {
		switch r.Type {
		case meta.ResourceTopic:
			if t := d.New.Topic(r.Name); t != nil {
				m.reconfigure(d.New, t)
			}
		case meta.ResourceBroker: // defaults of every topic
			for _, t := range d.New.Topics() {
				m.reconfigure(d.New, t)
			}
		}
	}
}

func (m *Manager) reconfigure(img *meta.Image, t *meta.Topic) {
	cfg, least := m.configOf(img, t.Name), int32(m.minISROf(img, t.Name))
	for i := range t.Partitions {
		if p := m.Get(t.Name, int32(i)); p != nil {
			p.log.SetConfig(cfg)
			p.minISR.Store(least)
			setRetention(img, p)
		}
	}
}

// setRetention: while a mirror owns the partition its log start follows the
// source's, and local time and size retention do not run (SPEC section 5).
func setRetention(img *meta.Image, p *Partition) {
	_, mirrored := img.ReadOnly(p.Topic)
	p.log.SetRetentionEnabled(!mirrored)
}

func (m *Manager) upsert(img *meta.Image, t *meta.Topic, i int32, s *meta.Partition) {
	if !contains(s.Replicas, m.node) {
		return
	}
	if p := m.Get(t.Name, i); p != nil {
		if p.State() != s {
			p.setState(s)
		}
		return
	}
	l, err := m.logs.Create(t.Name, i, t.ID, t.Incarnation, m.configOf(img, t.Name))
	k := key{t.Name, i}
	if err != nil {
		m.log.Error("partition is offline", "topic", t.Name, "partition", i, "err", err)
		m.mu.Lock()
		m.failed[k] = fmt.Errorf("%s-%d: %w", t.Name, i, err)
		m.mu.Unlock()
		return
	}
	p := &Partition{Topic: t.Name, Index: i, ID: t.ID, Incarnation: t.Incarnation, log: l, node: m.node, gate: m.gateOf(img, t, i)}
	p.state.Store(s)
	p.minISR.Store(int32(m.minISROf(img, t.Name)))
	setRetention(img, p)
	p.advance()
	m.mu.Lock()
	delete(m.failed, k)
	m.byName[k] = p
	m.byID[idKey{t.ID, i}] = p
	m.mu.Unlock()
}

func (m *Manager) remove(t *meta.Topic, i int32) {
	k := key{t.Name, i}
	m.mu.Lock()
	p := m.byName[k]
	delete(m.byName, k)
	delete(m.byID, idKey{t.ID, i})
	delete(m.failed, k)
	m.mu.Unlock()
	if p == nil {
		return
	}
	p.retire()
	p.Wake()
	if err := m.logs.Delete(t.Name, i); err != nil {
		m.log.Error("partition directory could not be removed", "topic", t.Name, "partition", i, "err", err)
	}
}

// Strays deletes logs that the metadata does not know, after the first Apply.
func (m *Manager) Strays(img *meta.Image) {
	for _, l := range m.logs.Logs() {
		t := img.Topic(l.Topic())
		if t != nil && t.ID == l.TopicID() && t.Incarnation == l.Incarnation() && int(l.Partition()) < len(t.Partitions) {
			continue
		}
		if t != nil && m.Get(l.Topic(), l.Partition()) != nil && m.Get(l.Topic(), l.Partition()).log == l {
			continue
		}
		m.log.Warn("directory of a deleted topic is removed", "topic", l.Topic(), "partition", l.Partition())
		if err := m.logs.Delete(l.Topic(), l.Partition()); err != nil {
			m.log.Error("partition directory could not be removed", "topic", l.Topic(), "partition", l.Partition(), "err", err)
		}
	}
}

func contains(s []int32, v int32) bool {
	for _, x := range s {
		if x == v {
			return true
		}
	}
	return false
}
