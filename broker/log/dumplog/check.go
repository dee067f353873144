package dumplog

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"stet/broker/log"
	"stet/zerocopy/batch"
)

// span is the offsets that a partition's directory holds; known is false when damage hides them.
type span struct {
	start, end int64
	known      bool
}

// check compares the files of one partition's directory with the batches of its log, in one pass.
//
// What it relies on: batches follow each other without a gap, except below the offset to which
// a cleaner came; an index entry names the last offset of a batch, a time index entry the first
// batch of its timestamp; snapshots and transaction indexes are what a recovery would write.
type check struct {
	p       *printer
	dir     string
	bases   []int64
	start   int64 // log start, as far as it is known
	cleaned int64 // gaps are normal below it
	loose   bool  // nothing says whether the topic is compacted
	clean   bool  // the broker was shut down cleanly: the active segment's files are complete

	epochs    []log.EpochEntry // nil: no file
	epochRow  int              // that was found to be wrong last, from 1
	snapshots []int64

	holes   []hole
	thinned bool // a batch has fewer records than offsets, as a cleaner leaves it

	replay  *log.Replay // nil: what was before the first batch is not known, or the log is damaged
	next    int64       // offset that must come
	started bool
	damaged bool
	epoch   int32
}

// checkPartition compares a partition's files and returns the offsets of its log.
func (p *printer) checkPartition(dir string) span {
	c := &check{p: p, dir: dir, epoch: -1}
	es, err := os.ReadDir(dir)
	if err != nil {
		p.missing = append(p.missing, explain(dir, err))
		return span{}
	}
	have := map[string]bool{}
	for _, e := range es {
		have[e.Name()] = true
		base, err := baseOf(e.Name())
		if err != nil {
			continue
		}
		switch filepath.Ext(e.Name()) {
		case ".log":
			c.bases = append(c.bases, base)
		case ".snapshot":
			c.snapshots = append(c.snapshots, base)
		}
	}
	if len(c.bases) == 0 {
		return span{}
	}
	slices.Sort(c.bases)
	slices.Sort(c.snapshots)
	c.orphans(have)
	c.surroundings()
	c.readEpochs()
	c.seed()
	c.next = c.bases[0]
	for i := range c.bases {
		c.segment(i, have)
	}
	c.finish()
	return span{c.bases[0], c.next, !c.damaged}
}

func (c *check) path(base int64, ext string) string {
	return filepath.Join(c.dir, fmt.Sprintf("%020d%s", base, ext))
}

// orphans are index files without a log.
func (c *check) orphans(have map[string]bool) {
	for name := range have {
		base, err := baseOf(name)
		if _, found := slices.BinarySearch(c.bases, base); err != nil || found {
			continue
		}
		if ext := filepath.Ext(name); ext == ".index" || ext == ".timeindex" || ext == ".txnindex" {
			c.p.badFile(filepath.Join(c.dir, name), "there is no %020d.log that it could belong to", base)
		}
	}
}

// surroundings reads what the files beside the segments and the log directory above say about the partition.
func (c *check) surroundings() {
	parent, tp := filepath.Dir(c.dir), filepath.Base(c.dir)
	_, err := os.Stat(filepath.Join(parent, cleanMarker))
	c.clean = err == nil
	for _, name := range log.SmallFiles {
		file := filepath.Join(c.dir, name)
		p, err := os.ReadFile(file)
		if err == nil {
			err = log.CheckSmallFile(name, p)
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			c.p.badFile(file, "%v", err)
		}
	}
	if p, err := os.ReadFile(filepath.Join(c.dir, compactedName)); err == nil {
		for l := range strings.Lines(string(p)) {
			if v, ok := strings.CutPrefix(strings.TrimSpace(l), "compacted: "); ok {
				n, err := strconv.ParseInt(v, 10, 64)
				if err != nil {
					n = math.MaxInt64
				}
				c.cleaned = n
			}
		}
	}
	c.start = c.bases[0]
	if o, ok := c.p.offsetsOf(filepath.Join(parent, logStartName)).rows[tp]; ok {
		c.start = max(c.start, o) // without it the first segment is the start
	}
	cleaner := c.p.offsetsOf(filepath.Join(parent, cleanerName))
	c.cleaned = max(c.cleaned, cleaner.rows[tp])
	if cleaner.err != nil {
		_, merr := os.Stat(filepath.Join(parent, metaName))
		c.loose = c.cleaned == 0 && merr != nil
	}
}

// offsetFile is a checkpoint of a log directory, which is read once for all its partitions.
type offsetFile struct {
	rows map[string]int64
	err  error
}

func (p *printer) offsetsOf(name string) offsetFile {
	if f, ok := p.offsets[name]; ok {
		return f
	}
	rows, err := readCheckpoint(name)
	f := offsetFile{make(map[string]int64, len(rows)), err}
	for _, r := range rows {
		f.rows[fmt.Sprintf("%s-%d", r.Topic, r.Partition)] = r.Offset
	}
	p.offsets[name] = f
	return f
}

func readCheckpoint(name string) ([]log.PartitionOffset, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return log.DecodeCheckpoint(b)
}

func (c *check) readEpochs() {
	b, err := os.ReadFile(filepath.Join(c.dir, epochsName))
	if err == nil {
		c.epochs, err = log.DecodeEpochs(b)
	}
	if err != nil {
		c.epochs = nil // printing said why
	}
}

// seed makes the producer state before the first batch.
func (c *check) seed() {
	first := c.bases[0]
	if first == 0 {
		c.replay, _ = log.NewReplay(nil, 0)
		return
	}
	b, err := os.ReadFile(c.path(first, ".snapshot"))
	if err != nil {
		return
	}
	if c.replay, err = log.NewReplay(b, first); err != nil {
		c.replay = nil
	}
}

// segment goes over one segment with its indexes.
func (c *check) segment(i int, have map[string]bool) {
	base := c.bases[i]
	name := c.path(base, ".log")
	f, err := os.Open(name)
	if err != nil {
		return // printing said why
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return
	}
	bound := int64(math.MaxInt64)
	if i+1 < len(c.bases) {
		bound = c.bases[i+1]
	}
	sealed := bound != math.MaxInt64 || c.clean
	x := c.openIndexes(base, sealed, have)
	if base > c.next {
		c.gap(name, 0, c.next, base)
		c.next = base
	}
	r := batchReader{f: f, limit: st.Size()}
	for {
		b, err := r.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			c.damaged, c.replay = true, nil
			if notABatch(err) {
				c.p.badTail(name, r.pos, st.Size(), err)
			}
			x.stopped = true
			break
		}
		pos := r.pos - int64(len(b))
		bad := b.Check()
		if bad != nil {
			c.p.badBatch(name, pos, b.BaseOffset(), "%v", bad)
			c.damaged, c.replay = true, nil
			if b.CheckHeader() != nil {
				c.next = max(c.next, b.BaseOffset())
				continue
			}
		}
		c.batch(name, pos, bound, b, x, bad == nil)
	}
	x.finish(r.pos, bound)
}

// hole is a range of offsets that no batch holds.
type hole struct {
	name     string
	pos      int64 // of the batch after it
	from, to int64
}

func (c *check) gap(name string, pos, from, to int64) {
	if from >= c.cleaned && !c.damaged {
		c.holes = append(c.holes, hole{name, pos, from, to})
	}
}

// judgeHoles: below the cleaner's offset they are normal, but a replica or a mirror of a compacted topic has
// them above, too, and nothing in the directory says so. So one hole in a log that looks as if no
// cleaner had ever gone over it is a finding; several are told on stderr as Kafka's tool tells them.
func (c *check) judgeHoles() {
	if len(c.holes) == 0 {
		return
	}
	if len(c.holes) == 1 && !c.thinned && !c.loose && c.cleaned == 0 {
		h := c.holes[0]
		c.p.badBatch(h.name, h.pos, h.to, "offsets %d to %d are missing before it, which is normal only if the topic (or the source of its mirror) is compacted", h.from, h.to-1)
		return
	}
	for _, h := range c.holes {
		c.p.note("%s: offsets %d to %d are not there, as in a compacted log", h.name, h.from, h.to-1)
	}
}

// batch checks one whole batch against what came before it, and applies it.
func (c *check) batch(name string, pos, bound int64, b batch.Batch, x *indexes, good bool) {
	base, last := b.BaseOffset(), b.LastOffset()
	switch {
	case base < c.next:
		c.p.badBatch(name, pos, base, "the log goes back: offset %d must come here", c.next)
		c.damaged, c.replay = true, nil
	case base > c.next:
		c.gap(name, pos, c.next, base)
	}
	if base < c.next { // from here on this batch is believed: one finding, not one for each that follows
		c.next = b.NextOffset()
	}
	if last >= bound {
		c.p.badBatch(name, pos, base, "it ends with offset %d, which is the next segment's (%d)", last, bound)
		c.damaged, c.replay = true, nil
	}
	c.thinned = c.thinned || b.NumRecords() <= b.LastOffsetDelta()
	c.snapshotsUpTo(base)
	c.epochOf(name, pos, b)
	if c.replay != nil {
		if e, ok := c.replay.Apply(b); ok {
			x.expect(e)
		}
	}
	x.batch(pos, b, good)
	c.next = max(c.next, b.NextOffset())
	c.started = true
}

// epochOf compares the batch's leader epoch with the checkpoint.
func (c *check) epochOf(name string, pos int64, b batch.Batch) {
	e := b.PartitionLeaderEpoch()
	if e == -1 && len(c.epochs) == 0 {
		return // of a broker that knew no leader epochs
	}
	if e < 0 || e < c.epoch {
		c.p.badBatch(name, pos, b.BaseOffset(), "leader epoch %d after %d", e, c.epoch)
		return
	}
	if len(c.epochs) == 0 {
		c.epoch = e
		return
	}
	i, found := slices.BinarySearchFunc(c.epochs, b.BaseOffset(), func(e log.EpochEntry, o int64) int {
		switch {
		case e.Start < o:
			return -1
		case e.Start > o:
			return 1
		}
		return 0
	})
	if !found {
		i--
	}
	file := filepath.Join(c.dir, epochsName)
	switch {
	case i < 0 && c.clean && !c.started && c.epochs[0].Start > c.start:
		c.p.find(Finding{file, -1, c.epochs[0].Start, 0, fmt.Sprintf("epoch %d is said to begin at offset %d, above the log start %d", c.epochs[0].Epoch, c.epochs[0].Start, c.start)})
	case i < 0:
		// Batches below the log start, which are still in the first segment.
		if c.epochs[0].Epoch < e {
			c.p.find(Finding{file, -1, b.BaseOffset(), 0, fmt.Sprintf("epoch %d begins at offset %d, but offset %d is already of epoch %d", c.epochs[0].Epoch, c.epochs[0].Start, b.BaseOffset(), e)})
		}
	case i+1 < len(c.epochs) && c.epochs[i+1].Epoch == e:
		if c.epochRow != i+2 {
			c.epochRow = i + 2
			c.p.find(Finding{file, -1, b.BaseOffset(), int64(i + 1), fmt.Sprintf("epoch %d is said to begin at offset %d; the batch at offset %d (position %d of %s) is of it already: one of the two files is wrong",
				e, c.epochs[i+1].Start, b.BaseOffset(), pos, filepath.Base(name))})
		}
		return
	case !c.clean && i == len(c.epochs)-1 && e > c.epochs[i].Epoch:
		// The broker had not written the epoch's line yet; its next start does, from the batches.
	case c.epochs[i].Epoch != e && c.epoch == c.epochs[i].Epoch:
		c.p.badBatch(name, pos, b.BaseOffset(), "leader epoch %d; the batches before it and %s say %d", e, epochsName, c.epoch)
		return
	case c.epochs[i].Epoch != e:
		if c.epochRow != i+1 {
			c.epochRow = i + 1
			c.p.find(Finding{file, -1, b.BaseOffset(), int64(i), fmt.Sprintf("epoch %d is said to begin at offset %d; the batch at offset %d (position %d of %s) is of epoch %d: one of the two files is wrong",
				c.epochs[i].Epoch, c.epochs[i].Start, b.BaseOffset(), pos, filepath.Base(name), e)})
		}
		return
	case c.epochs[i].Start != b.BaseOffset() && c.epoch >= 0 && e > c.epoch && b.BaseOffset() >= c.cleaned:
		c.p.find(Finding{file, -1, c.epochs[i].Start, int64(i), fmt.Sprintf("epoch %d is said to begin at offset %d; its first batch is at offset %d", e, c.epochs[i].Start, b.BaseOffset())})
	}
	if e > c.epoch {
		c.epoch = e
	}
}

// finish compares what is about the end of the log.
func (c *check) finish() {
	c.judgeHoles()
	if !c.damaged {
		c.snapshotsUpTo(c.next)
	}
	for _, o := range c.snapshots {
		if o > c.next && !c.damaged {
			c.p.badFile(c.path(o, ".snapshot"), "it is of offset %d, the log ends at %d", o, c.next)
		}
	}
	file := filepath.Join(c.dir, epochsName)
	for i, e := range c.epochs {
		if c.damaged {
			break
		}
		if e.Start > c.next {
			c.p.find(Finding{file, -1, e.Start, int64(i), fmt.Sprintf("epoch %d is said to begin at offset %d, the log ends at %d", e.Epoch, e.Start, c.next)})
		} else if i+1 == len(c.epochs) && c.started && e.Epoch > c.epoch && e.Start < c.next {
			c.p.find(Finding{file, -1, e.Start, int64(i), fmt.Sprintf("epoch %d is said to begin at offset %d, no batch is of it", e.Epoch, e.Start)})
		}
	}
}

// snapshotsUpTo compares the snapshots of offsets up to the next batch with the state there.
func (c *check) snapshotsUpTo(next int64) {
	for len(c.snapshots) > 0 && c.snapshots[0] <= next {
		o := c.snapshots[0]
		c.snapshots = c.snapshots[1:]
		if o < c.bases[0] || (!c.started && o > 0) || c.replay == nil {
			continue // the seed itself, or nothing to compare with
		}
		c.compareSnapshot(o)
	}
}

func (c *check) compareSnapshot(o int64) {
	name := c.path(o, ".snapshot")
	b, err := os.ReadFile(name)
	if err != nil {
		return
	}
	es, err := log.DecodeSnapshot(b)
	if err != nil { // printing said so; this says where
		if es, err = log.ParseSnapshot(b); err != nil {
			return
		}
	}
	for i, e := range es {
		want, ok := c.replay.Producer(e.ProducerID)
		switch {
		case !ok && c.bases[0] == 0 && c.cleaned == 0 && !c.loose:
			c.p.badEntry(name, i, snapshotHead, snapshotEntry, "producer %d has no batch in the log below offset %d", e.ProducerID, o)
		case ok && e != want && o > c.cleaned && !c.loose:
			c.p.badEntry(name, i, snapshotHead, snapshotEntry, "%+v, the log says %+v", e, want)
		}
	}
}
