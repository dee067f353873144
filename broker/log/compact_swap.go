package log

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"stet/zerocopy/batch"
)

const (
	cleanedSuffix = ".cleaned"
	swapSuffix    = ".swap"
)

// indexSuffixes are the files that belong to a .log file.
var indexSuffixes = []string{indexSuffix, timeIndexSuffix, txnIndexSuffix}

// cleaned is the segment that a group becomes, while it is written.
type cleaned struct {
	l    *Log
	seg  *segment
	step int64 // index.interval.bytes
	buf  []byte
	at   int64 // file position of buf
}

const cleanedBuffer = 1 << 20

// newCleaned begins B.log.cleaned, after everything that an earlier attempt left is gone.
func newCleaned(l *Log, base int64, cfg *Config) (*cleaned, error) {
	if err := removeCleaned(l); err != nil {
		return nil, err
	}
	s := &segment{fs: l.fs, base: base, path: segmentPath(l.dir, base), next: base, createdMs: l.nowMs(), firstTs: -1, maxTs: -1, maxTsAt: base, idx: &index{}}
	s.refs.Store(1)
	f, err := l.m.handles.create(s.path + logSuffix + cleanedSuffix)
	if err == nil {
		err = f.keep()
	}
	if err != nil {
		return nil, err
	}
	s.file = f
	return &cleaned{l: l, seg: s, step: int64(cfg.IndexIntervalBytes)}, nil
}

func removeCleaned(l *Log) error {
	entries, err := l.fs.ReadDir(l.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if filepath.Ext(e.Name()) == cleanedSuffix {
			if err := l.fs.Remove(filepath.Join(l.dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// add appends one batch.
func (c *cleaned) add(b batch.Batch) error {
	s := c.seg
	s.note(b, s.size, int64(len(b)), c.step)
	s.size += int64(len(b))
	s.next = b.NextOffset()
	c.buf = append(c.buf, b...)
	if len(c.buf) >= cleanedBuffer {
		return c.write()
	}
	return nil
}

func (c *cleaned) write() error {
	_, err := c.seg.file.WriteAt(c.buf, c.at)
	c.at += int64(len(c.buf))
	c.buf = c.buf[:0]
	return err
}

// finish makes the segment and its indexes durable under their .cleaned names.
func (c *cleaned) finish(last *segment) error {
	if err := c.write(); err != nil {
		return err
	}
	s := c.seg
	s.createdMs, s.flushed = last.createdMs, s.size
	s.seal()
	if err := s.file.Sync(); err != nil {
		return err
	}
	files := map[string][]byte{
		indexSuffix:     appendOffsetEntries(nil, s.idx.offsets),
		timeIndexSuffix: appendTimeEntries(nil, s.idx.times),
	}
	if len(s.txns) > 0 {
		files[txnIndexSuffix] = appendTxnEntries(nil, s.txns)
	}
	for _, suffix := range indexSuffixes {
		p, ok := files[suffix]
		if !ok {
			continue
		}
		if err := writeSynced(c.l, s.path+suffix+cleanedSuffix, p); err != nil {
			return err
		}
	}
	s.offsetsOnDisk, s.timesOnDisk, s.txnsOnDisk = len(s.idx.offsets), len(s.idx.times), len(s.txns)
	return nil
}

func writeSynced(l *Log, name string, p []byte) error {
	f, err := l.fs.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	if len(p) > 0 {
		_, err = f.WriteAt(p, 0)
	}
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// discard gives up before anything was renamed.
func (c *cleaned) discard() {
	c.seg.release()
	_ = removeCleaned(c.l) // tried again before the next group, and at open
}

// exchange puts the cleaned segment in the place of its group: steps 2 to 4 of the crash
// cases. It returns false, with nothing changed, if the group is not what it was. An error has
// taken the log offline; what is on disk is then for the next start.
func (l *Log) exchange(group []*segment, c *cleaned, cuts, upTo int64) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := slices.Index(l.segs, group[0])
	if l.usable() != nil || cuts != l.cuts || at < 0 || at+len(group) >= len(l.segs) || !slices.Equal(l.segs[at:at+len(group)], group) {
		c.discard()
		return false, nil
	}
	if err := l.setCompacted(upTo); err != nil {
		return false, err
	}
	s := c.seg
	for _, suffix := range append(slices.Clone(indexSuffixes), logSuffix) {
		if err := l.fs.Rename(s.path+suffix+cleanedSuffix, s.path+suffix+swapSuffix); err != nil && !(isNotExist(err) && suffix == txnIndexSuffix) {
			return false, l.fail("swap", err)
		}
	}
	if err := l.syncDir(); err != nil {
		return false, err
	}
	for _, g := range group {
		if err := l.moveAside(g); err != nil {
			return false, err
		}
	}
	for _, suffix := range append([]string{logSuffix}, indexSuffixes...) {
		if err := l.fs.Rename(s.path+suffix+swapSuffix, s.path+suffix); err != nil && !(isNotExist(err) && suffix == txnIndexSuffix) {
			return false, l.fail("swap", err)
		}
	}
	s.file.renamed(s.path + logSuffix)
	// The state at these offsets can be made again from the last batches that were kept.
	last := group[len(group)-1].base
	if err := l.removeSnapshots(func(o int64) bool { return o > s.base && o <= last }); err != nil {
		return false, err
	}
	if err := l.syncDir(); err != nil {
		return false, err
	}
	segs := append(slices.Clone(l.segs[:at]), s)
	l.segs = append(segs, l.segs[at+len(group):]...)
	s.next = l.segs[at+1].base
	l.sizes()
	l.publish(l.end.Load())
	for _, g := range group {
		g.release()
	}
	return true, nil
}

// compactedFile keeps the offset below which records may be gone because of later ones. It
// is older than any exchange that makes it true.
const compactedFile = "stet.compacted"

// setCompacted raises the offset durably. Log.mu is held.
func (l *Log) setCompacted(upTo int64) error {
	if upTo <= l.compacted.Load() {
		return nil
	}
	return l.writeCompacted(upTo)
}

func (l *Log) writeCompacted(upTo int64) error {
	if err := writeFile(l.fs, filepath.Join(l.dir, compactedFile), encodeCompacted(upTo), true); err != nil {
		return l.fail("write "+compactedFile, err)
	}
	l.compacted.Store(upTo)
	return nil
}

func encodeCompacted(upTo int64) []byte {
	return sealText(fmt.Appendf(nil, "version: 1\ncompacted: %d\n", upTo))
}

// decodeCompacted reads the file; version 0 has no checksum.
func decodeCompacted(p []byte) (int64, error) {
	m := fields(p)
	n, err := parseInt(m["compacted"], 64)
	if err != nil {
		return n, err
	}
	switch v := m["version"]; {
	case v == "1":
		_, err = openText(p)
	case v != "0":
		err = fmt.Errorf("version %.20q", v)
	}
	if err == nil && (n < 0 || p[len(p)-1] != '\n') {
		err = fmt.Errorf("%.40q", p)
	}
	return n, err
}

// readCompacted reads the file; one that is missing says nothing, a broken one everything.
func (l *Log) readCompacted() {
	l.compacted.Store(-1)
	p, err := readFile(l.fs, filepath.Join(l.dir, compactedFile))
	if isNotExist(err) {
		return
	}
	var n int64
	if err == nil {
		n, err = decodeCompacted(p)
	}
	if err != nil {
		l.logger.Warn(compactedFile+" cannot be read: the whole log counts as compacted", "topic", l.tp.topic, "partition", l.tp.partition, "err", err)
		n = noOffset
	}
	l.compacted.Store(n)
}

// setCleaned notes how far a round came, unless the log was cut meanwhile.
func (l *Log) setCleaned(was, cuts, upTo int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	if l.cuts != cuts {
		return errAbandoned
	}
	if upTo == was {
		return nil
	}
	if err := l.m.setCleaned(l, upTo); err != nil {
		return l.fail("write checkpoint", err)
	}
	return nil
}
