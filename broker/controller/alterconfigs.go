package controller

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/broker/meta"
	"stet/broker/meta/configs"
	"stet/broker/mirrormsg"
)

// IncrementalAlterConfigs changes configs of topics, brokers, mirrors and groups
// (KIP-339). Each resource succeeds or fails as a whole.
func (c *Controller) IncrementalAlterConfigs(ctx context.Context, req *kmsg.IncrementalAlterConfigsRequest) (*kmsg.IncrementalAlterConfigsResponse, error) {
	return do(ctx, c, func(img *meta.Image) ([]meta.Record, *kmsg.IncrementalAlterConfigsResponse) {
		return incrementalAlterConfigs(img, &c.env, req)
	})
}

func incrementalAlterConfigs(img *meta.Image, env *Env, req *kmsg.IncrementalAlterConfigsRequest) ([]meta.Record, *kmsg.IncrementalAlterConfigsResponse) {
	resp := req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	type resource struct {
		typ  kmsg.ConfigResourceType
		name string
	}
	count := map[resource]int{}
	for _, r := range req.Resources {
		count[resource{r.ResourceType, r.ResourceName}]++
	}
	ch := &change{img: img}
	answered := map[resource]bool{}
	for i := range req.Resources {
		r := &req.Resources[i]
		key := resource{r.ResourceType, r.ResourceName}
		if answered[key] {
			continue
		}
		answered[key] = true
		out := kmsg.NewIncrementalAlterConfigsResponseResource()
		out.ResourceType, out.ResourceName = r.ResourceType, r.ResourceName
		var recs []meta.Record
		err := error(nil)
		if count[key] > 1 {
			err = mirrormsg.Errorf(kerr.InvalidRequest, "Each resource must appear at most once.")
		} else {
			recs, err = alterResource(ch.img, env, r)
		}
		if err == nil {
			ch.add(recs...)
		}
		out.ErrorCode, out.ErrorMessage = mirrormsg.CodeAndMessage(err)
		resp.Resources = append(resp.Resources, out)
	}
	if req.ValidateOnly {
		return nil, resp
	}
	return ch.recs, resp
}

// alterable is what alterResource needs to know about a kind of resource.
type alterable struct {
	res      meta.Resource
	table    *configs.Table
	fallback func(key string) string // the value that APPEND and SUBTRACT begin with
}

func alterResource(img *meta.Image, env *Env, r *kmsg.IncrementalAlterConfigsRequestResource) ([]meta.Record, error) {
	a, err := alterableOf(img, env, r)
	if err != nil {
		return nil, err
	}
	old := img.Config(a.res.Type, a.res.Name)
	next := maps.Clone(old)
	if next == nil {
		next = map[string]string{}
	}
	seen := map[string]bool{}
	for i := range r.Configs {
		c := &r.Configs[i]
		if seen[c.Name] {
			return nil, mirrormsg.Errorf(kerr.InvalidRequest, "Error due to duplicate config keys: %s", c.Name)
		}
		seen[c.Name] = true
		if err := a.apply(next, c); err != nil {
			return nil, err
		}
	}
	if err := a.table.CheckAll(next); err != nil {
		return nil, a.invalid(err)
	}
	if a.table == configs.Mirror && seen["source.cluster.id"] {
		if err := refuseSelf(img, next); err != nil {
			return nil, err
		}
	}
	var recs []meta.Record
	for _, k := range slices.Sorted(maps.Keys(seen)) {
		was, had := old[k]
		is, has := next[k]
		switch {
		case has && (!had || was != is):
			recs = append(recs, &meta.SetConfig{Resource: a.res, Key: k, Value: &is})
		case had && !has:
			recs = append(recs, &meta.SetConfig{Resource: a.res, Key: k})
		}
	}
	return recs, nil
}

func alterableOf(img *meta.Image, env *Env, r *kmsg.IncrementalAlterConfigsRequestResource) (*alterable, error) {
	a := &alterable{res: meta.Resource{Type: meta.ResourceType(r.ResourceType), Name: r.ResourceName}}
	switch r.ResourceType {
	case kmsg.ConfigResourceTypeTopic:
		a.table = configs.Topic
		if img.Topic(r.ResourceName) == nil {
			return nil, mirrormsg.Errorf(kerr.UnknownTopicOrPartition, "The topic '%s' does not exist.", r.ResourceName)
		}
		a.fallback = func(key string) string {
			return configs.TopicValues(nil, env.brokerConfigs(img))[key]
		}
	case kmsg.ConfigResourceTypeBroker:
		a.table = configs.Broker
		if r.ResourceName != "" {
			id, err := strconv.ParseInt(r.ResourceName, 10, 32)
			if err != nil || strconv.FormatInt(id, 10) != r.ResourceName {
				return nil, mirrormsg.Errorf(kerr.InvalidRequest, "'%s' is not a broker id.", r.ResourceName)
			}
			if img.Broker(int32(id)) == nil {
				return nil, mirrormsg.Errorf(kerr.InvalidRequest, "Broker %d is not registered.", id)
			}
		}
		a.fallback = func(key string) string {
			v, _ := configs.BrokerValue(env.brokerConfigs(img), key)
			return v
		}
	case mirrormsg.ConfigResourceMirror:
		a.table = configs.Mirror
		if img.Mirror(r.ResourceName) == nil {
			return nil, mirrormsg.Errorf(mirrormsg.UnknownMirror, "There is no mirror '%s'.", r.ResourceName)
		}
		a.fallback = func(key string) string { return configs.Mirror.Lookup(key).Default }
	case kmsg.ConfigResourceType(meta.ResourceGroup):
		a.table = configs.Group
		if r.ResourceName == "" {
			return nil, mirrormsg.Errorf(kerr.InvalidRequest, "Default group resources are not allowed.")
		}
		a.fallback = func(key string) string { return configs.Group.Lookup(key).Default }
	default:
		return nil, mirrormsg.Errorf(kerr.InvalidRequest, "Configs of resource type %d cannot be altered here.", int8(r.ResourceType))
	}
	return a, nil
}

// apply makes one operation on the set.
func (a *alterable) apply(set map[string]string, c *kmsg.IncrementalAlterConfigsRequestResourceConfig) error {
	if a.table == configs.Topic && (c.Name == meta.ConfigMirrorName || c.Name == meta.ConfigMirrorStart) {
		return mirrormsg.Errorf(kerr.InvalidConfig, "Configuration %s is written by mirroring only; start, stop, pause or resume the topic instead.", c.Name)
	}
	if c.Op == kmsg.IncrementalAlterConfigOpDelete {
		delete(set, c.Name) // of a key that is not set or not known: nothing, as Kafka does
		return nil
	}
	if c.Value == nil {
		return mirrormsg.Errorf(kerr.InvalidRequest, "Null value not supported for : %s", c.Name)
	}
	if err := a.table.Check(c.Name, *c.Value); err != nil && (c.Op == kmsg.IncrementalAlterConfigOpSet || a.table.Lookup(c.Name) == nil) {
		return a.invalid(err)
	}
	if err := a.checkDynamic(c.Name); err != nil {
		return err
	}
	switch c.Op {
	case kmsg.IncrementalAlterConfigOpSet:
		if err := a.checkThreads(c.Name, *c.Value); err != nil {
			return err
		}
		set[c.Name] = *c.Value
	case kmsg.IncrementalAlterConfigOpAppend, kmsg.IncrementalAlterConfigOpSubtract:
		if !a.table.IsList(c.Name) {
			return mirrormsg.Errorf(kerr.InvalidConfig, "Can't %s to key %s because its type is not LIST.", c.Op, c.Name)
		}
		value, ok := set[c.Name]
		if !ok {
			value = a.fallback(c.Name)
		}
		set[c.Name] = editList(value, *c.Value, c.Op == kmsg.IncrementalAlterConfigOpAppend)
	default:
		return mirrormsg.Errorf(kerr.InvalidRequest, "Operation %d is not known.", int8(c.Op))
	}
	return nil
}

func (a *alterable) checkDynamic(key string) error {
	if d := a.table.Lookup(key); a.table == configs.Broker && d != nil && !d.Dynamic {
		return mirrormsg.Errorf(kerr.InvalidRequest, "Cannot update these configs dynamically: %s. It is read from the properties file at the start.", key)
	}
	return nil
}

// checkThreads refuses what Apache Kafka refuses: numbers of threads change at most by the
// factor two at a time.
func (a *alterable) checkThreads(key, value string) error {
	what := map[string]string{"log.cleaner.threads": "Log cleaner threads", "num.recovery.threads.per.data.dir": "Recovery threads"}[key]
	if a.table != configs.Broker || what == "" {
		return nil
	}
	now, _ := strconv.Atoi(strings.TrimSpace(a.fallback(key))) // both were checked
	next, _ := strconv.Atoi(strings.TrimSpace(value))
	switch {
	case next < 1:
		return mirrormsg.Errorf(kerr.InvalidRequest, "%s should be at least 1", what)
	case next < now/2:
		return mirrormsg.Errorf(kerr.InvalidRequest, "%s cannot be reduced to less than half the current value %d", what, now)
	case next > now*2:
		return mirrormsg.Errorf(kerr.InvalidRequest, "%s cannot be increased to more than double the current value %d", what, now)
	}
	return nil
}

// invalid is the answer to a value that is not allowed; Kafka's code for brokers differs.
func (a *alterable) invalid(err error) error {
	var value *configs.ValueError
	if a.table == configs.Broker && errors.As(err, &value) {
		return mirrormsg.Errorf(kerr.InvalidRequest, "%v", err)
	}
	return mirrormsg.Errorf(kerr.InvalidConfig, "%v", err)
}

// editList adds the items that are missing, or removes those that are there.
func editList(list, items string, add bool) string {
	parts := configs.SplitList(list)
	for _, item := range configs.SplitList(items) {
		has := slices.Contains(parts, item)
		switch {
		case add && !has:
			parts = append(parts, item)
		case !add && has:
			parts = slices.DeleteFunc(parts, func(p string) bool { return p == item })
		}
	}
	return strings.Join(parts, ",")
}

// SyncTopicConfigs sets and removes configs of a mirror topic on behalf of its
// mirror (SPEC section 8) and keeps the note of what the mirror itself has set.
// Keys in set are set where they differ; of the keys in remove only those that
// the mirror has set are removed. A topic that does not belong to the mirror any
// more, or that is of another id, is left alone: INVALID_MIRROR_STATE.
func (c *Controller) SyncTopicConfigs(ctx context.Context, mirror string, topicID [16]byte, set map[string]string, remove []string) error {
	refused, err := do(ctx, c, func(img *meta.Image) ([]meta.Record, refusal) {
		recs, err := syncTopicConfigs(img, mirror, topicID, set, remove)
		return recs, refusal{err}
	})
	return cmp.Or(err, refused.err)
}

// refusal carries what a request was refused with beside the error of the commit.
type refusal struct{ err error }

func syncTopicConfigs(img *meta.Image, mirror string, topicID [16]byte, set map[string]string, remove []string) ([]meta.Record, error) {
	m, t := img.Mirror(mirror), img.TopicByID(topicID)
	if m == nil {
		return nil, mirrormsg.UnknownMirror
	}
	if t == nil {
		return nil, kerr.UnknownTopicID
	}
	if name, state := img.TopicMirror(t.Name); name != mirror || state == meta.MirrorStopped || state == meta.MirrorStopping {
		return nil, mirrormsg.InvalidMirrorState
	}
	old := img.Config(meta.ResourceTopic, t.Name)
	next := maps.Clone(old)
	if next == nil {
		next = map[string]string{}
	}
	noted := img.MirrorSetConfigs(m.ID, t.ID)
	var notes []meta.Record
	for _, k := range slices.Sorted(maps.Keys(set)) {
		if err := configs.Topic.Check(k, set[k]); err != nil {
			return nil, mirrormsg.Errorf(kerr.InvalidConfig, "%v", err)
		}
		if was, ok := old[k]; ok && was == set[k] {
			continue // equal already, whoever set it
		}
		next[k] = set[k]
		if !slices.Contains(noted, k) {
			notes = append(notes, &meta.MirrorSetConfig{MirrorID: m.ID, TopicID: t.ID, Key: k, Set: true})
		}
	}
	for _, k := range remove {
		if slices.Contains(noted, k) {
			delete(next, k)
			notes = append(notes, &meta.MirrorSetConfig{MirrorID: m.ID, TopicID: t.ID, Key: k})
		}
	}
	if err := configs.Topic.CheckAll(next); err != nil {
		return nil, mirrormsg.Errorf(kerr.InvalidConfig, "%v", err)
	}
	return append(configDiff(meta.Resource{Type: meta.ResourceTopic, Name: t.Name}, old, next), notes...), nil
}

// configDiff are the records that lead from one set to another.
func configDiff(res meta.Resource, old, next map[string]string) []meta.Record {
	var recs []meta.Record
	for _, k := range slices.Sorted(maps.Keys(next)) {
		v := next[k]
		if was, ok := old[k]; !ok || was != v {
			recs = append(recs, &meta.SetConfig{Resource: res, Key: k, Value: &v})
		}
	}
	for _, k := range slices.Sorted(maps.Keys(old)) {
		if _, ok := next[k]; !ok {
			recs = append(recs, &meta.SetConfig{Resource: res, Key: k})
		}
	}
	return recs
}
