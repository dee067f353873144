package api

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fetchPartition is one partition of a fetch, of this request or of a session.
type fetchPartition struct {
	topic            string
	id               [16]byte
	index            int32
	offset           int64
	maxBytes         int32
	currentEpoch     int32
	lastFetchedEpoch int32

	// What the session last told the client; -1 makes the next answer include the partition.
	sentHW, sentLogStart int64
	dirty                bool

	prev, next *fetchPartition // position in the session's order
}

type fetchKey struct {
	topic string
	id    [16]byte
	index int32
}

// fetchSession is the state of an incremental fetch (KIP-227). It is used by
// one request at a time; mu orders two connections that use the same id.
type fetchSession struct {
	mu      sync.Mutex
	id      int32
	epoch   int32 // of the next request
	byID    bool
	parts   map[fetchKey]*fetchPartition
	ring    fetchPartition // sentinel of the order
	lastUse time.Time      // guarded by the cache's lock
}

func newFetchSession(byID bool) *fetchSession {
	s := &fetchSession{byID: byID, parts: map[fetchKey]*fetchPartition{}}
	s.ring.prev, s.ring.next = &s.ring, &s.ring
	return s
}

func (s *fetchSession) pushBack(p *fetchPartition) {
	p.prev, p.next = s.ring.prev, &s.ring
	p.prev.next, p.next.prev = p, p
}

func (p *fetchPartition) unlink() {
	p.prev.next, p.next.prev = p.next, p.prev
}

// served moves a partition that got records behind the others, so that one busy
// partition cannot starve the rest when the response is full.
func (s *fetchSession) served(p *fetchPartition) {
	p.unlink()
	s.pushBack(p)
}

// update takes the partitions that a request adds, changes and forgets.
func (s *fetchSession) update(req *kmsg.FetchRequest, name func(topic string, id [16]byte) string) {
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			rp := &t.Partitions[j]
			k := fetchKey{t.Topic, t.TopicID, rp.Partition}
			p := s.parts[k]
			if p == nil {
				p = &fetchPartition{topic: name(t.Topic, t.TopicID), id: t.TopicID, index: rp.Partition, sentHW: -1, sentLogStart: -1, dirty: true}
				s.parts[k] = p
				s.pushBack(p)
			}
			p.offset, p.maxBytes = rp.FetchOffset, rp.PartitionMaxBytes
			p.currentEpoch, p.lastFetchedEpoch = rp.CurrentLeaderEpoch, rp.LastFetchedEpoch
		}
	}
	for i := range req.ForgottenTopics {
		t := &req.ForgottenTopics[i]
		for _, index := range t.Partitions {
			k := fetchKey{t.Topic, t.TopicID, index}
			if p := s.parts[k]; p != nil {
				p.unlink()
				delete(s.parts, k)
			}
		}
	}
}

// sessionCache holds the sessions of all clients, at most limit of them; the one
// that was unused for the longest time makes room.
type sessionCache struct {
	mu       sync.Mutex
	sessions map[int32]*fetchSession
}

// minEviction: a session used more recently than this is not given up for another.
const minEviction = 2 * time.Minute

// add gives a session an id, or 0 when the cache is full of active ones.
func (c *sessionCache) add(s *fetchSession, limit int, now time.Time) int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sessions == nil {
		c.sessions = map[int32]*fetchSession{}
	}
	if len(c.sessions) >= limit {
		var oldest *fetchSession
		for _, o := range c.sessions {
			if oldest == nil || o.lastUse.Before(oldest.lastUse) {
				oldest = o
			}
		}
		if oldest == nil || now.Sub(oldest.lastUse) < minEviction {
			return 0
		}
		delete(c.sessions, oldest.id)
	}
	for {
		id := rand.Int32N(1<<31-2) + 1
		if c.sessions[id] == nil {
			s.id, s.epoch, s.lastUse = id, 1, now
			c.sessions[id] = s
			return id
		}
	}
}

// use finds the session of an incremental request.
func (c *sessionCache) use(id int32, now time.Time) (*fetchSession, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sessions[id]
	if s == nil {
		return nil, kerr.FetchSessionIDNotFound
	}
	s.lastUse = now
	return s, nil
}

func (c *sessionCache) remove(id int32) {
	c.mu.Lock()
	delete(c.sessions, id)
	c.mu.Unlock()
}

func (c *sessionCache) clear() {
	c.mu.Lock()
	c.sessions = nil
	c.mu.Unlock()
}
