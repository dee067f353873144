package mirror

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"stet/broker/meta"
	"stet/broker/mirror/mirrorstate"
	"stet/broker/mirrormsg"
	"stet/fetcher"
)

func mirrorPartitionText(index int, what string) string {
	return fmt.Sprintf("partition %d is %s", index, what)
}

// DescribeMirrors answers DescribeMirrors: every partition that this broker leads, or with ClusterId what is kept for mirrors
// of that source. Why nothing runs in a mirror is in the message of the whole answer.
func (m *Manager) DescribeMirrors(ctx context.Context, req *mirrormsg.DescribeMirrorsRequest) *mirrormsg.DescribeMirrorsResponse {
	img := m.o.Image()
	resp := mirrormsg.NewPtrDescribeMirrorsResponse()
	names := req.MirrorNames
	if len(names) == 0 {
		for _, mi := range img.Mirrors() {
			names = append(names, mi.Name)
		}
	}
	var reasons []string
	for _, name := range names {
		d := mirrormsg.NewDescribeMirrorsResponseMirror()
		d.MirrorName = name
		u := m.upstream(name)
		switch {
		case img.Mirror(name) == nil:
			d.ErrorCode = mirrormsg.UnknownMirror.Code
		case u == nil:
			d.ErrorCode = kerr.CoordinatorLoadInProgress.Code
		default:
			if req.ClusterID != nil {
				if u.clusterID() != *req.ClusterID {
					continue
				}
				m.describePairs(ctx, img, u, &d)
				break
			}
			m.describeStates(ctx, img, u, &d)
			if err := u.problem(); err != nil {
				reasons = append(reasons, reason(img, name, err))
			}
			if text := m.statesOffline(img, name); text != "" {
				reasons = append(reasons, text)
			}
			if text := u.unmirrored(); text != "" {
				reasons = append(reasons, text)
			}
		}
		resp.Mirrors = append(resp.Mirrors, d)
	}
	if len(reasons) > 0 {
		text := strings.Join(reasons, "; ")
		resp.ErrorMessage = &text
	}
	return resp
}

// reason is why a mirror does not run, with the list that kept starts are in.
func reason(img *meta.Image, name string, err error) string {
	text := fmt.Sprintf("mirror %s: %v", name, err)
	if kept := img.Config(meta.ResourceMirror, name)["mirror.topics.include"]; kept != "" {
		text += "; mirror.topics.include=" + kept
	}
	return text
}

func (m *Manager) describeStates(ctx context.Context, img *meta.Image, u *upstream, out *mirrormsg.DescribeMirrorsResponseMirror) {
	topics := img.MirrorTopics(u.name)
	pairs, err := m.readPairs(ctx, u, topics)
	if err != nil {
		m.o.Logger.Debug("last mirror epochs cannot be read", "mirror", u.name, "err", err)
	}
	now := m.o.Clock.Now()
	for _, t := range topics {
		dt := mirrormsg.NewDescribeMirrorsResponseMirrorTopic()
		dt.TopicName, dt.TopicID = t.Name, t.ID
		for i := range t.Partitions {
			d := m.driver(t.ID, int32(i))
			if d == nil {
				if p, ok := m.describeMissing(img, t, int32(i)); ok {
					dt.Partitions = append(dt.Partitions, p)
				}
				continue
			}
			p, v := m.describePartition(d, now)
			if q, ok := pairs[partitionKey{t.ID, int32(i)}]; ok {
				p.LastMirrorEpoch, p.LastMirrorOffset = q.epoch, q.offset
			}
			dt.Partitions = append(dt.Partitions, p)
			for _, c := range v.upstream {
				if !slices.Contains(dt.UpstreamClusterIDs, c) {
					dt.UpstreamClusterIDs = append(dt.UpstreamClusterIDs, c)
				}
			}
		}
		out.Topics = append(out.Topics, dt)
	}
}

func (m *Manager) describePartition(d *driver, now time.Time) (mirrormsg.DescribeMirrorsResponseMirrorTopicPartition, view) {
	s := m.partitionStatus(d, now)
	p := mirrormsg.NewDescribeMirrorsResponseMirrorTopicPartition()
	p.PartitionIndex, p.DestinationOffset, p.State = d.index, s.DestinationOffset, s.State.String()
	p.RetryAttempt = s.RetryAttempt
	if s.State != mirrorstate.Paused && s.State != mirrorstate.Stopped {
		p.SourceOffset, p.Lag = s.SourceOffset, s.Lag
		p.LagMs, p.LagAgeMs = millis(s.LagTime), millis(s.LagAge)
	}
	if s.Error != "" {
		p.ErrorMessage = &s.Error
		p.ErrorCode = mirrormsg.CodeForError(s.cause)
	}
	v, _ := d.look()
	for _, c := range v.cuts {
		dc := mirrormsg.NewDescribeMirrorsResponseMirrorTopicPartitionCut()
		dc.Offset, dc.LeaderEpoch = c.Offset, c.LeaderEpoch
		p.Cuts = append(p.Cuts, dc)
	}
	return p, v
}

func millis(d time.Duration) int64 {
	if d < 0 {
		return -1
	}
	return d.Milliseconds()
}

// describePairs answers what is kept for mirrors of a source, with an error code per partition.
func (m *Manager) describePairs(ctx context.Context, img *meta.Image, u *upstream, out *mirrormsg.DescribeMirrorsResponseMirror) {
	topics := img.MirrorTopics(u.name)
	pairs, err := m.readPairs(ctx, u, topics)
	code := mirrormsg.CodeForError(err)
	if err != nil && code == kerr.UnknownServerError.Code {
		code = kerr.CoordinatorNotAvailable.Code
	}
	for _, t := range topics {
		dt := mirrormsg.NewDescribeMirrorsResponseMirrorTopic()
		dt.TopicName, dt.TopicID = t.Name, t.ID
		for i := range t.Partitions {
			p := mirrormsg.NewDescribeMirrorsResponseMirrorTopicPartition()
			p.PartitionIndex, p.ErrorCode = int32(i), code
			if d := m.driver(t.ID, int32(i)); d != nil {
				v, _ := d.look()
				p.State = v.state.String()
				if v.state == mirrorstate.Preparing && code == 0 {
					p.ErrorCode = kerr.CoordinatorLoadInProgress.Code // what it has will only be known when it is prepared
				}
			}
			if q, ok := pairs[partitionKey{t.ID, int32(i)}]; ok {
				p.LastMirrorEpoch, p.LastMirrorOffset = q.epoch, q.offset
			}
			dt.Partitions = append(dt.Partitions, p)
		}
		out.Topics = append(out.Topics, dt)
	}
}

// readPairs reads the pairs of topics for an upstream's source from the coordinator.
func (m *Manager) readPairs(ctx context.Context, u *upstream, topics []*meta.Topic) (map[partitionKey]pair, error) {
	out := map[partitionKey]pair{}
	if len(topics) == 0 || m.o.Image().Topic(mirrormsg.MirrorStateTopic) == nil {
		return out, nil
	}
	cluster := u.clusterID()
	req := mirrormsg.NewPtrReadMirrorStatesRequest()
	req.MirrorName, req.MirrorID = u.name, u.id
	incarnations := map[string]*meta.Topic{}
	for _, t := range topics {
		rt := mirrormsg.NewReadMirrorStatesRequestTopic()
		rt.Name, rt.TopicID = t.Name, t.ID
		incarnations[t.Name] = t
		for i := range t.Partitions {
			rp := mirrormsg.NewReadMirrorStatesRequestTopicPartition()
			rp.PartitionIndex = int32(i)
			rt.Partitions = append(rt.Partitions, rp)
		}
		req.Topics = append(req.Topics, rt)
	}
	resp, err := m.o.Coordinator.ReadMirrorStates(ctx, req)
	if err != nil {
		return out, err
	}
	if err := mirrormsg.ErrorForCode(resp.ErrorCode); err != nil {
		return out, err
	}
	for _, rt := range resp.Topics {
		t := incarnations[rt.Name]
		for _, p := range rt.Partitions {
			if e := mirrormsg.ErrorForCode(p.ErrorCode); e != nil && err == nil {
				err = e
			}
			for _, l := range p.LastMirrors {
				if t != nil && l.SourceClusterID == cluster && l.Incarnation == t.Incarnation {
					out[partitionKey{t.ID, p.PartitionIndex}] = pair{l.LastMirrorEpoch, l.LastMirrorOffset}
				}
			}
		}
	}
	return out, err
}

// PartitionStatus is what is known about a mirror partition, for DescribeMirrors and the metrics. Unknown numbers are -1.
type PartitionStatus struct {
	Mirror, Topic     string
	Partition         int32
	State             mirrorstate.State
	SourceOffset      int64
	DestinationOffset int64
	Lag               int64
	LagTime, LagAge   time.Duration
	RetryAttempt      int16
	Error             string
	cause             error // with the code of Error; nil: UNKNOWN_SERVER_ERROR
	Throttled         bool
	// Totals since this broker leads the partition.
	InBytes, InBatches, Retries, GapRecords, CutRecords, EpochBumps int64
}

func (m *Manager) partitionStatus(d *driver, now time.Time) PartitionStatus {
	v, _ := d.look()
	end := d.part.LogEndOffset()
	seen := d.lag.now(end, now)
	s := PartitionStatus{
		Mirror: v.mirror, Topic: d.topic, Partition: d.index, State: v.state, SourceOffset: seen.sourceEnd, DestinationOffset: end,
		Lag: seen.records, LagTime: seen.time, RetryAttempt: v.attempt, Error: v.errText,
		InBytes: d.stats.inBytes.Load(), InBatches: d.stats.inBatches.Load(), Retries: d.stats.retries.Load(), GapRecords: d.stats.gapRecords.Load(),
		CutRecords: d.stats.cutRecords.Load(), EpochBumps: d.stats.epochBumps.Load(),
	}
	st, ok := m.fetchStatus(d)
	s.LagAge = sinceOrNever(now, coveredAt(seen, st))
	if ok {
		s.Throttled = st.Throttled
		if st.Err != nil && s.Error == "" {
			s.Error = st.Err.Error()
		}
	}
	m.addOffline(&s, v)
	if s.cause == nil {
		s.cause = kerr.UnknownServerError
	}
	return s
}

// covered is when a response of the source last covered the partition, also one that had nothing new about it.
func (m *Manager) covered(d *driver, seen lagNow) time.Time {
	st, _ := m.fetchStatus(d)
	return coveredAt(seen, st)
}

// coveredAt is covered of a status, which is zero for a partition that is not fetched.
func coveredAt(seen lagNow, st fetcher.Status) time.Time {
	if st.Covered.After(seen.seenAt) && seen.sourceEnd >= 0 {
		return st.Covered
	}
	return seen.seenAt
}

// fetchStatus is how the partition is fetched, if it is.
func (m *Manager) fetchStatus(d *driver) (fetcher.Status, bool) {
	name := d.posted().mirror
	st, ok := m.fetchers.Status(name, fetcher.ID{TopicID: d.id, Topic: d.topic, Partition: d.index})
	if !ok { // of a source without topic ids
		st, ok = m.fetchers.Status(name, fetcher.ID{Topic: d.topic, Partition: d.index})
	}
	return st, ok
}

// Partitions returns the status of every mirror partition that this broker leads.
func (m *Manager) Partitions() []PartitionStatus {
	now := m.o.Clock.Now()
	ds := m.selectDrivers(func(d *driver) bool { return true })
	slices.SortFunc(ds, func(a, b *driver) int {
		return cmp.Or(strings.Compare(a.topic, b.topic), cmp.Compare(a.index, b.index))
	})
	out := make([]PartitionStatus, 0, len(ds))
	for _, d := range ds {
		if s := m.partitionStatus(d, now); s.Mirror != "" {
			out = append(out, s)
		}
	}
	return out
}

// MirrorStatus is what is known about a mirror as a whole, for the metrics.
type MirrorStatus struct {
	Mirror              string
	Topics              int
	Fetchers, Connected int
	// Problem is why nothing runs, or nil.
	Problem error
}

// Mirrors returns the status of every mirror.
func (m *Manager) Mirrors() []MirrorStatus {
	img := m.o.Image()
	var out []MirrorStatus
	for _, mi := range img.Mirrors() {
		s := MirrorStatus{Mirror: mi.Name, Topics: len(img.MirrorTopics(mi.Name))}
		s.Fetchers, s.Connected = m.fetchers.Alive(mi.Name)
		if u := m.upstream(mi.Name); u != nil {
			s.Problem = u.problem()
		}
		out = append(out, s)
	}
	return out
}
