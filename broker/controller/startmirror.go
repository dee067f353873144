package controller

import (
	"context"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"

	"stet/broker/meta"
	"stet/broker/meta/configs"
	"stet/broker/mirrormsg"
)

// StartMirrorTopics creates and joins topics to a mirror, in one metadata change.
// Names, patterns and ids have been resolved at the source before: each topic
// comes with its id, partition count and configs. IncludePatterns and
// ExcludePatterns are only kept. A topic that is active already is restarted (a
// new mirror.start, on which FAILED partitions run PREPARING) if StateOffset is
// set, which says that its states were looked at and some are FAILED; without it
// an active topic succeeds and stays as it is.
func (c *Controller) StartMirrorTopics(ctx context.Context, req *mirrormsg.StartMirrorTopicsRequest) (*mirrormsg.StartMirrorTopicsResponse, error) {
	return do(ctx, c, func(img *meta.Image) ([]meta.Record, *mirrormsg.StartMirrorTopicsResponse) {
		return startMirrorTopics(img, &c.env, req)
	})
}

func startMirrorTopics(img *meta.Image, env *Env, req *mirrormsg.StartMirrorTopicsRequest) ([]meta.Record, *mirrormsg.StartMirrorTopicsResponse) {
	resp := mirrormsg.NewPtrStartMirrorTopicsResponse()
	resp.MirrorName = req.MirrorName
	err := checkMirrorExists(img, req.MirrorName)
	if err == nil {
		_, err = compilePatterns(slices.Concat(req.IncludePatterns, req.ExcludePatterns))
	}
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = mirrormsg.CodeAndMessage(err)
		return nil, resp
	}
	ch := &change{img: img}
	start := starter{ch: ch, env: env, mirror: img.Mirror(req.MirrorName), req: req}
	for i := range req.Topics {
		t := &req.Topics[i]
		resp.Topics = append(resp.Topics, result(t.TopicName, start.topic(t)))
	}
	for _, p := range req.IncludePatterns {
		ch.editPatterns(req.MirrorName, p, patternInclude)
	}
	for _, p := range req.ExcludePatterns {
		ch.editPatterns(req.MirrorName, p, patternExclude)
	}
	if req.DryRun {
		return nil, resp
	}
	return ch.recs, resp
}

type starter struct {
	ch     *change
	env    *Env
	mirror *meta.Mirror
	req    *mirrormsg.StartMirrorTopicsRequest
}

func (s *starter) topic(t *mirrormsg.StartMirrorTopicsRequestTopic) error {
	if err := CheckTopicName(t.TopicName); err != nil {
		return err
	}
	if meta.IsInternalTopic(t.TopicName) {
		return mirrormsg.Errorf(kerr.InvalidTopicException, "Topic '%s' is internal; internal topics are never mirrored.", t.TopicName)
	}
	set, err := startConfigs(t)
	if err != nil {
		return err
	}
	have := s.ch.img.Topic(t.TopicName)
	if have == nil {
		return s.create(t, set)
	}
	if t.TopicID != [16]byte{} && t.TopicID != have.ID {
		return mirrormsg.Errorf(kerr.InconsistentTopicID, "Topic '%s' exists with id %s; the source's has id %s.", have.Name, mirrormsg.UUIDString(have.ID), mirrormsg.UUIDString(t.TopicID))
	}
	name, state := s.ch.img.TopicMirror(have.Name)
	switch {
	case state == meta.NotMirrored:
	case name != s.mirror.Name:
		return mirrormsg.Errorf(mirrormsg.TopicAlreadyInMirror, "Topic '%s' belongs to mirror '%s' (%s).", have.Name, name, state)
	case state == meta.MirrorStopping:
		return mirrormsg.Errorf(mirrormsg.MirrorTopicBeingStopped, "Topic '%s' is being stopped; start it again when that is done.", have.Name)
	case state == meta.MirrorPaused:
		return mirrormsg.Errorf(mirrormsg.TopicAlreadyInMirror, "Topic '%s' is in mirror '%s' already and is paused; resume it.", have.Name, name)
	case state == meta.MirrorActive && s.req.StateOffset < 0:
		return nil
	}
	if err := checkStateOffset(have, s.req.StateOffset); err != nil {
		return err
	}
	return s.join(t, have, state, set)
}

func startConfigs(t *mirrormsg.StartMirrorTopicsRequestTopic) (map[string]string, error) {
	set := map[string]string{}
	for _, c := range t.Configs {
		if c.Value == nil {
			continue
		}
		if err := configs.Topic.Check(c.Name, *c.Value); err != nil {
			return nil, mirrormsg.Errorf(kerr.InvalidConfig, "%v", err)
		}
		set[c.Name] = *c.Value
	}
	return set, nil
}

// create makes the topic with the source's id, partition count and configs.
func (s *starter) create(t *mirrormsg.StartMirrorTopicsRequestTopic, set map[string]string) error {
	img := s.ch.img
	switch {
	case t.TopicID == [16]byte{}:
		return mirrormsg.Errorf(kerr.UnknownTopicOrPartition, "Topic '%s' was not resolved at the source.", t.TopicName)
	case t.NumPartitions < 1:
		return mirrormsg.Errorf(kerr.InvalidPartitions, "Topic '%s' has %d partitions at the source.", t.TopicName, t.NumPartitions)
	}
	if err := checkUnusedID(img, t.TopicID, t.TopicName); err != nil {
		return err
	}
	if err := checkCollision(img, t.TopicName); err != nil {
		return err
	}
	if err := configs.Topic.CheckAll(set); err != nil {
		return mirrormsg.Errorf(kerr.InvalidConfig, "%v", err)
	}
	assignment, err := place(img, t.TopicName, 0, t.NumPartitions, s.env.brokerInt(img, "default.replication.factor"))
	if err != nil {
		return err
	}
	recs, err := topicRecords(img, t.TopicName, t.TopicID, assignment, s.mirror.ID)
	if err != nil {
		return err
	}
	offset := img.Offset()
	s.ch.add(recs...)
	s.applyConfigs(t.TopicName, t.TopicID, set)
	s.started(t.TopicName, offset)
	return nil
}

// join starts a topic that exists: our own, stopped, or with FAILED partitions.
func (s *starter) join(t *mirrormsg.StartMirrorTopicsRequestTopic, have *meta.Topic, state meta.MirrorTopicState, set map[string]string) error {
	img := s.ch.img
	n := int32(len(have.Partitions))
	if t.NumPartitions >= 0 && t.NumPartitions < n {
		return mirrormsg.Errorf(kerr.InvalidPartitions, "Topic '%s' has %d partitions at the source and %d here; a source with fewer partitions cannot be mirrored.", have.Name, t.NumPartitions, n)
	}
	next := maps.Clone(img.Config(meta.ResourceTopic, have.Name))
	if next == nil {
		next = map[string]string{}
	}
	maps.Copy(next, set)
	if err := configs.Topic.CheckAll(next); err != nil {
		return mirrormsg.Errorf(kerr.InvalidConfig, "%v", err)
	}
	var recs []meta.Record
	if t.NumPartitions > n {
		assignment, err := place(img, have.Name, n, t.NumPartitions-n, len(have.Partitions[0].Replicas))
		if err != nil {
			return err
		}
		if recs, err = partitionRecords(img, have.ID, n, assignment, s.mirror.ID); err != nil {
			return err
		}
	}
	if state != meta.MirrorActive {
		// A new life begins: the old barrier must not count as this one's, and the
		// log may hold local writes.
		for i, p := range have.Partitions {
			if p.BarrierEnd >= 0 || p.AlignedMirrorID != [16]byte{} {
				rec := meta.NewChangePartition(have.ID, int32(i))
				rec.BarrierEnd, rec.AlignedMirrorID = -1, new([16]byte)
				recs = append(recs, rec)
			}
		}
	}
	offset := img.Offset()
	s.ch.add(recs...)
	s.applyConfigs(have.Name, have.ID, set)
	s.started(have.Name, offset)
	return nil
}

// applyConfigs sets what differs and notes that the mirror has set it.
func (s *starter) applyConfigs(topic string, id [16]byte, set map[string]string) {
	old := s.ch.img.Config(meta.ResourceTopic, topic)
	for _, k := range slices.Sorted(maps.Keys(set)) {
		v := set[k]
		if was, ok := old[k]; ok && was == v {
			continue
		}
		s.ch.add(
			&meta.SetConfig{Resource: meta.Resource{Type: meta.ResourceTopic, Name: topic}, Key: k, Value: &v},
			&meta.MirrorSetConfig{MirrorID: s.mirror.ID, TopicID: id, Key: k, Set: true},
		)
	}
}

// started writes the intent: the mirror's name and the metadata offset of this start.
func (s *starter) started(topic string, offset int64) {
	v := meta.MirrorStartValue(offset, s.req.Overwrite)
	s.ch.add(
		mirrorNameRecord(topic, s.mirror.Name, meta.MirrorActive),
		&meta.SetConfig{Resource: meta.Resource{Type: meta.ResourceTopic, Name: topic}, Key: meta.ConfigMirrorStart, Value: &v},
	)
}
