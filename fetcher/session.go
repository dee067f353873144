package fetcher

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Versions of Fetch at which something begins.
const (
	sessionsFrom    = 7  // KIP-227
	topicIDsFrom    = 13 // KIP-516
	withoutTopicIDs = 12
	newestFetch     = 17 // 18 adds only what followers send
)

// firstBytes is the most that the first fetch of a connection asks for. What is asked for is reserved when a source claims to
// send it, so one that claims and does not send, on however many connections, holds nobody else up.
const firstBytes = 1 << 20

// probeWait is for how many milliseconds a broker that was away may hold the first fetch.
const probeWait = 200

// session is an incremental fetch session (KIP-227). epoch 0 asks for a new one with a full request.
type session struct {
	id    int32
	epoch int32
	// number counts requests; it marks topics in the request that is being built.
	number uint64
}

func (s *session) reset() { s.id, s.epoch = 0, 0 }

// answered takes the session id of a good response.
func (s *session) answered(id int32) {
	if id == 0 {
		s.reset()
		return
	}
	s.id = id
	if s.epoch++; s.epoch <= 0 {
		s.epoch = 1
	}
}

// sessionError says whether the code means that only the session is gone.
func sessionError(code int16) bool {
	switch code {
	case kerr.FetchSessionIDNotFound.Code, kerr.InvalidFetchSessionEpoch.Code, kerr.FetchSessionTopicIDError.Code:
		return true
	}
	return false
}

// send builds the next request and sends it. It reports false when there is nothing to fetch, or nothing may be
// fetched before the returned time has passed.
func (l *loop) send(conn Conn) (sent bool, wait time.Duration, err error) {
	version := min(conn.FetchVersion(), newestFetch)
	rtt := conn.RTT()
	now := time.Now()
	l.mu.Lock()
	l.resume(now)
	if l.fetchables == 0 {
		l.mu.Unlock()
		return false, 0, nil
	}
	most, least := l.limits(rtt)
	if !l.proven {
		most = min(most, firstBytes)
	}
	if most, wait = l.reserve(now, most); wait > 0 {
		l.mu.Unlock()
		return false, wait, nil
	}
	if l.noIDs > 0 {
		version = min(version, withoutTopicIDs)
	}
	l.req.MaxBytes, l.req.MinBytes = most, min(least, most)
	l.build(version, rtt)
	l.mu.Unlock()
	if err := conn.Send(&l.req); err != nil {
		return false, 0, err
	}
	l.m.o.Counters.Requests.Add(1)
	return true, 0, nil
}

// build fills l.req. The lock is held.
func (l *loop) build(version int16, rtt time.Duration) {
	s := &l.session
	s.number++
	if s.epoch != 0 && l.addedAgain() {
		s.epoch = 0 // the source drops the session of this id and begins another one
	}
	req := &l.req
	req.SetVersion(version)
	req.ReplicaID = -1
	req.MaxWaitMillis = int32(l.config.MaxWait.Milliseconds())
	if l.probe { // others wait for the answer
		req.MaxWaitMillis = min(req.MaxWaitMillis, probeWait)
	}
	req.IsolationLevel = 0
	req.SessionID, req.SessionEpoch = s.id, s.epoch
	if version < sessionsFrom {
		req.SessionID, req.SessionEpoch = 0, -1
	}
	req.Topics = req.Topics[:0]
	req.ForgottenTopics = req.ForgottenTopics[:0]
	if s.epoch == 0 || version < sessionsFrom {
		l.buildFull(rtt)
		return
	}
	for _, p := range l.dirty {
		p.dirty = false
		if l.partitions[p.id] == p && p.fetchable() {
			l.ask(p, rtt)
		}
	}
	clear(l.dirty)
	l.dirty = l.dirty[:0]
	for _, f := range l.forgotten {
		l.forget(f)
	}
	clear(l.forgotten)
	l.forgotten = l.forgotten[:0]
}

// addedAgain says that a partition was removed and added again since the last request. To the session it would be
// unchanged, so the source would answer nothing about it until it has news, and the new assignment would not know where
// the source ends.
func (l *loop) addedAgain() bool {
	for _, f := range l.forgotten {
		t := l.byName[f.topic.name] // a topic that lost its last partition was made anew
		if t == nil || t.id != f.topic.id {
			continue
		}
		if p := t.partitions[f.partition]; p != nil && p.fetchable() {
			return true
		}
	}
	return false
}

// buildFull asks for every partition, beginning at another one each time, since without a session it
// is our order that decides who is served when the response is full.
func (l *loop) buildFull(rtt time.Duration) {
	all := l.scratch[:0]
	for _, t := range l.byName {
		for _, p := range t.partitions {
			p.inRequest = false
			if p.fetchable() {
				all = append(all, p)
			}
		}
	}
	l.rotate++
	for i := range all {
		p := all[(i+l.rotate)%len(all)]
		l.ask(p, rtt)
	}
	for _, p := range l.dirty {
		p.dirty = false
	}
	clear(all)
	clear(l.dirty)
	clear(l.forgotten)
	l.scratch, l.dirty, l.forgotten = all[:0], l.dirty[:0], l.forgotten[:0]
}

// ask puts p into the request. The nested slices of an earlier request are used again.
func (l *loop) ask(p *partition, rtt time.Duration) {
	t := p.topic
	req := &l.req
	if t.request != l.session.number {
		t.request, t.index = l.session.number, len(req.Topics)
		if n := len(req.Topics); n < cap(req.Topics) {
			req.Topics = req.Topics[:n+1]
			req.Topics[n].Partitions = req.Topics[n].Partitions[:0]
		} else {
			req.Topics = append(req.Topics, kmsg.NewFetchRequestTopic())
		}
		rt := &req.Topics[t.index]
		rt.Topic, rt.TopicID = t.name, t.id
	}
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition = p.id.Partition
	rp.CurrentLeaderEpoch = p.leaderEpoch
	rp.FetchOffset = p.next
	rp.LastFetchedEpoch = p.epoch
	rp.LogStartOffset = -1
	rp.PartitionMaxBytes = l.partitionLimit(rtt)
	rt := &req.Topics[t.index]
	rt.Partitions = append(rt.Partitions, rp)
	p.inRequest = true
	p.sent = p.next
}

func (l *loop) forget(f forgotten) {
	t := f.topic
	req := &l.req
	if t.forgetRequest != l.session.number {
		t.forgetRequest, t.forgetIndex = l.session.number, len(req.ForgottenTopics)
		ft := kmsg.NewFetchRequestForgottenTopic()
		ft.Topic, ft.TopicID = t.name, t.id
		req.ForgottenTopics = append(req.ForgottenTopics, ft)
	}
	ft := &req.ForgottenTopics[t.forgetIndex]
	ft.Partitions = append(ft.Partitions, f.partition)
}

// limits are the response limit and the smallest response worth answering. The first grows with round trip
// time x rate, so that a long way is kept full (PERFORMANCE G5). The second never exceeds what one partition may
// return: else every fetch of a single busy partition would wait its full time.
func (l *loop) limits(rtt time.Duration) (maxBytes, minBytes int32) {
	return l.grown(l.config.MaxBytes, rtt), min(l.config.MinBytes, l.config.PartitionMaxBytes)
}

func (l *loop) partitionLimit(rtt time.Duration) int32 {
	return l.grown(l.config.PartitionMaxBytes, rtt)
}

func (l *loop) grown(configured int32, rtt time.Duration) int32 {
	if rtt < time.Millisecond {
		return configured
	}
	return max(configured, int32(min(2*rtt.Seconds()*l.rate, float64(l.limit))))
}
