package mirror

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"

	"stet/broker/meta"
	"stet/broker/meta/configs"
	"stet/broker/mirror/mirrorstate"
	"stet/broker/mirrormsg"
	"stet/fetcher/source"
)

// StartMirrorTopics answers StartMirrorTopics: names, ids and patterns are resolved at the source, then the controller
// creates and joins the topics in one metadata change. With a source that cannot be reached names and patterns are kept
// in mirror.topics.include and tried again by the refresh (SPEC section 9).
func (m *Manager) StartMirrorTopics(ctx context.Context, req *mirrormsg.StartMirrorTopicsRequest) *mirrormsg.StartMirrorTopicsResponse {
	resp, err := m.start(ctx, req)
	if err != nil {
		resp = mirrormsg.NewPtrStartMirrorTopicsResponse()
		resp.MirrorName = req.MirrorName
		resp.ErrorCode, resp.ErrorMessage = mirrormsg.CodeAndMessage(err)
	}
	return resp
}

func (m *Manager) start(ctx context.Context, req *mirrormsg.StartMirrorTopicsRequest) (*mirrormsg.StartMirrorTopicsResponse, error) {
	img := m.o.Image()
	mi := img.Mirror(req.MirrorName)
	if mi == nil {
		return nil, mirrormsg.Errorf(mirrormsg.UnknownMirror, "There is no mirror '%s'.", req.MirrorName)
	}
	u, err := m.upstreamOf(ctx, mi)
	if err != nil {
		return nil, err
	}
	include, exclude, err := startFilters(req)
	if err != nil {
		return nil, err
	}
	if !req.DryRun {
		if err := m.o.Coordinator.EnsureTopic(ctx); err != nil {
			return nil, fmt.Errorf("the topic __mirror_state is not there yet: %w", err)
		}
	}
	found, refused, err := u.resolve(ctx, req, include, exclude)
	if err != nil {
		var f *failure
		if errors.As(err, &f) && f.kind == failSource {
			return m.keepStart(ctx, req, err)
		}
		return nil, mirrormsg.Errorf(kerr.InvalidRequest, "%v", err)
	}
	// What is running already, without a FAILED partition, succeeds and stays as it is.
	var start []source.Topic
	done := map[string]bool{}
	again := false
	for _, t := range found {
		name, state := img.TopicMirror(t.Name)
		if state == meta.MirrorActive && name == req.MirrorName {
			if !m.anyFailed(img.Topic(t.Name)) {
				done[t.Name] = true
				continue
			}
			again = true
		}
		start = append(start, t)
	}
	send := mirrormsg.NewPtrStartMirrorTopicsRequest()
	send.MirrorName, send.IncludePatterns, send.ExcludePatterns, send.DryRun, send.Overwrite = req.MirrorName, req.IncludePatterns, req.ExcludePatterns, req.DryRun, req.Overwrite
	send.StateOffset = req.StateOffset
	if again && send.StateOffset < 0 {
		send.StateOffset = img.Offset()
	}
	var cuts map[string][]mirrormsg.MirrorTopicResultCut
	if start, cuts, refused, err = m.checkLocal(ctx, u, req, img, start, refused); err != nil {
		return nil, err
	}
	if send.Topics, err = u.resolved(ctx, img, start); err != nil {
		return nil, mirrormsg.Errorf(kerr.NetworkException, "%v", err)
	}
	resp, err := m.o.Controller.StartMirrorTopics(ctx, send)
	if err != nil {
		return nil, err
	}
	for i := range resp.Topics {
		resp.Topics[i].Cuts = cuts[resp.Topics[i].Name]
	}
	for name := range done {
		resp.Topics = append(resp.Topics, topicResult(name, nil))
	}
	resp.Topics = append(resp.Topics, refused...)
	slices.SortFunc(resp.Topics, func(a, b mirrormsg.MirrorTopicResult) int { return strings.Compare(a.Name, b.Name) })
	if !req.DryRun {
		u.kick()
	}
	return resp, nil
}

func topicResult(name string, err error) mirrormsg.MirrorTopicResult {
	r := mirrormsg.NewMirrorTopicResult()
	r.Name = name
	r.ErrorCode, r.ErrorMessage = mirrormsg.CodeAndMessage(err)
	return r
}

func startFilters(req *mirrormsg.StartMirrorTopicsRequest) (include, exclude filter, err error) {
	for _, list := range []struct {
		patterns []string
		to       *filter
	}{{req.IncludePatterns, &include}, {req.ExcludePatterns, &exclude}} {
		for _, p := range list.patterns {
			re, err := compile(p)
			if err != nil {
				return nil, nil, mirrormsg.Errorf(kerr.InvalidRegularExpression, "%v", err)
			}
			*list.to = append(*list.to, re)
		}
	}
	return include, exclude, nil
}

// resolve finds the request's topics at the source. Names that are not there are refused one by one.
func (u *upstream) resolve(ctx context.Context, req *mirrormsg.StartMirrorTopicsRequest, include, exclude filter) (found []source.Topic, refused []mirrormsg.MirrorTopicResult, err error) {
	if err := u.verify(ctx); err != nil {
		return nil, nil, err
	}
	var names []string
	ids := false
	for _, t := range req.Topics {
		if t.TopicName != "" {
			names = append(names, t.TopicName)
		} else {
			ids = true
		}
	}
	all := map[string]source.Topic{}
	if len(include) > 0 || ids {
		names = nil // the list of all topics has them too
	}
	if len(names) > 0 || len(include) > 0 || ids {
		topics, err := u.source().Topics(ctx, names)
		if err != nil {
			u.noted(err)
			return nil, nil, sourceError(-1, err)
		}
		for _, t := range topics {
			all[t.Name] = t
		}
	}
	seen := map[string]bool{}
	for _, want := range req.Topics {
		t, err := pick(all, want.TopicName, want.TopicID)
		switch {
		case err != nil:
			refused = append(refused, topicResult(want.TopicName, err))
		case !seen[t.Name]:
			seen[t.Name] = true
			found = append(found, t)
		}
	}
	if len(include) > 0 {
		config, err := parseFilter(u.setting("mirror.topics.exclude"))
		if err != nil {
			return nil, nil, mirrormsg.Errorf(kerr.InvalidConfig, "mirror.topics.exclude: %v", err)
		}
		for _, name := range sortedKeys(all) {
			t := all[name]
			// A pattern that is started is taken out of the mirror's exclude list.
			excluded := exclude.match(name) || without(config, req.IncludePatterns).match(name)
			if !seen[name] && t.Err == nil && startable(t) && include.match(name) && !excluded {
				seen[name] = true
				found = append(found, t)
			}
		}
	}
	return found, refused, nil
}

func without(f filter, patterns []string) filter {
	return slices.DeleteFunc(slices.Clone(f), func(re *regexp.Regexp) bool {
		return slices.ContainsFunc(patterns, func(p string) bool { return re.String() == "^(?:"+p+")$" })
	})
}

func sortedKeys(m map[string]source.Topic) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// pick finds a topic by name, by id, or by both, which must agree.
func pick(all map[string]source.Topic, name string, id [16]byte) (source.Topic, error) {
	if name == "" {
		for _, t := range all {
			if t.ID == id && id != [16]byte{} {
				name = t.Name
			}
		}
	}
	t, ok := all[name]
	switch {
	case name == "" || !ok || errors.Is(t.Err, kerr.UnknownTopicOrPartition):
		if name == "" {
			name = mirrormsg.UUIDString(id)
		}
		return t, mirrormsg.Errorf(kerr.UnknownTopicOrPartition, "There is no topic '%s' at the source.", name)
	case t.Err != nil:
		return t, mirrormsg.Errorf(t.Err, "Topic '%s' at the source: %v", name, t.Err)
	case !startable(t):
		return t, mirrormsg.Errorf(kerr.InvalidTopicException, "Topic '%s' is internal; internal topics are never mirrored.", name)
	case id != [16]byte{} && t.ID != id:
		return t, mirrormsg.Errorf(kerr.InconsistentTopicID, "Topic '%s' has id %s at the source, not %s.", name, mirrormsg.UUIDString(t.ID), mirrormsg.UUIDString(id))
	}
	return t, nil
}

// resolved makes the controller's request of topics of the source, with the configs that they are created with.
func (u *upstream) resolved(ctx context.Context, img *meta.Image, topics []source.Topic) ([]mirrormsg.StartMirrorTopicsRequestTopic, error) {
	names := make([]string, len(topics))
	for i, t := range topics {
		names[i] = t.Name
	}
	found, refused, err := u.source().TopicConfigs(ctx, names)
	if err != nil {
		return nil, sourceError(-1, err)
	}
	u.mu.Lock()
	exclude := u.exclude
	u.mu.Unlock()
	var out []mirrormsg.StartMirrorTopicsRequestTopic
	for _, t := range topics {
		if err := refused[t.Name]; err != nil {
			return nil, patient(fmt.Errorf("the source's configs of topic %s: %w", t.Name, err))
		}
		r := mirrormsg.NewStartMirrorTopicsRequestTopic()
		r.TopicID, r.TopicName, r.NumPartitions = t.ID, t.Name, int32(len(t.Partitions))
		if r.TopicID == [16]byte{} { // a source without topic ids
			r.TopicID = mirrormsg.RandomUUID()
			if have := img.Topic(t.Name); have != nil {
				r.TopicID = have.ID
			}
		}
		for _, c := range found[t.Name] {
			if syncedConfig(c.Name, exclude) && configs.Topic.Check(c.Name, c.Value) == nil {
				rc := mirrormsg.NewStartMirrorTopicsRequestTopicConfig()
				rc.Name, rc.Value = c.Name, &c.Value
				r.Configs = append(r.Configs, rc)
			}
		}
		out = append(out, r)
	}
	return out, nil
}

// anyFailed says whether a partition of the topic is FAILED.
func (m *Manager) anyFailed(t *meta.Topic) bool {
	for i := range t.Partitions {
		if d := m.driver(t.ID, int32(i)); d != nil {
			if v, _ := d.look(); v.state == mirrorstate.Failed {
				return true
			}
		}
	}
	return false
}

// checkLocal looks at topics that exist here and are not being mirrored: what would be cut is reported in a dry run, and a topic whose
// records have nothing to do with the source's is refused before anything is changed.
func (m *Manager) checkLocal(ctx context.Context, u *upstream, req *mirrormsg.StartMirrorTopicsRequest, img *meta.Image, topics []source.Topic, refused []mirrormsg.MirrorTopicResult) ([]source.Topic, map[string][]mirrormsg.MirrorTopicResultCut, []mirrormsg.MirrorTopicResult, error) {
	cuts := map[string][]mirrormsg.MirrorTopicResultCut{}
	var keep []source.Topic
	for _, t := range topics {
		local := img.Topic(t.Name)
		name, state := img.TopicMirror(t.Name)
		mine := state == meta.NotMirrored || name == req.MirrorName && state == meta.MirrorStopped
		if local == nil || !mine || t.ID != [16]byte{} && t.ID != local.ID {
			keep = append(keep, t) // new, or for the controller to judge
			continue
		}
		list, err := m.dryRun(ctx, u, t, local, req.Overwrite)
		if errors.Is(err, errSuperseded) {
			return nil, nil, nil, ctx.Err()
		}
		if err != nil {
			if mirrormsg.CodeForError(err) == kerr.UnknownServerError.Code {
				err = mirrormsg.Errorf(kerr.NetworkException, "%v", err)
			}
			refused = append(refused, topicResult(t.Name, err))
			continue
		}
		cuts[t.Name] = list
		keep = append(keep, t)
	}
	return keep, cuts, refused, nil
}

// dryRun plans PREPARING for a topic's partitions that this broker leads.
func (m *Manager) dryRun(ctx context.Context, u *upstream, t source.Topic, local *meta.Topic, overwrite bool) ([]mirrormsg.MirrorTopicResultCut, error) {
	pairs, err := m.readPairs(ctx, u, []*meta.Topic{local})
	if err != nil {
		return nil, err
	}
	var out []mirrormsg.MirrorTopicResultCut
	for _, p := range t.Partitions {
		if int(p.Index) >= len(local.Partitions) || local.Partitions[p.Index].Leader != m.o.Node {
			continue
		}
		part := m.o.Partitions.Get(local.Name, p.Index)
		if part == nil {
			continue
		}
		own := noPair
		if q, ok := pairs[partitionKey{local.ID, p.Index}]; ok {
			own = q
		}
		pl := planner{up: u, part: part, topic: local.Name, id: local.ID, index: p.Index, overwrite: overwrite, own: own}
		c, err := pl.plan(ctx, p)
		if err != nil {
			return nil, unwrapWire(err)
		}
		if c.cuts() {
			rc := mirrormsg.NewMirrorTopicResultCut()
			rc.PartitionIndex, rc.FromOffset, rc.ToOffset = p.Index, c.from, c.to
			out = append(out, rc)
		}
	}
	return out, nil
}

// unwrapWire prefers the protocol error in a failure to the failure.
func unwrapWire(err error) error {
	var w *mirrormsg.WireError
	if errors.As(err, &w) {
		return w
	}
	return err
}

// keepExisting says whether the start of a topic that exists here can be kept while the source is away: mirror.topics.include
// is only for topics that are not here yet. One of this mirror takes its intent in the metadata, as ever; whether the records of
// any other topic are the source's only the source can tell, so it stays as it is.
func (m *Manager) keepExisting(img *meta.Image, req *mirrormsg.StartMirrorTopicsRequest, have *meta.Topic, id [16]byte, why error) (mirrormsg.MirrorTopicResult, bool) {
	switch name, state := img.TopicMirror(have.Name); {
	case id != [16]byte{} && id != have.ID:
		return topicResult(have.Name, mirrormsg.Errorf(kerr.InconsistentTopicID, "Topic '%s' exists with id %s, not %s.", have.Name, mirrormsg.UUIDString(have.ID), mirrormsg.UUIDString(id))), false
	case state == meta.NotMirrored:
		return topicResult(have.Name, mirrormsg.Errorf(kerr.NetworkException, "Topic '%s' exists here, and the source cannot be reached to compare it (%v); start it again when the source is there.", have.Name, why)), false
	case name != req.MirrorName:
		return topicResult(have.Name, mirrormsg.Errorf(mirrormsg.TopicAlreadyInMirror, "Topic '%s' belongs to mirror '%s' (%s).", have.Name, name, state)), false
	}
	return topicResult(have.Name, nil), true
}

// keepStart keeps names and patterns for when the source is there.
func (m *Manager) keepStart(ctx context.Context, req *mirrormsg.StartMirrorTopicsRequest, why error) (*mirrormsg.StartMirrorTopicsResponse, error) {
	send := mirrormsg.NewPtrStartMirrorTopicsRequest()
	send.MirrorName, send.DryRun, send.ExcludePatterns = req.MirrorName, req.DryRun, req.ExcludePatterns
	send.IncludePatterns = slices.Clone(req.IncludePatterns)
	text := fmt.Sprintf("The source cannot be reached (%v); the start is kept and tried again until it is there.", why)
	img := m.o.Image()
	var results []mirrormsg.MirrorTopicResult
	for _, t := range req.Topics {
		have := img.Topic(t.TopicName)
		if t.TopicName == "" {
			have = img.TopicByID(t.TopicID)
		}
		if have != nil {
			if r, ok := m.keepExisting(img, req, have, t.TopicID, why); ok {
				if _, state := img.TopicMirror(have.Name); state == meta.MirrorActive {
					if !m.anyFailed(have) { // running already
						results = append(results, r)
						continue
					}
					if send.StateOffset = req.StateOffset; send.StateOffset < 0 {
						send.StateOffset = img.Offset()
					}
				}
				st := mirrormsg.NewStartMirrorTopicsRequestTopic()
				st.TopicID, st.TopicName = have.ID, have.Name
				send.Topics, send.Overwrite = append(send.Topics, st), req.Overwrite
			} else {
				results = append(results, r)
			}
			continue
		}
		if t.TopicName == "" {
			results = append(results, topicResult(mirrormsg.UUIDString(t.TopicID), mirrormsg.Errorf(kerr.NetworkException, "The source cannot be reached (%v); a start by id alone cannot be kept.", why)))
			continue
		}
		send.IncludePatterns = append(send.IncludePatterns, regexp.QuoteMeta(t.TopicName))
		r := topicResult(t.TopicName, nil)
		r.ErrorMessage = &text
		results = append(results, r)
	}
	resp, err := m.o.Controller.StartMirrorTopics(ctx, send)
	if err != nil || resp.ErrorCode != 0 {
		return resp, err
	}
	for i := range resp.Topics {
		if resp.Topics[i].ErrorCode == 0 {
			resp.Topics[i].ErrorMessage = &text
		}
	}
	resp.Topics = append(resp.Topics, results...)
	slices.SortFunc(resp.Topics, func(a, b mirrormsg.MirrorTopicResult) int { return strings.Compare(a.Name, b.Name) })
	resp.ErrorMessage = &text
	if u := m.upstream(req.MirrorName); u != nil && !req.DryRun {
		u.kick()
	}
	return resp, nil
}
