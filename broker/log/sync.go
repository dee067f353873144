package log

import (
	"context"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"stet/internal/vfs"
)

// Sync makes every byte up to the log end durable, and no more: the recovery point stays, so that after a crash the
// scan from there makes indexes, epochs, producer state and transaction index again, and none of their files has to be
// synced. One sync of the active segment is what it costs where nothing else is new; Flush is for what moves the
// recovery point. Appends go on meanwhile. Logs that are synced at the same time share the file system's journal commits.
func (l *Log) Sync() error {
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
	var err error
	if l.newborn || l.dirDirty {
		l.m.entries <- struct{}{}
		err = l.syncEntries()
		<-l.m.entries
	}
	l.mu.Unlock()
	for _, j := range jobs {
		if err == nil {
			if serr := l.home.syncs.sync(j.s.file); serr != nil {
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

// maxEntrySyncs is how many logs sync their directories at once, each on a thread of its own.
const maxEntrySyncs = 64

// syncer gathers the segment files of a log directory that are to be synced: those that come while others are synced go together.
type syncer struct {
	mu    sync.Mutex
	calls []syncCall
	busy  bool
}

type syncCall struct {
	file *handle
	done chan error // capacity 1
}

// syncGroup is how many files go together, which have to be open all at once.
const syncGroup = 256

func (y *syncer) sync(h *handle) error {
	c := syncCall{h, make(chan error, 1)}
	y.mu.Lock()
	y.calls = append(y.calls, c)
	start := !y.busy
	y.busy = true
	y.mu.Unlock()
	if start {
		go y.run()
	}
	return <-c.done
}

// run syncs until nobody asks any more.
func (y *syncer) run() {
	for {
		y.mu.Lock()
		calls := y.calls[:min(len(y.calls), syncGroup)]
		y.calls = slices.Clone(y.calls[len(calls):])
		y.busy = len(calls) > 0
		y.mu.Unlock()
		if len(calls) == 0 {
			return
		}
		syncTogether(calls)
	}
}

// syncTogether syncs each file once, whoever asks for it.
func syncTogether(calls []syncCall) {
	var files []vfs.File
	var pinned []*handle
	at := map[*handle]int{} // in files
	for _, c := range calls {
		if _, ok := at[c.file]; ok {
			continue
		}
		f, err := c.file.pin()
		if err != nil {
			c.done <- err
			continue
		}
		at[c.file] = len(files)
		files, pinned = append(files, f), append(pinned, c.file)
	}
	errs := vfs.SyncAll(files)
	for _, h := range pinned {
		h.unpin()
	}
	for _, c := range calls {
		if i, ok := at[c.file]; ok {
			c.done <- errs[i]
		}
	}
}

// settleIdentity syncs in the background what is written once per partition, so that a stop barrier finds it done.
func (l *Log) settleIdentity() {
	l.mu.Lock()
	due := l.usable() == nil && l.newborn && l.total.Load() > 0
	changes := l.dirChanges
	l.mu.Unlock()
	if !due {
		return
	}
	what, err := "sync metadata", l.syncIdentity()
	if err == nil {
		what, err = "sync directory", l.fs.SyncDir(l.dir)
	}
	if err == nil {
		err = l.fs.SyncDir(filepath.Dir(l.dir))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.usable() != nil {
		return // deleted or closed meanwhile: what failed is not its identity any more
	}
	if err != nil {
		// Linux tells of a failed write-back once: the next sync, through a new descriptor, would succeed without the bytes.
		if !isNotExist(err) {
			_ = l.fail(what, err)
		}
		l.touchFor(1 << forSettler) // it is tried again, unless it is offline
		return
	}
	l.newborn = false
	l.touch()
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
	for _, l := range m.takeDirty(forSettler) {
		if ctx.Err() != nil {
			l.touchFor(1 << forSettler)
			continue
		}
		l.settleIdentity()
	}
}
