package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"stet/broker/mirrormsg"
)

// pairForUs is the pair that a source which is Stet keeps for mirrors of our cluster (SPEC 4.7, candidate a). A source that does not
// advertise DescribeMirrors has none; an error of the partition or the request is a reason to wait, never to cut.
func (u *upstream) pairForUs(ctx context.Context, topic string, id [16]byte, index int32) (pair, error) {
	resp, ok, err := u.askMirrors(ctx, &u.pairsAnswer, u.m.o.Image().ClusterID())
	if err != nil {
		return noPair, u.mirrorsError(ctx, err)
	}
	best := noPair
	if !ok {
		return best, nil
	}
	for _, m := range resp.Mirrors {
		if m.ErrorCode != 0 {
			return noPair, patient(fmt.Errorf("the source's mirror %s: %w", m.MirrorName, mirrormsg.ErrorForCode(m.ErrorCode)))
		}
		for _, t := range m.Topics {
			if t.TopicID != id || t.TopicName != topic {
				continue
			}
			for _, p := range t.Partitions {
				if p.PartitionIndex != index {
					continue
				}
				if p.ErrorCode != 0 {
					return noPair, patient(fmt.Errorf("the source's last mirror epoch of %s-%d: %w", topic, index, mirrormsg.ErrorForCode(p.ErrorCode)))
				}
				if q := (pair{p.LastMirrorEpoch, p.LastMirrorOffset}); q.exists() && q.greater(best) {
					best = q
				}
			}
		}
	}
	return best, nil
}

// mirrorsAnswer is an answer to DescribeMirrors that serves all partitions which prepare at the same time.
type mirrorsAnswer struct {
	resp *mirrormsg.DescribeMirrorsResponse
	ok   bool
	at   time.Time
}

// mirrorsAge is how long such an answer holds.
const mirrorsAge = time.Second

// askMirrors asks one partition after the other, so that those behind the first find its answer. Errors are not kept.
func (u *upstream) askMirrors(ctx context.Context, a *mirrorsAnswer, cluster string) (*mirrormsg.DescribeMirrorsResponse, bool, error) {
	select { // not a mutex: a stop must not wait for the questions of others
	case u.askingMirrors <- struct{}{}:
		defer func() { <-u.askingMirrors }()
	case <-ctx.Done():
		return nil, false, ctx.Err()
	}
	if !a.at.IsZero() && time.Since(a.at) < mirrorsAge {
		return a.resp, a.ok, nil
	}
	req := mirrormsg.NewPtrDescribeMirrorsRequest()
	if cluster != "" {
		req.ClusterID = &cluster
	}
	resp, ok, err := u.source().DescribeMirrors(ctx, req)
	if err == nil {
		*a = mirrorsAnswer{resp, ok, time.Now()}
	}
	return resp, ok, err
}

func (u *upstream) mirrorsError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errSuperseded
	}
	var own *mirrormsg.Error
	if errors.As(err, &own) {
		return patient(fmt.Errorf("%w; DESCRIBE on CLUSTER_MIRROR * is needed there", err))
	}
	return sourceError(-1, err)
}

// upstreams are the clusters upstream of a topic: the source's, and those that the source names for it. A topic that
// comes from us, directly or through others, is refused.
func (u *upstream) upstreams(ctx context.Context, topic string, id [16]byte) ([]string, error) {
	out := []string{u.clusterID()}
	resp, ok, err := u.askMirrors(ctx, &u.statesAnswer, "")
	if err != nil {
		return nil, u.mirrorsError(ctx, err)
	}
	if !ok {
		return out, nil
	}
	us := u.m.o.Image().ClusterID()
	for _, m := range resp.Mirrors {
		for _, t := range m.Topics {
			if t.TopicID != id || t.TopicName != topic || stoppedThere(t) {
				continue
			}
			if slices.Contains(t.UpstreamClusterIDs, us) {
				return nil, patient(fmt.Errorf("the source mirrors topic %s from this cluster (its mirror %s); stop it there first", topic, m.MirrorName))
			}
			for _, c := range t.UpstreamClusterIDs {
				if !slices.Contains(out, c) {
					out = append(out, c)
				}
			}
		}
	}
	return out, nil
}

func stoppedThere(t mirrormsg.DescribeMirrorsResponseMirrorTopic) bool {
	return !slices.ContainsFunc(t.Partitions, func(p mirrormsg.DescribeMirrorsResponseMirrorTopicPartition) bool { return p.State != "STOPPED" })
}

// publishedCut is the lowest cut that the source publishes for a partition which it mirrors itself, among those made
// at epochs above the latest one here; -1 for none. Older ones were made before the copy had what it has.
func (u *upstream) publishedCut(ctx context.Context, topic string, id [16]byte, index, latest int32) (int64, error) {
	resp, ok, err := u.askMirrors(ctx, &u.statesAnswer, "")
	if err != nil {
		return -1, u.mirrorsError(ctx, err)
	}
	if !ok {
		return -1, nil
	}
	return lowestCut(resp, topic, id, index, latest), nil
}

func lowestCut(resp *mirrormsg.DescribeMirrorsResponse, topic string, id [16]byte, index, latest int32) int64 {
	lowest := int64(-1)
	for _, m := range resp.Mirrors {
		for _, t := range m.Topics {
			if t.TopicID != id || t.TopicName != topic {
				continue
			}
			for _, p := range t.Partitions {
				for _, c := range p.Cuts {
					if p.PartitionIndex == index && c.LeaderEpoch > latest && (lowest < 0 || c.Offset < lowest) {
						lowest = c.Offset
					}
				}
			}
		}
	}
	return lowest
}
