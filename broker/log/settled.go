package log

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// settledFile, in the first log directory beside the metadata, lists the partitions whose directories are durable. One that
// the metadata has and this file too, of the same incarnation, was here: without a directory it is lost, not new.
const settledFile = "stet-partitions"

// settled is where a partition was.
type settled struct {
	incarnation int64
	dir         string // of log.dirs
}

func (m *Manager) settledPath() string {
	return filepath.Join(filepath.Clean(m.o.Dirs[0]), settledFile)
}

// readSettled reads the file. Without it no loss can be told, so one that is unreadable is named.
func (m *Manager) readSettled() {
	p, err := readFile(m.o.FS, m.settledPath())
	if err == nil {
		m.settled, err = decodeSettled(p)
	}
	if err != nil && !isNotExist(err) {
		m.o.Logger.Warn("list of partitions is not used: a partition directory that is missing would be made again empty", "file", m.settledPath(), "err", err)
	}
}

func encodeSettled(s map[topicPartition]settled) []byte {
	keys := slices.SortedFunc(maps.Keys(s), func(a, b topicPartition) int {
		return cmp.Or(strings.Compare(a.topic, b.topic), cmp.Compare(a.partition, b.partition))
	})
	var b bytes.Buffer
	fmt.Fprintf(&b, "1\n%d\n", len(keys))
	for _, tp := range keys {
		fmt.Fprintf(&b, "%s %d %d %q\n", tp.topic, tp.partition, s[tp].incarnation, s[tp].dir)
	}
	return sealText(b.Bytes())
}

// decodeSettled reads the list; version 0 has no checksum.
func decodeSettled(p []byte) (map[topicPartition]settled, error) {
	if bytes.HasPrefix(p, []byte("1\n")) {
		var err error
		if p, err = openText(p); err != nil {
			return nil, err
		}
	}
	lines := strings.Split(string(p), "\n")
	if len(lines) < 3 || lines[0] != "0" && lines[0] != "1" || lines[1] != strconv.Itoa(len(lines)-3) || lines[len(lines)-1] != "" {
		return nil, errors.New("version, count or end is wrong")
	}
	s := make(map[topicPartition]settled, len(lines)-3)
	for _, l := range lines[2 : len(lines)-1] {
		f := strings.SplitN(l, " ", 4)
		if len(f) != 4 {
			return nil, fmt.Errorf("line %.60q", l)
		}
		part, err := parseInt(f[1], 32)
		n, err2 := parseInt(f[2], 64)
		dir, err3 := strconv.Unquote(f[3])
		if err := errors.Join(err, err2, err3); err != nil {
			return nil, fmt.Errorf("line %.60q: %w", l, err)
		}
		s[topicPartition{f[0], int32(part)}] = settled{n, dir}
	}
	return s, nil
}

// settling is the log's line, and whether the log may be in the list: its directory is durable, or it is listed already.
// Before that a power failure may take the directory, and the partition is new again.
func (l *Log) settling(listed settled) (line settled, settles bool) {
	line = settled{l.incarnation, filepath.Dir(l.dir)}
	l.mu.Lock()
	durable := !l.newborn && !l.nameless.Load() && l.Err() == nil
	l.mu.Unlock()
	return line, durable || listed.incarnation == line.incarnation && listed.dir != ""
}

// settledChanged says whether the list may have to be written, from the logs that changed.
func (m *Manager) settledChanged() bool {
	m.mu.Lock()
	changed := m.settledDue
	m.settledDue = false
	m.mu.Unlock()
	for _, l := range m.takeDirty(forSettled) {
		m.mu.Lock()
		listed, was := m.settled[l.tp]
		m.mu.Unlock()
		line, settles := l.settling(listed)
		changed = changed || settles != was || settles && line != listed
	}
	return changed
}

// saveSettled writes the file if it changed.
func (m *Manager) saveSettled() error {
	m.settledMu.Lock()
	defer m.settledMu.Unlock()
	changed := m.settledChanged()
	m.mu.Lock()
	stale := m.settledStale
	if !changed && !stale {
		m.mu.Unlock()
		return nil
	}
	m.settledStale = false
	old, next := maps.Clone(m.settled), map[topicPartition]settled{}
	if !m.applied { // whether what has no log was deleted is not known yet
		maps.Copy(next, old)
	}
	m.mu.Unlock()
	for _, l := range m.all() {
		if line, settles := l.settling(old[l.tp]); settles {
			next[l.tp] = line
		} else {
			delete(next, l.tp)
		}
	}
	if maps.Equal(old, next) && !stale || m.dirs[0].err() != nil {
		return nil
	}
	if err := writeFile(m.o.FS, m.settledPath(), encodeSettled(next), true); err != nil {
		m.mu.Lock()
		m.settledStale = true
		m.mu.Unlock()
		m.dirs[0].check(m.o.Logger, err)
		return fmt.Errorf("%w: %s: %w", ErrStorage, m.settledPath(), err)
	}
	m.mu.Lock()
	m.settled = next
	m.mu.Unlock()
	return nil
}

// forgetSettled is of a partition that was deleted. A line that a crash leaves in the file does no harm: a topic that is
// made again has another incarnation. m.mu is held.
func (m *Manager) forgetSettled(tp topicPartition) {
	m.settledDue = true // it may be in a list that is being written
	if _, ok := m.settled[tp]; ok {
		delete(m.settled, tp)
		m.settledStale = true
	}
}

// vanished says that the directory held partitions and is now an empty place, such as the mount point of a volume that
// is not mounted. Nothing is written to it then.
func (m *Manager) vanished(path string) error {
	if path == filepath.Dir(m.settledPath()) {
		return nil
	}
	n := 0
	for _, s := range m.settled {
		if s.dir == path {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	if _, err := m.o.FS.Stat(filepath.Join(path, metaFile)); !isNotExist(err) {
		return nil
	}
	entries, err := m.o.FS.ReadDir(path)
	if err != nil && !isNotExist(err) {
		return nil // opening it tells why
	}
	for _, e := range entries {
		if tp, err := parsePartitionDir(e.Name()); err == nil && tp.String() != raftDir {
			return nil
		}
	}
	return fmt.Errorf("it is empty, and held %d partitions: is it mounted? %s", n, m.advice())
}

func (m *Manager) advice() string {
	return "restore it and restart the broker; if it is lost for good, delete the topics, or stop the broker and remove " +
		m.settledPath() + " to begin with empty partitions in place of what is missing"
}

// lostPartition is the log of a partition that was here and is no more: offline, nothing is made. m.mu is held.
func (m *Manager) lostPartition(tp topicPartition, id [16]byte, s settled, cfg Config) *Log {
	l := newLog(m, filepath.Join(s.dir, tp.String()), tp, cfg)
	l.id, l.incarnation = id, s.incarnation
	err := l.home.err()
	switch d := l.home; {
	case err != nil:
	case d == nil:
		err = fmt.Errorf("its directory %s is not among log.dirs: %s", l.dir, m.advice())
	default:
		d.mu.Lock()
		l.start.Store(d.starts[tp]) // the checkpoints keep their lines
		l.hw.Store(d.starts[tp])
		l.recoveryPoint.Store(d.durable[tp])
		d.mu.Unlock()
		err = fmt.Errorf("its directory %s is missing: %s", l.dir, m.advice())
	}
	_ = l.fail("open", err)
	l.touch()
	return l
}

// ImageApplied says that every partition of the metadata of the start was asked for: what is asked for from now on
// is new, and may be made although a directory is offline.
func (m *Manager) ImageApplied() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.applied, m.settledDue = true, true
	for tp := range m.settled { // of a topic that was deleted; with older metadata that were put back its incarnation could come again
		if m.logs[tp] == nil {
			delete(m.settled, tp)
			m.settledStale = true
		}
	}
}

// mayMake refuses to make a partition that may exist in a directory that is offline. m.mu is held.
func (m *Manager) mayMake(tp topicPartition, incarnation int64) error {
	if r, ok := m.refused[tp]; ok && r.incarnation == incarnation {
		return r.err
	}
	if m.applied {
		return nil
	}
	for _, d := range m.dirs {
		if err := d.err(); err != nil {
			return m.refuse(tp, incarnation, err)
		}
	}
	return nil
}

// refusal is of a partition that is not made before a restart.
type refusal struct {
	incarnation int64
	err         error
}

func (m *Manager) refuse(tp topicPartition, incarnation int64, err error) error {
	err = fmt.Errorf("%w: create %s: %w", ErrStorage, tp, err)
	m.refused[tp] = refusal{incarnation, err}
	return err
}
