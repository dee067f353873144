package log

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing"

	"stet/internal/invariant"
	"stet/internal/vfs"
	"stet/zerocopy/batch"
)

// rotImage is a cleanly stopped log of several segments without gaps, with batches of many sizes and epochs.
func rotImage(t testing.TB, n int) (e *env, stored []batch.Batch) {
	e = newEnv(t)
	e.cfg.SegmentBytes, e.cfg.IndexIntervalBytes = 900, 150
	l := e.create()
	for i := range n {
		e.clock.Advance(1e6)
		h := hdr()
		h.BaseOffset, h.PartitionLeaderEpoch = l.LogEndOffset(), int32(i/7)
		h.Timestamp += int64(i)
		b := batch.Build(nil, h, kvs(1+i%4, "rot")...)
		e.follow(l, b)
		stored = append(stored, b)
	}
	l.SetHighWatermark(l.LogEndOffset())
	if len(l.segs) < 3 {
		t.Fatalf("%d segments", len(l.segs))
	}
	if err := e.m.Close(); err != nil {
		t.Fatal(err)
	}
	return e, stored
}

func openClone(t testing.TB, from *env, mem *vfs.Mem) (*env, *Log) {
	t.Helper()
	e := newEnv(t)
	e.cfg, e.clock, e.mem, e.fs = from.cfg, from.clock, mem, mem
	e.open()
	return e, e.m.Get("t", 0)
}

// serve reads the log as fetches of so many bytes do, and goes on behind what is answered with an error. What is served must be
// the stored batches, in order, with epochs but for their leader epochs; it returns the offsets that were not served.
func serve(l *Log, stored []batch.Batch, maxBytes int, epochs bool) (missing []int64, bad []*CorruptBatchError, err error) {
	i := 0
	for o := l.LogStartOffset(); o < l.LogEndOffset(); {
		s, rerr := l.Read(o, maxBytes, l.HighWatermark(), true)
		if rerr != nil {
			var c *CorruptBatchError
			if !errors.As(rerr, &c) || !errors.Is(rerr, ErrCorruptMessage) {
				return missing, bad, fmt.Errorf("offset %d: %w", o, rerr)
			}
			if o < c.First || o >= c.Next || c.File == "" {
				return missing, bad, fmt.Errorf("offset %d: %w", o, rerr)
			}
			if len(bad) == 0 || bad[len(bad)-1] != c {
				bad = append(bad, c)
			}
			missing = append(missing, o)
			o++
			continue
		}
		if s.Len() == 0 {
			return missing, bad, fmt.Errorf("nothing at offset %d, below the end %d", o, l.LogEndOffset())
		}
		p := make([]byte, s.Len())
		_, rerr = s.ReadAt(p, 0)
		s.Release()
		if rerr != nil {
			return missing, bad, rerr
		}
		for n := 0; len(p) > 0; n++ {
			for i < len(stored) && stored[i].LastOffset() < o {
				i++
			}
			if i == len(stored) {
				return missing, bad, fmt.Errorf("offset %d: more than was stored", o)
			}
			want := stored[i]
			if n > 0 && len(p) < len(want) {
				break // cut off: a client drops it
			}
			if len(p) < len(want) || !bytes.Equal(p[:len(want)], want) {
				got := batch.Batch(slices.Clone(p[:min(len(p), len(want))]))
				if len(got) == len(want) {
					got.SetPartitionLeaderEpoch(want.PartitionLeaderEpoch())
				}
				if !epochs || !bytes.Equal(got, want) {
					return missing, bad, fmt.Errorf("offset %d: other bytes than the batch %d to %d", o, want.BaseOffset(), want.LastOffset())
				}
			}
			o, p = want.NextOffset(), p[len(want):]
		}
	}
	return missing, bad, nil
}

func logFiles(t testing.TB, mem *vfs.Mem) (names []string) {
	t.Helper()
	entries, err := mem.ReadDir("/data/t-0")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), logSuffix) {
			names = append(names, path.Join("/data/t-0", e.Name()))
		}
	}
	return names
}

// TestFlippedBitIsNotServed: one bit of a cleanly stopped log is another one, each in turn. Of what is served every byte is as it
// was stored; what is not is exactly the batch with the bit, named with file and position; and what follows is readable. Where the
// end of the log is hit, it may be cut there, named, too. Readers of timestamps never see another record.
func TestFlippedBitIsNotServed(t *testing.T) {
	from, stored := rotImage(t, 40)
	end := stored[len(stored)-1].NextOffset()
	step := 1
	if testing.Short() || invariant.Race {
		step = 29
	}
	cuts := 0
	for _, name := range logFiles(t, from.mem) {
		p, err := readFile(from.mem, name)
		if err != nil {
			t.Fatal(err)
		}
		base, _ := parseSegmentName(path.Base(name), logSuffix)
		for at := 0; at < len(p); at += step {
			q := slices.Clone(p)
			q[at] ^= 1 << ((at + int(base)) % 8)
			for _, maxBytes := range []int{1, 300, 1 << 20} {
				what := fmt.Sprintf("%s: byte %d, reads of %d", name, at, maxBytes)
				mem := from.mem.Clone()
				rewrite(t, mem, name, q)
				e, l := openClone(t, from, mem)
				if err := l.Err(); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				hit := batchAt(stored, base, int64(at))
				if l.LogEndOffset() != end {
					cuts++
					if l.LogEndOffset() != hit.BaseOffset() || hit.NextOffset() != end || !strings.Contains(e.logs.String(), "corrupt end of the log is cut off") {
						t.Fatalf("%s: the log ends at %d, not %d: %s", what, l.LogEndOffset(), end, e.logs.String())
					}
				}
				missing, bad, err := serve(l, stored, maxBytes, strings.Contains(e.logs.String(), "leader epochs are rebuilt"))
				if err != nil {
					t.Fatalf("%s: %v; %s", what, err, e.logs.String())
				}
				if l.LogEndOffset() == end && len(missing) == 0 && !strings.Contains(e.logs.String(), "leader epochs are rebuilt") {
					t.Fatalf("%s: not noticed: %s", what, e.logs.String())
				}
				for _, o := range missing {
					if o < hit.BaseOffset() || o > hit.LastOffset() {
						t.Fatalf("%s: offset %d is not served, the bit is in %d to %d: %s", what, o, hit.BaseOffset(), hit.LastOffset(), e.logs.String())
					}
				}
				if len(bad) > 1 || len(bad) == 1 && (bad[0].File != name || int64(at) < bad[0].Position || int64(at) >= bad[0].Position+bad[0].Size) {
					t.Fatalf("%s: %+v", what, bad)
				}
				if n := strings.Count(e.logs.String(), "corrupt batch is not served"); n < len(bad) || n > 1 || int64(n) != e.m.CorruptBatches() {
					t.Fatalf("%s: %d events, %d counted: %s", what, n, e.m.CorruptBatches(), e.logs.String())
				}
				timesOf(t, what, l, stored)
			}
		}
	}
	if cuts == 0 {
		t.Error("no flip hit the end of the log")
	}
}

// batchAt is the stored batch that holds a position of the segment with the given base.
func batchAt(stored []batch.Batch, base, at int64) batch.Batch {
	for _, b := range stored {
		if b.BaseOffset() < base {
			continue
		}
		if at < int64(len(b)) {
			return b
		}
		at -= int64(len(b))
	}
	return nil
}

// timesOf looks timestamps up: what is answered must be right.
func timesOf(t *testing.T, what string, l *Log, stored []batch.Batch) {
	t.Helper()
	for i := 0; i < len(stored); i += 3 {
		ts := stored[i].MaxTimestamp()
		o, got, _, err := l.OffsetForTimestamp(ts)
		if err != nil {
			if !errors.Is(err, ErrCorruptMessage) {
				t.Fatalf("%s: timestamp %d: %v", what, ts, err)
			}
			continue
		}
		if o < 0 && stored[i].NextOffset() > l.LogEndOffset() {
			continue
		}
		if o != stored[i].BaseOffset() || got != ts {
			t.Fatalf("%s: timestamp %d: offset %d at %d, want %d", what, ts, o, got, stored[i].BaseOffset())
		}
	}
}

// countingFS counts the bytes that are read of .log files.
type countingFS struct {
	*vfs.Mem
	calls, bytes int64
}

type countingFile struct {
	vfs.File
	fs *countingFS
}

func (f *countingFS) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	file, err := f.Mem.OpenFile(name, flag, perm)
	if err != nil || !strings.HasSuffix(name, logSuffix) {
		return file, err
	}
	return countingFile{file, f}, nil
}

func (f countingFile) ReadAt(p []byte, off int64) (int, error) {
	f.fs.calls++
	f.fs.bytes += int64(len(p))
	return f.File.ReadAt(p, off)
}

// TestSecondReadChecksNothing: the check costs one read of the bytes, once; not at the start, and not where this process wrote them.
func TestSecondReadChecksNothing(t *testing.T) {
	e := newEnv(t)
	l := e.create()
	for l.Size() < 1<<20 {
		e.follow(l, plainAt(batch.Header{BaseOffset: l.LogEndOffset(), Timestamp: t0.UnixMilli(), ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}, 200))
	}
	counted := &countingFS{Mem: e.mem}
	e.fs = counted
	l = e.reopen()
	if counted.bytes > 300<<10 {
		t.Errorf("%d bytes were read at the start", counted.bytes)
	}
	old := l.LogEndOffset()
	e.follow(l, at(old, 0, 100))
	pass := func(from, to int64) (calls, n int64) {
		t.Helper()
		counted.calls, counted.bytes = 0, 0
		for o := from; o < to; {
			s, err := l.Read(o, 64<<10, noOffset, true)
			if err != nil {
				t.Fatal(err)
			}
			before, bytesBefore := counted.calls, counted.bytes
			p := make([]byte, s.Len())
			if _, err := s.ReadAt(p, 0); err != nil {
				t.Fatal(err)
			}
			s.Release()
			counted.calls, counted.bytes = before, bytesBefore // what a client gets is read by sendfile
			o = nextOf(t, p, o)
		}
		return counted.calls, counted.bytes
	}
	size := l.Size()
	if _, n := pass(old, l.LogEndOffset()); n > 16<<10 {
		t.Errorf("%d bytes were read to serve what was appended", n)
	}
	_, first := pass(0, old)
	_, second := pass(0, old)
	reads := size/(64<<10) + 1
	if first < size || first > size+size/4 {
		t.Errorf("%d bytes were read to check %d", first, size)
	}
	if second > 2*reads*findWindow {
		t.Errorf("%d bytes were read the second time, of %d", second, size)
	}
	if l.segs[0].suspect.Load() {
		t.Error("still suspect after all of it was read")
	}
}

// TestSpansAreBounded: reads of every hundredth batch leave no more spans than there may be, and all is served.
func TestSpansAreBounded(t *testing.T) {
	e := newEnv(t)
	e.cfg.IndexIntervalBytes = 64
	l := e.create()
	var stored []batch.Batch
	for range 1000 {
		b := batch.Batch(at(l.LogEndOffset(), 0, 1))
		e.follow(l, b)
		stored = append(stored, b)
	}
	l.SetHighWatermark(1000)
	l = e.reopen()
	for _, step := range []int64{10, 7, 3} {
		for o := int64(0); o < 1000; o += step {
			s, err := l.Read(o, 1, noOffset, true)
			if err != nil {
				t.Fatal(err)
			}
			s.Release()
			if n := len(l.segs[0].check.spans); n > maxSpans {
				t.Fatalf("%d spans", n)
			}
		}
	}
	if missing, _, err := serve(l, stored, 500, false); err != nil || len(missing) > 0 {
		t.Fatal(missing, err)
	}
}

// flipIn flips a bit of the batch that holds offset.
func flipIn(t *testing.T, mem *vfs.Mem, stored []batch.Batch, offset int64, at int) (name string, pos int64) {
	t.Helper()
	for _, name := range slices.Backward(logFiles(t, mem)) {
		base, _ := parseSegmentName(path.Base(name), logSuffix)
		if base > offset {
			continue
		}
		for _, b := range stored {
			if b.BaseOffset() < base {
				continue
			}
			if b.LastOffset() >= offset {
				p, err := readFile(mem, name)
				if err != nil {
					t.Fatal(err)
				}
				p[pos+int64(at)] ^= 4
				rewrite(t, mem, name, p)
				return name, pos
			}
			pos += int64(len(b))
		}
	}
	t.Fatal("no such offset")
	return "", 0
}

// TestCutAtCorruptBatches: a truncation to before, into and behind a corrupt batch leaves whole, right batches, and the log goes on.
func TestCutAtCorruptBatches(t *testing.T) {
	from, stored := rotImage(t, 40)
	last := stored[len(stored)-1].NextOffset()
	for _, header := range []int{3, 9, 70} { // base offset, length, records
		for _, i := range []int{5, 38} {
			b := stored[i]
			for to := b.BaseOffset() - 3; to <= min(b.NextOffset()+3, last-1); to++ {
				mem := from.mem.Clone()
				flipIn(t, mem, stored, b.BaseOffset(), header)
				e, l := openClone(t, from, mem)
				if err := l.Truncate(to); err != nil {
					t.Fatalf("byte %d of batch %d to %d, cut to %d: %v", header, b.BaseOffset(), b.LastOffset(), to, err)
				}
				end := l.LogEndOffset()
				if end > to || end < b.BaseOffset()-8 {
					t.Fatalf("cut to %d: ends at %d", to, end)
				}
				l.SetHighWatermark(end)
				n := slices.IndexFunc(stored, func(b batch.Batch) bool { return b.BaseOffset() >= end })
				kept := append(slices.Clone(stored[:n]), batch.Batch(at(end, 99, 2)))
				e.follow(l, kept[n])
				l.SetHighWatermark(l.LogEndOffset())
				missing, _, err := serve(l, kept, 300, false)
				if err != nil {
					t.Fatalf("byte %d of batch %d to %d, cut to %d: %v", header, b.BaseOffset(), b.LastOffset(), to, err)
				}
				for _, o := range missing {
					if o < b.BaseOffset() || o > b.LastOffset() {
						t.Fatalf("cut to %d: %d is missing", to, o)
					}
				}
			}
		}
	}
}

// TestCorruptBatchIsNotCompacted: a compaction that meets a corrupt batch changes nothing, says so once, and is not tried again
// until the segment is gone.
func TestCorruptBatchIsNotCompacted(t *testing.T) {
	from, stored := rotImage(t, 40)
	for _, header := range []int{3, 9, 70} {
		mem := from.mem.Clone()
		name, pos := flipIn(t, mem, stored, 20, header)
		from.cfg.CleanupPolicy, from.cfg.MinCleanableRatio = "compact", 0
		e, l := openClone(t, from, mem)
		e.m.CompactOnce(context.Background())
		for range 3 {
			e.clock.Advance(1e12)
			if e.m.CompactOnce(context.Background()) {
				t.Error("a second round")
			}
		}
		logs := e.logs.String()
		if strings.Count(logs, "log is not compacted") != 1 || strings.Count(logs, "corrupt batch is not served") != 1 || !strings.Contains(logs, fmt.Sprintf("file=%s position=%d", name, pos)) {
			t.Errorf("byte %d: %s", header, logs)
		}
		if missing, _, err := serve(l, stored, 300, false); err != nil || len(missing) == 0 {
			t.Errorf("byte %d: %v %v", header, missing, err)
		}
		if err := l.Truncate(10); err != nil {
			t.Fatal(err)
		}
		for range 30 {
			e.lead(l, plain(3, "again"), 99, OriginClient)
		}
		l.SetHighWatermark(l.LogEndOffset())
		if !e.m.CompactOnce(context.Background()) || strings.Count(e.logs.String(), "log compacted") != 1 {
			t.Errorf("byte %d: not compacted once the batch is gone: %s", header, e.logs.String())
		}
	}
}

// TestLargeBatchIsCheckedInPieces: a batch larger than the buffer, with its last byte flipped and without.
func TestLargeBatchIsCheckedInPieces(t *testing.T) {
	for _, flip := range []bool{false, true} {
		e := newEnv(t)
		l := e.create()
		h := hdr()
		stored := []batch.Batch{batch.Build(nil, h, batch.KV{Value: make([]byte, 3*walkWindow+17)})}
		e.follow(l, stored[0])
		stored = append(stored, batch.Batch(at(1, 0, 3)))
		e.follow(l, stored[1])
		l.SetHighWatermark(4)
		if err := e.m.Close(); err != nil {
			t.Fatal(err)
		}
		if flip {
			flipIn(t, e.mem, stored, 0, len(stored[0])-1)
		}
		_, l = openClone(t, e, e.mem)
		missing, _, err := serve(l, stored, 1, false)
		if err != nil || len(missing) != map[bool]int{true: 1}[flip] {
			t.Errorf("flipped %v: %v %v", flip, missing, err)
		}
	}
}

// TestRecordsThatLookLikeBatches: behind a batch whose length is wrong, a whole right batch inside of a record is not taken for one of
// the log's, with the index and without it.
func TestRecordsThatLookLikeBatches(t *testing.T) {
	for _, index := range []bool{true, false} {
		e := newEnv(t)
		l := e.create()
		var stored []batch.Batch
		for i := range 6 {
			h := hdr()
			h.BaseOffset = int64(i)
			v := []byte("v")
			if i == 2 { // the inner ones say offset 2, too, and 3
				v = append(at(2, 0, 1), at(3, 0, 1)...)
			}
			stored = append(stored, batch.Build(nil, h, batch.KV{Value: v}))
			e.follow(l, stored[i])
		}
		l.SetHighWatermark(6)
		roll(t, l)
		if err := e.m.Close(); err != nil {
			t.Fatal(err)
		}
		name, _ := flipIn(t, e.mem, stored, 2, 9)
		if !index {
			if err := e.mem.Remove(strings.TrimSuffix(name, logSuffix) + indexSuffix); err != nil {
				t.Fatal(err)
			}
		}
		_, l = openClone(t, e, e.mem)
		missing, _, err := serve(l, stored, 1<<20, false)
		if err != nil || !slices.Equal(missing, []int64{2}) {
			t.Errorf("index %v: %v %v", index, missing, err)
		}
	}
}

var _ io.ReaderAt = countingFile{}
