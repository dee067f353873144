package log

import (
	"context"
	"path/filepath"
	"time"
)

// Sync makes every byte up to the log end durable, and no more: the recovery point stays, so that after a crash the
// scan from there makes indexes, epochs, producer state and transaction index again, and none of their files has to be
// synced. One sync of the active segment is what it costs where nothing else is new; Flush is for what moves the
// recovery point. Appends go on meanwhile. Of many logs only some are synced at once; their syncs share
// the file system's journal commits.
func (l *Log) Sync() error {
	l.m.syncs <- struct{}{}
	defer func() { <-l.m.syncs }()
	l.mu.Lock()
	if err := l.usable(); err != nil {
		l.mu.Unlock()
		return err
	}
	type job struct {
		s    *segment
		size int64
	}
	var jobs []job
	for _, s := range l.segs {
		if max(s.flushed, s.synced) < s.size {
			s.retain()
			jobs = append(jobs, job{s, s.size})
		}
	}
	generation := l.cuts
	err := l.syncEntries()
	l.mu.Unlock()
	for _, j := range jobs {
		if err == nil {
			if serr := j.s.file.Sync(); serr != nil {
				err = l.fail("sync", serr)
			}
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, j := range jobs {
		if err == nil && generation == l.cuts {
			j.s.synced = max(j.s.synced, j.size)
		}
		j.s.release()
	}
	return err
}

// maxSyncs is how many logs are synced at once. More share a journal commit, each on a thread of its own.
const maxSyncs = 64

// settleIdentity syncs in the background what is written once per partition, so that a stop barrier finds it done.
func (l *Log) settleIdentity() {
	l.mu.Lock()
	due := l.usable() == nil && l.newborn && l.total.Load() > 0
	changes := l.dirChanges
	l.mu.Unlock()
	if !due {
		return
	}
	if l.syncIdentity() != nil || l.fs.SyncDir(l.dir) != nil || l.fs.SyncDir(filepath.Dir(l.dir)) != nil {
		return // a deleted partition; else the next flush finds the same, and takes the log offline
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.usable() != nil {
		return
	}
	l.newborn = false
	if changes == l.dirChanges {
		l.dirDirty = false
	}
}

// settleEvery is how soon after its first bytes a partition's identity is synced.
const settleEvery = time.Second

// runSettler syncs the identities of new partitions until ctx ends.
func (m *Manager) runSettler(ctx context.Context) {
	tick := time.NewTicker(settleEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		m.settleNew(ctx)
	}
}

func (m *Manager) settleNew(ctx context.Context) {
	for _, l := range m.all() {
		if ctx.Err() != nil {
			return
		}
		l.settleIdentity()
	}
}
