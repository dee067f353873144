package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"stet/broker/meta"
	"stet/broker/meta/configs"
	"stet/broker/mirrormsg"
	"stet/fetcher/source"
)

var errNotAnswered = errors.New("the source's answer does not mention the topic")

// run is the goroutine of an upstream: the periodic refresh, and the probes while somebody waits for the source.
func (u *upstream) run() {
	defer close(u.done)
	due := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		kicked := false
		select {
		case <-u.ctx.Done():
			return
		case <-timer.C:
		case <-u.kicked:
			kicked = true
		}
		back := u.probe(u.ctx)
		interval := u.m.o.Settings().RefreshInterval
		if kicked || back || !time.Now().Before(due) {
			u.refresh(u.ctx)
			due = time.Now().Add(interval)
		}
		wait := time.Until(due)
		if u.restless() {
			wait = min(wait, probeEvery)
		}
		timer.Reset(max(wait, 0))
		if kicked { // many kicks in a row are one refresh
			if err := sleep(u.ctx, 50*time.Millisecond); err != nil {
				return
			}
		}
	}
}

// restless says whether somebody waits for the source.
func (u *upstream) restless() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.waiting) > 0 || u.err != nil || u.fatal != nil || len(u.missing) > 0
}

// probe tries the source if somebody waits for it, wakes those who need not wait any longer, and reports whether it came back.
func (u *upstream) probe(ctx context.Context) (back bool) {
	u.mu.Lock()
	waiting := maps.Clone(u.waiting)
	failing := u.err != nil
	u.mu.Unlock()
	if len(waiting) == 0 && !failing {
		return false
	}
	names := map[string]bool{}
	for d := range waiting {
		names[d.topic] = true
	}
	topics, err := u.source().Topics(ctx, append([]string{}, slices.Sorted(maps.Keys(names))...))
	if err != nil {
		u.noted(err)
		return false
	}
	back = u.noted(nil)
	leaders := map[string][]source.Partition{}
	for _, t := range topics {
		leaders[t.Name] = t.Partitions
	}
	pings := map[int32]error{}
	for d, broker := range waiting {
		if broker >= 0 && leads(leaders[d.topic], d.index, broker) {
			err, asked := pings[broker]
			if !asked {
				err = u.source().Ping(ctx, broker)
				pings[broker] = err
			}
			if err != nil {
				continue
			}
		}
		u.forget(d)
		d.post(func(b *mailbox) { b.retry = true })
	}
	return back
}

func leads(partitions []source.Partition, index, broker int32) bool {
	for _, p := range partitions {
		if p.Index == index {
			return p.Leader == broker
		}
	}
	return false
}

// refresh is one round of SPEC section 8. The steps are independent; one that fails is counted and does not stop the others.
func (u *upstream) refresh(ctx context.Context) {
	img := u.m.o.Image()
	var active []*meta.Topic
	for _, t := range img.MirrorTopics(u.name) {
		if _, state := img.TopicMirror(t.Name); state == meta.MirrorActive {
			active = append(active, t)
		}
	}
	include := u.setting("mirror.topics.include")
	if len(active) == 0 && include == "" && u.clusterID() != "" {
		return
	}
	for _, s := range []struct {
		name string
		run  func(context.Context, *meta.Image, []*meta.Topic) error
	}{{"source check", u.refreshCheck}, {"topics", u.refreshTopics}, {"topic configs", u.refreshConfigs}, {"kept starts", u.refreshStarts}} {
		err := s.run(ctx, img, active)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			continue
		}
		u.m.syncError(u.name, s.name)
		u.log.Debug("refresh step failed", "step", s.name, "err", err)
		var f *failure
		if errors.As(err, &f) && (f.kind == failSource || f.final()) {
			return // the others would find the same, or ask another cluster than the one that is mirrored
		}
	}
}

// refreshCheck compares the cluster id. All partitions of a mirror whose source is another cluster become FAILED.
func (u *upstream) refreshCheck(ctx context.Context, _ *meta.Image, _ []*meta.Topic) error {
	err := u.verify(ctx)
	var f *failure
	if err == nil || errors.As(err, &f) && f.kind != failSource {
		u.noted(nil)
	}
	if f != nil && f.final() {
		for _, d := range u.m.driversOf(u.name) {
			d.post(func(b *mailbox) { b.fatal = f })
		}
	}
	return err
}

// refreshTopics refreshes leaders and epochs, notices deleted, re-created and grown topics.
func (u *upstream) refreshTopics(ctx context.Context, img *meta.Image, active []*meta.Topic) error {
	var errs []error
	for chunk := range slices.Chunk(active, describeAtOnce) {
		names := make([]string, len(chunk))
		for i, t := range chunk {
			names[i] = t.Name
		}
		topics, err := u.describeNow(ctx, names)
		if err != nil {
			return sourceError(-1, err)
		}
		for _, t := range topics {
			local := img.Topic(t.Name)
			if local == nil {
				continue
			}
			if errors.Is(t.Err, kerr.UnknownTopicOrPartition) {
				if err := u.lookMissing(ctx, t.Name); err != nil {
					errs = append(errs, err)
				}
			}
			same := t.Err == nil && (t.ID == [16]byte{} || t.ID == local.ID)
			if same && len(t.Partitions) > len(local.Partitions) {
				u.log.Info("source topic has grown", "topic", t.Name, "partitions", len(t.Partitions))
				if err := u.m.o.Controller.GrowTopic(ctx, t.Name, int32(len(t.Partitions))); err != nil {
					errs = append(errs, fmt.Errorf("adding partitions to %s: %w", t.Name, err))
				}
			}
		}
	}
	return errors.Join(errs...)
}

// lookMissing counts the looks at which a topic can neither be described nor is in the list of all topics.
func (u *upstream) lookMissing(ctx context.Context, name string) error {
	u.mu.Lock()
	was := u.missing[name]
	u.mu.Unlock()
	if was.looks > 0 && time.Since(was.last) < missingEvery {
		return nil
	}
	all, err := u.source().Topics(ctx, nil)
	if err != nil {
		return sourceError(-1, err)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if slices.ContainsFunc(all, func(t source.Topic) bool { return t.Name == name }) {
		delete(u.missing, name)
	} else {
		u.missing[name] = missing{was.looks + 1, time.Now()}
	}
	return nil
}

// refreshConfigs takes over the topic configs of the source, and takes back those that the mirror itself had set.
func (u *upstream) refreshConfigs(ctx context.Context, img *meta.Image, active []*meta.Topic) error {
	var errs []error
	for chunk := range slices.Chunk(active, describeAtOnce) {
		names := make([]string, len(chunk))
		for i, t := range chunk {
			names[i] = t.Name
		}
		found, refused, err := u.source().TopicConfigs(ctx, names)
		if err != nil {
			return sourceError(-1, err)
		}
		for name, err := range refused {
			errs = append(errs, fmt.Errorf("configs of %s: %w", name, err))
		}
		for _, t := range chunk {
			list, ok := found[t.Name]
			if !ok {
				continue
			}
			set, remove := u.configChange(img, t, list)
			if len(set)+len(remove) == 0 {
				continue
			}
			if err := u.m.o.Controller.SyncTopicConfigs(ctx, u.name, t.ID, set, remove); err != nil {
				errs = append(errs, fmt.Errorf("configs of %s: %w", t.Name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// configChange compares a topic's configs with the source's.
func (u *upstream) configChange(img *meta.Image, t *meta.Topic, list []source.Config) (set map[string]string, remove []string) {
	u.mu.Lock()
	exclude := u.exclude
	u.mu.Unlock()
	local := img.Config(meta.ResourceTopic, t.Name)
	set = map[string]string{}
	at := map[string]bool{}
	for _, c := range list {
		if !syncedConfig(c.Name, exclude) || configs.Topic.Check(c.Name, c.Value) != nil {
			continue
		}
		at[c.Name] = true
		if v, ok := local[c.Name]; !ok || v != c.Value {
			set[c.Name] = c.Value
		}
	}
	for _, k := range img.MirrorSetConfigs(u.id, t.ID) {
		if !at[k] && !exclude.match(k) {
			remove = append(remove, k)
		}
	}
	return set, remove
}

// refreshStarts starts the source's topics that mirror.topics.include names and that are not here yet: the starts that
// were kept because the source could not be reached, and new topics.
func (u *upstream) refreshStarts(ctx context.Context, img *meta.Image, _ []*meta.Topic) error {
	include, err := parseFilter(u.setting("mirror.topics.include"))
	if err != nil || len(include) == 0 {
		return err
	}
	exclude, err := parseFilter(u.setting("mirror.topics.exclude"))
	if err != nil {
		return err
	}
	all, err := u.source().Topics(ctx, nil)
	if err != nil {
		return sourceError(-1, err)
	}
	var found []source.Topic
	var blocked []string
	for _, t := range all {
		if t.Err != nil || !startable(t) || !include.match(t.Name) || exclude.match(t.Name) {
			continue
		}
		if img.Topic(t.Name) == nil {
			found = append(found, t)
		} else if of, _ := img.TopicMirror(t.Name); of != u.name {
			blocked = append(blocked, t.Name)
		}
	}
	u.setBlocked(blocked)
	if len(found) == 0 {
		return nil
	}
	req := mirrormsg.NewPtrStartMirrorTopicsRequest()
	req.MirrorName = u.name
	if req.Topics, err = u.resolved(ctx, img, found); err != nil {
		return err
	}
	if err := u.m.o.Coordinator.EnsureTopic(ctx); err != nil {
		return err
	}
	resp, err := u.m.o.Controller.StartMirrorTopics(ctx, req)
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range resp.Topics {
		if r.ErrorCode != 0 {
			errs = append(errs, fmt.Errorf("start of %s: %w", r.Name, mirrormsg.ErrorForCode(r.ErrorCode)))
		} else {
			u.log.Info("source topic is started", "topic", r.Name)
		}
	}
	return errors.Join(errs...)
}

// setBlocked keeps what describe shows, and logs it when it changes: who starts a pattern must not believe that
// everything is mirrored when a name was taken.
func (u *upstream) setBlocked(names []string) {
	slices.Sort(names)
	u.mu.Lock()
	same := slices.Equal(u.blocked, names)
	u.blocked = names
	u.mu.Unlock()
	if !same && len(names) > 0 {
		u.log.Warn("source topics match mirror.topics.include and are not mirrored: their names are taken here", "topics", strings.Join(names, ", "))
	}
}

// unmirrored describes what setBlocked was told, "" for nothing.
func (u *upstream) unmirrored() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.blocked) == 0 {
		return ""
	}
	names, more := u.blocked, ""
	if len(names) > 10 {
		more = fmt.Sprintf(" and %d more", len(names)-10)
		names = names[:10]
	}
	return fmt.Sprintf("mirror %s: not mirrored although they match mirror.topics.include, because a topic of the same name that is not this mirror's is here: %s%s",
		u.name, strings.Join(names, ", "), more)
}

// startable says whether a topic of a source may be mirrored at all.
func startable(t source.Topic) bool { return !t.Internal && !meta.IsInternalTopic(t.Name) }
