package vfs

import (
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Mem is a file system in memory that knows what a power failure would keep: file contents
// as of the last Sync of the file, directory entries as of the last SyncDir of the directory.
// CrashClone makes the file system that a machine would find after the failure.
type Mem struct {
	mu    sync.Mutex
	root  *memNode
	locks map[string]bool
}

// memNode is a file or a directory. A removed file lives on while it is open.
type memNode struct {
	dir bool
	mod time.Time

	// Files.
	data    []byte
	durable []byte // as of the last Sync

	// Directories.
	children map[string]*memNode
	synced   map[string]*memNode // as of the last SyncDir
	pending  []memOp             // what happened since, in order
}

// memOp is one change of a directory. A rename inside a directory is one op, as a journal has it.
type memOp struct {
	del string
	add string
	to  *memNode
}

// NewMem returns an empty file system with a root directory only.
func NewMem() *Mem { return &Mem{root: newMemDir(), locks: map[string]bool{}} }

func newMemDir() *memNode {
	return &memNode{dir: true, children: map[string]*memNode{}, synced: map[string]*memNode{}}
}

// CrashClone returns a copy that holds only what was synced. With a random source it also
// keeps part of the rest: of each directory a prefix of the unsynced changes, of each
// unsynced file a random size between the two and random sectors of either version.
// Locks are not held in the copy.
func (m *Mem) CrashClone(rnd *rand.Rand) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &Mem{root: crashNode(m.root, rnd, map[*memNode]*memNode{}), locks: map[string]bool{}}
}

// Clone returns a copy of everything, synced or not: what a killed process leaves behind.
func (m *Mem) Clone() *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &Mem{root: copyNode(m.root), locks: map[string]bool{}}
}

func copyNode(n *memNode) *memNode {
	c := &memNode{dir: n.dir, mod: n.mod}
	if !n.dir {
		c.data, c.durable = slices.Clone(n.data), slices.Clone(n.data)
		return c
	}
	c.children, c.synced = map[string]*memNode{}, map[string]*memNode{}
	for name, child := range n.children {
		c.children[name] = copyNode(child)
		c.synced[name] = c.children[name]
	}
	return c
}

func crashNode(n *memNode, rnd *rand.Rand, seen map[*memNode]*memNode) *memNode {
	if c := seen[n]; c != nil {
		return c
	}
	c := &memNode{dir: n.dir, mod: n.mod}
	seen[n] = c
	if !n.dir {
		c.data = crashData(n, rnd)
		c.durable = slices.Clone(c.data)
		return c
	}
	entries := map[string]*memNode{}
	for name, child := range n.synced {
		entries[name] = child
	}
	if rnd != nil {
		for _, op := range n.pending[:rnd.IntN(len(n.pending)+1)] {
			op.apply(entries)
		}
	}
	c.children, c.synced = map[string]*memNode{}, map[string]*memNode{}
	names := make([]string, 0, len(entries))
	for name := range entries {
		names = append(names, name)
	}
	slices.Sort(names) // the same seed gives the same clone
	for _, name := range names {
		c.children[name] = crashNode(entries[name], rnd, seen)
		c.synced[name] = c.children[name]
	}
	return c
}

func crashData(n *memNode, rnd *rand.Rand) []byte {
	if rnd == nil || slices.Equal(n.data, n.durable) {
		return slices.Clone(n.durable)
	}
	lo, hi := min(len(n.data), len(n.durable)), max(len(n.data), len(n.durable))
	out := make([]byte, lo+rnd.IntN(hi-lo+1))
	const sector = 512
	for at := 0; at < len(out); at += sector {
		end := min(at+sector, len(out))
		from := n.durable
		if rnd.IntN(2) == 0 {
			from = n.data
		}
		if at < len(from) {
			copy(out[at:end], from[at:])
		}
	}
	return out
}

func (op memOp) apply(entries map[string]*memNode) {
	if op.del != "" {
		delete(entries, op.del)
	}
	if op.add != "" {
		entries[op.add] = op.to
	}
}

func (d *memNode) change(op memOp) {
	op.apply(d.children)
	d.pending = append(d.pending, op)
}

func pathErr(op, name string, err error) error { return &fs.PathError{Op: op, Path: name, Err: err} }

func splitPath(name string) []string {
	var parts []string
	for p := range strings.SplitSeq(filepath.ToSlash(filepath.Clean(name)), "/") {
		if p != "" && p != "." {
			parts = append(parts, p)
		}
	}
	return parts
}

// find returns the node of name, nil if there is none.
func (m *Mem) find(name string) *memNode {
	n := m.root
	for _, p := range splitPath(name) {
		if n == nil || !n.dir {
			return nil
		}
		n = n.children[p]
	}
	return n
}

func (m *Mem) parent(name string) (dir *memNode, base string) {
	parts := splitPath(name)
	if len(parts) == 0 {
		return nil, ""
	}
	d := m.find(strings.Join(parts[:len(parts)-1], "/"))
	if d == nil || !d.dir {
		return nil, ""
	}
	return d, parts[len(parts)-1]
}

// OpenFile implements FS.
func (m *Mem) OpenFile(name string, flag int, _ fs.FileMode) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base := m.parent(name)
	if dir == nil {
		return nil, pathErr("open", name, fs.ErrNotExist)
	}
	n := dir.children[base]
	switch {
	case n == nil && flag&os.O_CREATE == 0:
		return nil, pathErr("open", name, fs.ErrNotExist)
	case n != nil && flag&os.O_CREATE != 0 && flag&os.O_EXCL != 0:
		return nil, pathErr("open", name, fs.ErrExist)
	case n != nil && n.dir:
		return nil, pathErr("open", name, syscall.EISDIR)
	case n == nil:
		n = &memNode{mod: time.Now()}
		dir.change(memOp{add: base, to: n})
	case flag&os.O_TRUNC != 0:
		n.data = nil
	}
	return &memFile{m: m, n: n, name: name, write: flag&(os.O_WRONLY|os.O_RDWR) != 0}, nil
}

// MkdirAll implements FS. The new directories are durable after SyncDir of their parents.
func (m *Mem) MkdirAll(dir string, _ fs.FileMode) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.root
	for _, p := range splitPath(dir) {
		c := n.children[p]
		if c == nil {
			c = newMemDir()
			n.change(memOp{add: p, to: c})
		}
		if !c.dir {
			return pathErr("mkdir", dir, syscall.ENOTDIR)
		}
		n = c
	}
	return nil
}

// Rename implements FS.
func (m *Mem) Rename(oldname, newname string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	od, ob := m.parent(oldname)
	nd, nb := m.parent(newname)
	if od == nil || nd == nil || od.children[ob] == nil {
		return pathErr("rename", oldname, fs.ErrNotExist)
	}
	n := od.children[ob]
	if t := nd.children[nb]; t != nil && t.dir && len(t.children) > 0 && t != n {
		return pathErr("rename", newname, syscall.ENOTEMPTY)
	}
	if od == nd {
		if ob != nb {
			od.change(memOp{del: ob, add: nb, to: n})
		}
		return nil
	}
	nd.change(memOp{add: nb, to: n})
	od.change(memOp{del: ob})
	return nil
}

// Remove implements FS.
func (m *Mem) Remove(name string) error { return m.remove(name, false) }

// RemoveAll implements FS.
func (m *Mem) RemoveAll(name string) error { return m.remove(name, true) }

func (m *Mem) remove(name string, all bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base := m.parent(name)
	if dir == nil || dir.children[base] == nil {
		if all {
			return nil
		}
		return pathErr("remove", name, fs.ErrNotExist)
	}
	if n := dir.children[base]; n.dir && len(n.children) > 0 && !all {
		return pathErr("remove", name, syscall.ENOTEMPTY)
	}
	dir.change(memOp{del: base})
	return nil
}

// ReadDir implements FS; the entries are sorted by name.
func (m *Mem) ReadDir(dir string) ([]fs.DirEntry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.find(dir)
	if d == nil || !d.dir {
		return nil, pathErr("open", dir, fs.ErrNotExist)
	}
	var out []fs.DirEntry
	for name, n := range d.children {
		out = append(out, fs.FileInfoToDirEntry(memInfo{name, int64(len(n.data)), n.dir, n.mod}))
	}
	slices.SortFunc(out, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return out, nil
}

// Stat implements FS.
func (m *Mem) Stat(name string) (fs.FileInfo, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.find(name)
	if n == nil {
		return nil, pathErr("stat", name, fs.ErrNotExist)
	}
	return memInfo{filepath.Base(name), int64(len(n.data)), n.dir, n.mod}, nil
}

// SyncDir implements FS.
func (m *Mem) SyncDir(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.find(dir)
	if d == nil || !d.dir {
		return pathErr("open", dir, fs.ErrNotExist)
	}
	for _, op := range d.pending {
		op.apply(d.synced)
	}
	d.pending = nil
	return nil
}

// Lock implements FS.
func (m *Mem) Lock(name string) (io.Closer, error) {
	f, err := m.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	f.Close()
	m.mu.Lock()
	defer m.mu.Unlock()
	key := filepath.Clean(name)
	if m.locks[key] {
		return nil, pathErr("lock", name, ErrLocked)
	}
	m.locks[key] = true
	return &memLock{m, key}, nil
}

type memLock struct {
	m   *Mem
	key string
}

func (l *memLock) Close() error {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	delete(l.m.locks, l.key)
	return nil
}
