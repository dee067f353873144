package api

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/broker/mirrormsg"
	"stet/broker/replica"
)

// Fetch (key 1), versions 4-18.
//
// Consumers only (replica id -1). Incremental sessions (KIP-227), topic ids from
// version 13, epochs and divergence (KIP-320, KIP-595), both isolation levels
// with the list of aborted transactions, long poll by min bytes and max wait.
// Records leave as file ranges (see fetch_reply.go).
var fetch = handler{key: 1, min: 4, max: 18, serve: serveFetch}

const (
	sessionNone    = 0
	epochInitial   = 0
	epochFinal     = -1
	readCommitted  = 1
	consumerFetch  = -1
	versionTopicID = 13
)

func serveFetch(ctx context.Context, a *API, r *Request) (Reply, error) {
	req := r.Msg.(*kmsg.FetchRequest)
	a.Counters.FetchRequests.Add(1)
	reply := &FetchReply{version: r.Version}
	replicaID := req.ReplicaID
	if r.Version >= 15 {
		replicaID = req.ReplicaState.ID
	}
	if replicaID != consumerFetch {
		reply.errorCode = kerr.InvalidRequest.Code
		return reply, nil
	}
	byID := r.Version >= versionTopicID
	if r.Version < 7 { // no sessions yet
		req.SessionID, req.SessionEpoch = sessionNone, epochFinal
	}
	now := time.Now()
	incremental := req.SessionEpoch > epochInitial
	var s *fetchSession
	if incremental {
		var err error
		if s, err = a.sessions.use(req.SessionID, now); err != nil {
			reply.errorCode = code(err)
			return reply, nil
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case s.byID != byID:
			reply.errorCode = kerr.FetchSessionTopicIDError.Code
			return reply, nil
		case s.epoch != req.SessionEpoch:
			reply.errorCode = kerr.InvalidFetchSessionEpoch.Code
			return reply, nil
		}
		if s.epoch++; s.epoch < 0 {
			s.epoch = 1
		}
	} else {
		if req.SessionID != sessionNone {
			a.sessions.remove(req.SessionID)
		}
		s = newFetchSession(byID)
	}
	s.update(req, func(topic string, id [16]byte) string {
		if byID {
			if t := a.Image().TopicByID(id); t != nil {
				return t.Name
			}
			return ""
		}
		return topic
	})
	if !incremental && req.SessionEpoch == epochInitial {
		s.mu.Lock() // nobody else can hold it yet; another connection may from add on
		defer s.mu.Unlock()
		reply.sessionID = a.sessions.add(s, a.Settings.FetchSessions, now)
	} else if incremental {
		reply.sessionID = s.id
	}
	f := fetcher{a: a, s: s, req: req, byID: byID, incremental: incremental, reply: reply}
	f.run(ctx)
	reply.told()
	return reply, nil
}

// fetcher answers one request over the partitions of a session.
type fetcher struct {
	a           *API
	s           *fetchSession
	req         *kmsg.FetchRequest
	byID        bool
	incremental bool
	reply       *FetchReply
}

// run reads, and waits for more until there are min bytes, an error, something
// else that the client must learn, or the time is up.
func (f *fetcher) run(ctx context.Context) {
	if f.read() || f.req.MaxWaitMillis <= 0 {
		return
	}
	w := replica.NewWaiter()
	for p := f.s.ring.next; p != &f.s.ring; p = p.next {
		if part := f.find(p); part != nil {
			part.Watch(w)
			defer part.Unwatch(w)
		}
	}
	timer := time.NewTimer(time.Duration(f.req.MaxWaitMillis) * time.Millisecond)
	defer timer.Stop()
	for {
		f.reply.reset()
		if f.read() {
			return
		}
		select {
		case <-w.C:
		case <-timer.C:
			f.reply.reset()
			f.read()
			return
		case <-ctx.Done():
			return
		}
	}
}

func (f *fetcher) find(p *fetchPartition) *replica.Partition {
	if p.topic == "" && f.byID { // unknown when it was added; it may exist now
		if t := f.a.Image().TopicByID(p.id); t != nil {
			p.topic = t.Name
		}
	}
	part := f.a.Replicas.Get(p.topic, p.index)
	if part != nil && f.byID && part.ID != p.id {
		return nil
	}
	return part
}

// read fills the reply once; true: it is to be sent now.
func (f *fetcher) read() (ready bool) {
	left := int(min(f.req.MaxBytes, f.a.Settings.FetchMaxBytes))
	if f.reply.version < 3 || f.req.MaxBytes <= 0 {
		left = int(f.a.Settings.FetchMaxBytes)
	}
	total := 0
	var served []*fetchPartition
	for p := f.s.ring.next; p != &f.s.ring; p = p.next {
		out := f.readOne(p, left, total == 0)
		n := out.Slice.Len()
		total += n
		left -= n
		if n > 0 {
			served = append(served, p)
		}
		if out.Err != nil || out.Diverging {
			ready = true
		}
		if f.include(p, &out) {
			f.reply.add(out)
		}
	}
	ready = ready || total >= int(f.req.MinBytes) || len(f.s.parts) == 0
	if ready {
		for _, p := range served {
			f.s.served(p)
		}
	}
	return ready
}

func (f *fetcher) readOne(p *fetchPartition, left int, minOne bool) fetchedPartition {
	part := f.find(p)
	if part == nil {
		res := fetchedPartition{p: p, ReadResult: replica.ReadResult{HighWatermark: -1, LastStableOffset: -1, LogStartOffset: -1}}
		if f.byID && f.a.Image().TopicByID(p.id) == nil {
			res.Err = replica.Refuse(kerr.UnknownTopicID, "no topic has the id %s", mirrormsg.UUIDString(p.id))
		} else {
			_, res.Err = f.a.partition(p.topic, p.id, f.byID, p.index)
		}
		return res
	}
	res := fetchedPartition{p: p, leader: part.State()}
	res.ReadResult = part.Read(replica.ReadRequest{
		Offset: p.offset, MaxBytes: max(0, min(int(p.maxBytes), left)), MinOneBatch: minOne && left > 0,
		CurrentLeaderEpoch: p.currentEpoch, LastFetchedEpoch: p.lastFetchedEpoch,
		ReadCommitted: f.req.IsolationLevel == readCommitted,
	})
	return res
}

// include says whether an incremental answer must carry the partition: records,
// an error, or something that changed since the client was last told.
func (f *fetcher) include(p *fetchPartition, out *fetchedPartition) bool {
	return !f.incremental || p.dirty || out.Slice.Len() > 0 || out.Err != nil || out.Diverging ||
		out.HighWatermark != p.sentHW || out.LogStartOffset != p.sentLogStart
}
