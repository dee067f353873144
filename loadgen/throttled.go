package loadgen

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	keyThrottledReplicas = "mirror.replication.throttled.replicas"
	keyThrottledRate     = "mirror.replication.throttled.rate"
)

// throttleSettings are the throttle's dynamic settings by broker and by topic; nil: not set there.
type throttleSettings struct {
	brokers map[int32]*string
	topics  map[string]*string
}

// readThrottle finds out what is set for every broker and for the topics. Defaults and the brokers' files stay out of it.
func (f *failover) readThrottle(ctx context.Context) (*throttleSettings, error) {
	adm := kadm.NewClient(f.dst.cl)
	brokers, err := adm.ListBrokers(ctx)
	if err != nil {
		return nil, f.dst.failed(err)
	}
	s := &throttleSettings{brokers: map[int32]*string{}, topics: map[string]*string{}}
	var ids []int32
	for _, b := range brokers {
		ids = append(ids, b.NodeID)
	}
	set := func(rc kadm.ResourceConfig, key string, from kmsg.ConfigSource) (*string, error) {
		if rc.Err != nil {
			return nil, fmt.Errorf("the settings of %s: %w %s", rc.Name, rc.Err, rc.ErrMessage)
		}
		for _, c := range rc.Configs {
			if c.Key == key && c.Source == from {
				return c.Value, nil
			}
		}
		return nil, nil
	}
	br, err := adm.DescribeBrokerConfigs(ctx, ids...)
	if err != nil {
		return nil, err
	}
	for _, rc := range br {
		id, err := strconv.ParseInt(rc.Name, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("settings of a broker %q", rc.Name)
		}
		if s.brokers[int32(id)], err = set(rc, keyThrottledRate, kmsg.ConfigSourceDynamicBrokerConfig); err != nil {
			return nil, err
		}
	}
	tr, err := adm.DescribeTopicConfigs(ctx, f.topics...)
	if err != nil {
		return nil, err
	}
	for _, rc := range tr {
		if s.topics[rc.Name], err = set(rc, keyThrottledReplicas, kmsg.ConfigSourceDynamicTopicConfig); err != nil {
			return nil, err
		}
	}
	if len(s.brokers) != len(ids) || len(s.topics) != len(f.topics) { // what is not known cannot be put back
		return nil, fmt.Errorf("the destination told the settings of %d of %d brokers and of %d of %d topics", len(s.brokers), len(ids), len(s.topics), len(f.topics))
	}
	return s, nil
}

// throttled is the same brokers and topics with one rate for all replicas.
func (s *throttleSettings) throttled(rate int64) *throttleSettings {
	star, text := "*", strconv.FormatInt(rate, 10)
	out := &throttleSettings{brokers: map[int32]*string{}, topics: map[string]*string{}}
	for id := range s.brokers {
		out.brokers[id] = &text
	}
	for t := range s.topics {
		out.topics[t] = &star
	}
	return out
}

// writeThrottle sets what s says, and deletes what s says is not set. It goes on after an error.
func (f *failover) writeThrottle(ctx context.Context, s *throttleSettings) error {
	adm := kadm.NewClient(f.dst.cl)
	var errs []error
	note := func(rs kadm.AlterConfigsResponses, err error) {
		if err != nil {
			errs = append(errs, f.dst.failed(err))
		}
		for _, r := range rs {
			if r.Err != nil {
				errs = append(errs, fmt.Errorf("%s: %w %s", r.Name, r.Err, r.ErrMessage))
			}
		}
	}
	for _, g := range group(s.brokers) {
		note(adm.AlterBrokerConfigs(ctx, []kadm.AlterConfig{alter(keyThrottledRate, g.value)}, g.names...))
	}
	for _, g := range group(s.topics) {
		note(adm.AlterTopicConfigs(ctx, []kadm.AlterConfig{alter(keyThrottledReplicas, g.value)}, g.names...))
	}
	return errors.Join(errs...)
}

func alter(key string, value *string) kadm.AlterConfig {
	if value == nil {
		return kadm.AlterConfig{Op: kadm.DeleteConfig, Name: key}
	}
	return kadm.AlterConfig{Op: kadm.SetConfig, Name: key, Value: value}
}

// sameValue are the brokers or topics that get the same value.
type sameValue[K int32 | string] struct {
	value *string
	names []K
}

func group[K int32 | string](m map[K]*string) (out []*sameValue[K]) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		v := m[k]
		i := slices.IndexFunc(out, func(g *sameValue[K]) bool {
			return (g.value == nil) == (v == nil) && (v == nil || *g.value == *v)
		})
		if i < 0 {
			i, out = len(out), append(out, &sameValue[K]{value: v})
		}
		out[i].names = append(out[i].names, k)
	}
	return out
}

// commands are what an operator types to set s.
func (s *throttleSettings) commands(bootstrap string) string {
	var out []string
	add := func(kind, name, key string, value *string) {
		what := "--delete-config " + key
		if value != nil {
			what = fmt.Sprintf("--add-config '%s=[%s]'", key, *value)
		}
		out = append(out, fmt.Sprintf("stet configs --bootstrap-server %s --alter --entity-type %s --entity-name %s %s", bootstrap, kind, name, what))
	}
	for _, id := range slices.Sorted(maps.Keys(s.brokers)) {
		add("brokers", fmt.Sprint(id), keyThrottledRate, s.brokers[id])
	}
	for _, t := range slices.Sorted(maps.Keys(s.topics)) {
		add("topics", t, keyThrottledReplicas, s.topics[t])
	}
	return strings.Join(out, "\n  ")
}
