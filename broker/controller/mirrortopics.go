package controller

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"

	"stet/broker/meta"
	"stet/broker/meta/configs"
	"stet/broker/mirrormsg"
)

// topicRef is a topic of a stop, pause or resume request.
type topicRef struct {
	id   [16]byte
	name string
}

// find resolves a reference: by name, by id, or by both, which must agree.
func (r topicRef) find(img *meta.Image) (*meta.Topic, error) {
	var t *meta.Topic
	if r.name != "" {
		t = img.Topic(r.name)
	} else if r.id != [16]byte{} {
		t = img.TopicByID(r.id)
	}
	if t != nil && r.id != [16]byte{} && t.ID != r.id {
		return nil, mirrormsg.Errorf(kerr.InconsistentTopicID, "Topic '%s' has id %s, not %s.", t.Name, mirrormsg.UUIDString(t.ID), mirrormsg.UUIDString(r.id))
	}
	return t, nil
}

func (r topicRef) String() string {
	if r.name != "" {
		return r.name
	}
	return mirrormsg.UUIDString(r.id)
}

// member finds a topic and its state in the mirror; a topic that is not in it is
// TOPIC_NOT_IN_MIRROR.
func member(img *meta.Image, mirror string, ref topicRef) (*meta.Topic, meta.MirrorTopicState, error) {
	t, err := ref.find(img)
	if err != nil {
		return nil, meta.NotMirrored, err
	}
	if t == nil {
		return nil, meta.NotMirrored, mirrormsg.Errorf(mirrormsg.TopicNotInMirror, "There is no topic '%s', in mirror '%s' or elsewhere.", ref, mirror)
	}
	name, state := img.TopicMirror(t.Name)
	if name != mirror {
		return nil, meta.NotMirrored, mirrormsg.Errorf(mirrormsg.TopicNotInMirror, "Topic '%s' is not in mirror '%s'.", t.Name, mirror)
	}
	return t, state, nil
}

// checkStateOffset refuses a request whose sender looked at the states before the
// topic's mirror state changed last (SPEC section 9, racing requests).
func checkStateOffset(t *meta.Topic, stateOffset int64) error {
	if stateOffset >= 0 && (t.MirrorOffset >= stateOffset || t.Incarnation >= stateOffset) {
		return mirrormsg.Errorf(mirrormsg.InvalidMirrorState, "The mirror state of topic '%s' changed at metadata offset %d, after it was looked at (%d); try again.", t.Name, max(t.MirrorOffset, t.Incarnation), stateOffset)
	}
	return nil
}

func checkMirrorExists(img *meta.Image, name string) error {
	if img.Mirror(name) == nil {
		return mirrormsg.Errorf(mirrormsg.UnknownMirror, "There is no mirror '%s'.", name)
	}
	return nil
}

func result(name string, err error) mirrormsg.MirrorTopicResult {
	r := mirrormsg.NewMirrorTopicResult()
	r.Name = name
	r.ErrorCode, r.ErrorMessage = mirrormsg.CodeAndMessage(err)
	return r
}

// StopMirrorTopics begins the stop of topics: <mirror>.stopping (SPEC section 7
// does the rest). Patterns are matched in full against the mirror's topics.
// Topics that are being stopped or are stopped succeed and stay as they are.
func (c *Controller) StopMirrorTopics(ctx context.Context, req *mirrormsg.StopMirrorTopicsRequest) (*mirrormsg.StopMirrorTopicsResponse, error) {
	return do(ctx, c, func(img *meta.Image) ([]meta.Record, *mirrormsg.StopMirrorTopicsResponse) {
		return stopMirrorTopics(img, req)
	})
}

func stopMirrorTopics(img *meta.Image, req *mirrormsg.StopMirrorTopicsRequest) ([]meta.Record, *mirrormsg.StopMirrorTopicsResponse) {
	resp := mirrormsg.NewPtrStopMirrorTopicsResponse()
	resp.MirrorName = req.MirrorName
	fail := func(err error) ([]meta.Record, *mirrormsg.StopMirrorTopicsResponse) {
		resp.ErrorCode, resp.ErrorMessage = mirrormsg.CodeAndMessage(err)
		return nil, resp
	}
	if err := checkMirrorExists(img, req.MirrorName); err != nil {
		return fail(err)
	}
	matchers, err := compilePatterns(req.Patterns)
	if err != nil {
		return fail(err)
	}
	var refs []topicRef
	for _, t := range req.Topics {
		refs = append(refs, topicRef{t.TopicID, t.TopicName})
	}
	for _, t := range img.MirrorTopics(req.MirrorName) {
		if _, state := img.TopicMirror(t.Name); state == meta.MirrorStopped {
			continue
		}
		named := slices.ContainsFunc(refs, func(r topicRef) bool { return r.name == t.Name || r.name == "" && r.id == t.ID })
		if !named && slices.ContainsFunc(matchers, func(m *regexp.Regexp) bool { return m.MatchString(t.Name) }) {
			refs = append(refs, topicRef{t.ID, t.Name})
		}
	}
	ch := &change{img: img}
	for _, ref := range refs {
		name, err := stopTopic(ch, req.MirrorName, ref, req.StateOffset)
		resp.Topics = append(resp.Topics, result(name, err))
	}
	for _, p := range req.Patterns {
		ch.editPatterns(req.MirrorName, p, patternStop)
	}
	if req.DryRun {
		return nil, resp
	}
	return ch.recs, resp
}

func stopTopic(ch *change, mirror string, ref topicRef, stateOffset int64) (string, error) {
	t, state, err := member(ch.img, mirror, ref)
	if err != nil {
		// A start that is kept because the source was away is taken back.
		if errors.Is(err, mirrormsg.TopicNotInMirror) && ref.name != "" && ch.dropKeptStart(mirror, ref.name) {
			return ref.String(), nil
		}
		return ref.String(), err
	}
	if state == meta.MirrorStopping || state == meta.MirrorStopped {
		return t.Name, nil
	}
	if err := checkStateOffset(t, stateOffset); err != nil {
		return t.Name, err
	}
	ch.add(mirrorNameRecord(t.Name, mirror, meta.MirrorStopping))
	return t.Name, nil
}

// PauseMirrorTopics pauses topics.
func (c *Controller) PauseMirrorTopics(ctx context.Context, req *mirrormsg.PauseMirrorTopicsRequest) (*mirrormsg.PauseMirrorTopicsResponse, error) {
	var refs []topicRef
	for _, t := range req.Topics {
		refs = append(refs, topicRef{t.TopicID, t.TopicName})
	}
	return do(ctx, c, func(img *meta.Image) ([]meta.Record, *mirrormsg.PauseMirrorTopicsResponse) {
		resp := mirrormsg.NewPtrPauseMirrorTopicsResponse()
		resp.MirrorName = req.MirrorName
		recs, results, err := changeState(img, req.MirrorName, refs, pauseTopic)
		resp.Topics = results
		resp.ErrorCode, resp.ErrorMessage = mirrormsg.CodeAndMessage(err)
		return recs, resp
	})
}

// ResumeMirrorTopics resumes paused topics.
func (c *Controller) ResumeMirrorTopics(ctx context.Context, req *mirrormsg.ResumeMirrorTopicsRequest) (*mirrormsg.ResumeMirrorTopicsResponse, error) {
	var refs []topicRef
	for _, t := range req.Topics {
		refs = append(refs, topicRef{t.TopicID, t.TopicName})
	}
	return do(ctx, c, func(img *meta.Image) ([]meta.Record, *mirrormsg.ResumeMirrorTopicsResponse) {
		resp := mirrormsg.NewPtrResumeMirrorTopicsResponse()
		resp.MirrorName = req.MirrorName
		recs, results, err := changeState(img, req.MirrorName, refs, resumeTopic)
		resp.Topics = results
		resp.ErrorCode, resp.ErrorMessage = mirrormsg.CodeAndMessage(err)
		return recs, resp
	})
}

func changeState(img *meta.Image, mirror string, refs []topicRef, step func(*meta.Topic, meta.MirrorTopicState) (meta.MirrorTopicState, error)) ([]meta.Record, []mirrormsg.MirrorTopicResult, error) {
	if err := checkMirrorExists(img, mirror); err != nil {
		return nil, nil, err
	}
	ch := &change{img: img}
	var results []mirrormsg.MirrorTopicResult
	for _, ref := range refs {
		name := ref.String()
		t, state, err := member(ch.img, mirror, ref)
		if err == nil {
			name = t.Name
			if state, err = step(t, state); err == nil {
				ch.add(mirrorNameRecord(t.Name, mirror, state))
			}
		}
		results = append(results, result(name, err))
	}
	return ch.recs, results, nil
}

func pauseTopic(t *meta.Topic, state meta.MirrorTopicState) (meta.MirrorTopicState, error) {
	switch state {
	case meta.MirrorPaused:
		return 0, mirrormsg.Errorf(mirrormsg.MirrorTopicAlreadyPaused, "Topic '%s' is paused already.", t.Name)
	case meta.MirrorStopping:
		return 0, mirrormsg.Errorf(mirrormsg.MirrorTopicBeingStopped, "Topic '%s' is being stopped.", t.Name)
	case meta.MirrorStopped:
		return 0, mirrormsg.Errorf(mirrormsg.InvalidMirrorState, "Topic '%s' is stopped; a stopped topic cannot be paused.", t.Name)
	}
	return meta.MirrorPaused, nil
}

func resumeTopic(t *meta.Topic, state meta.MirrorTopicState) (meta.MirrorTopicState, error) {
	if state != meta.MirrorPaused {
		return 0, mirrormsg.Errorf(mirrormsg.MirrorTopicNotPaused, "Topic '%s' is not paused (%s).", t.Name, state)
	}
	return meta.MirrorActive, nil
}

func compilePatterns(patterns []string) ([]*regexp.Regexp, error) {
	var all []*regexp.Regexp
	for _, p := range patterns {
		re, err := regexp.Compile("^(?:" + p + ")$")
		if err != nil {
			return nil, mirrormsg.Errorf(kerr.InvalidRegularExpression, "Pattern %q: %v", p, err)
		}
		if strings.Contains(p, ",") || strings.TrimSpace(p) != p || p == "" {
			return nil, mirrormsg.Errorf(kerr.InvalidRegularExpression, "Pattern %q: patterns are kept in a list and can be neither empty nor hold commas or spaces at their ends; use [,] in place of a comma", p)
		}
		all = append(all, re)
	}
	return all, nil
}

// What a request does to the lists mirror.topics.include and .exclude (SPEC section 9).
type patternEdit int

const (
	patternInclude patternEdit = iota // start: into include, out of exclude
	patternExclude                    // start: into exclude, out of include
	patternStop                       // stop: out of include, or else into exclude
)

const (
	keyInclude = "mirror.topics.include"
	keyExclude = "mirror.topics.exclude"
)

func (ch *change) editPatterns(mirror, pattern string, edit patternEdit) {
	set := ch.img.Config(meta.ResourceMirror, mirror)
	include := configs.SplitList(configs.MirrorValue(set, keyInclude))
	exclude := configs.SplitList(configs.MirrorValue(set, keyExclude))
	if edit == patternStop {
		if slices.Contains(include, pattern) {
			include = without(include, pattern)
		} else {
			exclude = with(exclude, pattern)
		}
	}
	if edit == patternInclude {
		include, exclude = with(include, pattern), without(exclude, pattern)
	}
	if edit == patternExclude {
		include, exclude = without(include, pattern), with(exclude, pattern)
	}
	ch.setList(mirror, keyInclude, include)
	ch.setList(mirror, keyExclude, exclude)
}

// dropKeptStart removes a name from include; ok says whether it was there.
func (ch *change) dropKeptStart(mirror, name string) (ok bool) {
	include := configs.SplitList(configs.MirrorValue(ch.img.Config(meta.ResourceMirror, mirror), keyInclude))
	for _, form := range []string{name, regexp.QuoteMeta(name)} {
		if slices.Contains(include, form) {
			include, ok = without(include, form), true
		}
	}
	if ok {
		ch.setList(mirror, keyInclude, include)
	}
	return ok
}

func (ch *change) setList(mirror, key string, list []string) {
	value := strings.Join(list, ",")
	if value != configs.MirrorValue(ch.img.Config(meta.ResourceMirror, mirror), key) {
		ch.setConfig(meta.ResourceMirror, mirror, key, value)
	}
}

func with(list []string, item string) []string {
	if slices.Contains(list, item) {
		return list
	}
	return append(slices.Clone(list), item)
}

func without(list []string, item string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == item })
}
