package mirror

import (
	"context"
	"fmt"

	"stet/broker/mirror/mirrorstate"
	"stet/fetcher/source"
)

// check makes sure that the source is the cluster that it was, and learns its id at the first contact (SPEC section 8).
func (u *upstream) check(ctx context.Context) error {
	u.mu.Lock()
	checked := u.checked
	u.mu.Unlock()
	if checked {
		return nil
	}
	return u.verify(ctx)
}

// verify is check that asks in any case: what follows cannot be taken back.
func (u *upstream) verify(ctx context.Context) error {
	for {
		src, generation := u.present()
		id, err := src.ClusterID(ctx)
		if _, now := u.present(); now != generation && ctx.Err() == nil {
			continue // the configuration leads elsewhere by now
		}
		if err != nil {
			if ctx.Err() == nil {
				u.noted(err)
			}
			return sourceError(-1, err)
		}
		if again, err := u.checkID(ctx, generation, id); !again {
			return err
		}
	}
}

func (u *upstream) present() (*source.Source, uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.src, u.generation
}

// selfError refuses a source that is this cluster: the copy would be the original, and what is cut there is gone for good.
func selfError(bootstrap, id string) error {
	return fmt.Errorf("bootstrap.servers=%s is this cluster itself (cluster id %s); a cluster cannot mirror itself, set it to the cluster that is to be mirrored", bootstrap, id)
}

// checkID judges the id of the source of a generation; again: the configuration has changed meanwhile.
func (u *upstream) checkID(ctx context.Context, generation uint64, id string) (again bool, err error) {
	want := u.clusterID()
	self := id != "" && id == u.m.o.Image().ClusterID()
	if want == "" && !self {
		holds, err := u.m.o.Controller.SetSourceClusterID(ctx, u.name, u.id, id)
		if err != nil {
			return false, patient(fmt.Errorf("keeping the source's cluster id: %w", err))
		}
		want = holds
	}
	u.mu.Lock()
	if u.generation != generation {
		u.mu.Unlock()
		return ctx.Err() == nil, ctx.Err()
	}
	if self || id != want {
		defer u.mu.Unlock()
		u.checked = false
		if self {
			u.fatal = selfError(u.config["bootstrap.servers"], id)
		} else {
			u.fatal = fmt.Errorf("the source's cluster id is %s, not %s: bootstrap.servers=%s is another cluster than the one that was mirrored; correct it, and start the topics again if they do not go on by themselves", id, want, u.config["bootstrap.servers"])
		}
		u.wrong = &failure{kind: failIdentity, broker: -1, err: u.fatal, generation: generation, want: want}
		return false, u.wrong
	}
	u.cluster, u.fatal, u.checked = want, nil, true
	news := u.checkedGen != generation
	u.checkedGen = generation
	u.mu.Unlock()
	if news {
		for _, d := range u.m.driversOf(u.name) {
			d.post(func(b *mailbox) { b.identified = true })
		}
	}
	return false, nil
}

// corrected says that a partition which failed because the source was another cluster can go on: the configuration has
// changed since, and leads to the cluster that was meant then.
func (u *upstream) corrected(f *failure) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.checked && u.generation != f.generation && (f.want == "" || f.want == u.cluster)
}

// lastWrong is how the source was found to be another cluster last, or nil: never since the start.
func (u *upstream) lastWrong() *failure {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.wrong
}

// identify deals with news about which cluster the source is, for a FAILED partition.
func (d *driver) identify() {
	if d.state() != mirrorstate.Failed {
		return
	}
	d.events.fatal = nil // it has failed already
	up := d.m.upstream(d.in.mirror)
	if up == nil {
		return
	}
	// Why it failed is not known after a restart: what held since then is what has to end first. The upstream is asked, since
	// its news may have come before the state was read.
	if d.failed == nil && d.rec.RetryAttempt < 0 {
		d.failed = up.lastWrong()
	}
	if f := d.failed; f != nil && f.kind == failIdentity && up.corrected(f) {
		d.retryDue = true
	}
}
