package log

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"stet/internal/invariant"
	"stet/internal/vfs"
	"stet/zerocopy/batch"
)

// matrixImage is a file system with a partition that has every kind of file.
type matrixImage struct {
	name string
	env  *env
	mem  *vfs.Mem
	want string
	data []byte

	clean, compacted bool
}

func matrixImages(t *testing.T) (out []matrixImage) {
	t.Helper()
	for _, clean := range []bool{true, false} {
		for _, compacted := range []bool{false, true} {
			e := newEnv(t)
			e.cfg.SegmentBytes, e.cfg.IndexIntervalBytes = 900, 100
			if compacted {
				e.cfg.CleanupPolicy = "compact"
			}
			l := e.create()
			seq := map[int64]int32{}
			for i := range 45 {
				pid := int64(i % 4)
				e.clock.Advance(1e6)
				h := hdr()
				h.ProducerID, h.ProducerEpoch, h.BaseSequence, h.Attributes = pid, 0, seq[pid], batch.AttrTransactional
				h.Timestamp += int64(i)
				e.lead(l, plainAt(h, 2), int32(i/15), OriginClient)
				seq[pid] += 2
				if i%5 == 4 {
					e.lead(l, endTxn(pid, 0, i%10 == 4, 0), int32(i/15), OriginCoordinator)
				}
			}
			// The log start and the high watermark are in their checkpoints.
			l.SetHighWatermark(l.LogEndOffset())
			if compacted {
				if _, err := e.compactNow(l, testCleaner); err != nil {
					t.Fatal(err)
				}
			} else if err := l.IncrementLogStartOffset(12); err != nil {
				t.Fatal(err)
			}
			if clean {
				if err := e.m.Close(); err != nil {
					t.Fatal(err)
				}
			} else {
				if err := l.Flush(); err != nil {
					t.Fatal(err)
				}
				e.lead(l, txn(1, 0, seq[1], 2), 2, OriginClient)
				l.SetHighWatermark(l.LogEndOffset())
				e.m.Checkpoint()
			}
			im := matrixImage{fmt.Sprintf("clean=%v compacted=%v", clean, compacted), e, e.mem.Clone(), "", nil, clean, compacted}
			e2, l2 := im.open(t, im.mem.Clone())
			if s := e2.logs.String(); strings.Contains(s, "level=WARN") || strings.Contains(s, "level=ERROR") || l2.Err() != nil {
				t.Fatalf("%s: events without damage: %s", im.name, s)
			}
			im.want, im.data = observe(t, l2)
			out = append(out, im)
		}
	}
	return out
}

func (im *matrixImage) open(t *testing.T, mem *vfs.Mem) (*env, *Log) {
	e := newEnv(t)
	e.cfg, e.clock, e.mem, e.fs = im.env.cfg, im.env.clock, mem, mem
	m, err := e.tryOpen()
	if err != nil {
		e.logs.WriteString(" level=ERROR " + err.Error())
		return e, nil
	}
	l, err := m.Create("t", 0, testID, 7, e.cfg)
	if err != nil {
		t.Fatal(err)
	}
	return e, l
}

// observe is everything that a log answers, as text, and the bytes that it serves. What is
// served must be whole batches with the right checksum, or an error.
func observe(t *testing.T, l *Log) (string, []byte) {
	t.Helper()
	var out []byte
	var text strings.Builder
	bad := 0
	for o := l.LogStartOffset(); o < l.LogEndOffset() && bad < 100; {
		s, err := l.Read(o, 1, noOffset, true)
		if err != nil {
			fmt.Fprintf(&text, "%d: unreadable\n", o)
			o++
			bad++
			continue
		}
		if s.Len() == 0 {
			break
		}
		p := make([]byte, s.Len())
		_, err = s.ReadAt(p, 0)
		s.Release()
		b, _, berr := batch.Next(p)
		if err != nil || berr != nil || len(b) != len(p) || b.CheckCRC() != nil {
			fmt.Fprintf(&text, "%d: corrupt\n", o)
			o++
			bad++
			continue
		}
		out = append(out, p...)
		o = max(b.NextOffset(), o+1)
	}
	at, ts, epoch, err := l.MaxTimestamp()
	fmt.Fprintln(&text, l.LogStartOffset(), l.LogEndOffset(), l.HighWatermark(), l.LastStableOffset(), at, ts, epoch, err != nil)
	for _, ms := range []int64{0, 10, 30, 50} {
		at, ts, epoch, err := l.OffsetForTimestamp(t0.UnixMilli() + ms)
		fmt.Fprintln(&text, at, ts, epoch, err != nil)
	}
	fmt.Fprintln(&text, l.EpochEntries(), l.AbortedTxns(0, noOffset), l.OpenTransactions(), l.ActiveProducers(), l.TruncationNeedsFullCopy(l.LogEndOffset()-5))
	return text.String(), out
}

// damages are what is done to a file.
func damages(name string, p []byte) map[string]func(mem *vfs.Mem, t *testing.T) {
	m := map[string]func(mem *vfs.Mem, t *testing.T){
		"missing": func(mem *vfs.Mem, t *testing.T) {
			if err := mem.Remove(name); err != nil {
				t.Fatal(err)
			}
		},
	}
	put := func(what string, q []byte) { m[what] = func(mem *vfs.Mem, t *testing.T) { rewrite(t, mem, name, q) } }
	step := 1
	if len(p) > 120 {
		step = 11 // TestTornTail and TestFlippedByte go over every byte of data
	}
	if testing.Short() || invariant.Race {
		step = max(len(p)/2, 41)
	}
	put("empty", nil)
	put("zeros", make([]byte, len(p)))
	put("garbage", bytes.Repeat([]byte{0xA5}, len(p)+7))
	put("longer", append(slices.Clone(p), p...))
	for n := 1; n < len(p); n += step {
		put(fmt.Sprintf("cut at %d", n), p[:n])
	}
	for n := 0; n < len(p); n += step {
		q := slices.Clone(p)
		q[n] ^= 1 << (n % 8)
		put(fmt.Sprintf("flipped at %d", n), q)
	}
	for what, q := range fromTheFuture(path.Base(name), p) {
		put("from the future: "+what, q)
	}
	return m
}

// fromTheFuture is what a later version, or a later time, may have written.
func fromTheFuture(base string, p []byte) map[string][]byte {
	s := string(p)
	m := map[string][]byte{}
	switch {
	case strings.HasSuffix(base, "-checkpoint"):
		m["version"] = []byte(strings.Replace(s, "0\n", "1\n", 1))
		if base != epochFile {
			m["ahead"] = []byte("0\n1\nt 0 99999999\n")
		} else {
			m["ahead"] = []byte("0\n1\n9 99999999\n")
		}
	case base == incarnationFile, base == compactedFile:
		m["version"] = []byte(strings.Replace(s, "version: 1", "version: 2", 1))
	case base == metadataFile:
		m["version"] = []byte(strings.Replace(s, "version: 0", "version: 1", 1))
	case base == metaFile:
		m["version"] = []byte(strings.Replace(s, "version=1", "version=2", 1))
	case strings.HasSuffix(base, snapshotSuffix):
		m["version"] = append([]byte{0, 2}, p[2:]...)
	case strings.HasSuffix(base, txnIndexSuffix) && len(p) > 0:
		m["version"] = append([]byte{0, 1}, p[2:]...)
	case strings.HasSuffix(base, indexSuffix) && len(p) > 0:
		m["ahead"] = appendOffsetEntries(slices.Clone(p), []offsetEntry{{1 << 30, 1 << 30}})
	case strings.HasSuffix(base, timeIndexSuffix) && len(p) > 0:
		m["ahead"] = appendTimeEntries(slices.Clone(p), []timeEntry{{1 << 50, 1 << 30}})
	case strings.HasSuffix(base, logSuffix) && len(p) > 0:
		q := slices.Clone(p)
		q[16] = 3
		m["magic"] = q
		b := batch.Build(nil, batch.Header{BaseOffset: 1 << 40, Timestamp: 1 << 50, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}, batch.KV{Value: []byte("v")})
		m["batch"] = append(slices.Clone(p), b...)
	}
	return m
}

// unnoticed are the files without a checksum in which some damage makes a right file of
// another content, which nothing contradicts; DESIGN.md lists them. Kafka's formats have no room for more.
func (im *matrixImage) unnoticed(base, damage string) bool {
	flipped := strings.HasPrefix(damage, "flipped")
	switch {
	case strings.HasSuffix(base, txnIndexSuffix): // aborted transactions of a segment below the recovery point
		return true
	case base == logStartFile, base == highWatermarkFile: // an offset, or whose it is; missing or empty: as if never written
		return flipped || damage == "missing" || damage == "empty" || strings.HasPrefix(damage, "from the future: ahead")
	case base == recoveryPointFile, base == cleanerFile:
		return flipped || damage == "missing" || damage == "empty"
	case base == compactedFile:
		return damage == "missing"
	case base == metaFile: // directory.id
		return flipped
	case strings.HasSuffix(base, logSuffix): // outside the checksum: an offset that moved inside a gap, an epoch in what a crash makes scan
		return flipped && (im.compacted || !im.clean)
	case base == epochFile:
		return flipped
	}
	return false
}

// TestBadInputMatrix: every kind of file of a partition and of its log directory, damaged in every way, after a clean and
// an unclean stop. The log opens, and answers as before or with an event; or it is offline, with the
// file in the error. It does not panic, lose silently, or serve a corrupt batch.
func TestBadInputMatrix(t *testing.T) {
	kinds := map[string]int{}
	for _, im := range matrixImages(t) {
		var names []string
		for _, dir := range []string{"/data", "/data/t-0"} {
			entries, err := im.mem.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				if e.IsDir() || e.Name() == lockFile {
					continue
				}
				names = append(names, path.Join(dir, e.Name()))
			}
		}
		kindOf := func(base string) string {
			if kind := path.Ext(base); kind != "" && !strings.Contains(base, "properties") && !strings.HasPrefix(base, "stet.") && !strings.HasPrefix(base, ".kafka") && !strings.HasPrefix(base, "partition.") {
				return kind
			}
			return base
		}
		for i, name := range names {
			kind := kindOf(path.Base(name))
			same := func(other string) bool { return kindOf(path.Base(other)) == kind }
			if invariant.Race && slices.ContainsFunc(names[:i], same) && slices.ContainsFunc(names[i+1:], same) {
				continue // the first and the last of each kind; all of them without the race detector
			}
			p, err := readFile(im.mem, name)
			if err != nil {
				t.Fatal(err)
			}
			kinds[kind]++
			for damage, do := range damages(name, p) {
				mem := im.mem.Clone()
				do(mem, t)
				im.check(t, name, damage, mem)
			}
		}
	}
	for _, kind := range []string{
		logSuffix, indexSuffix, timeIndexSuffix, txnIndexSuffix, snapshotSuffix, epochFile, metadataFile, incarnationFile,
		compactedFile, cleanerFile, recoveryPointFile, logStartFile, highWatermarkFile, metaFile, cleanFile,
	} {
		if kinds[kind] == 0 {
			t.Errorf("no file %q was damaged: %v", kind, kinds)
		}
	}
}

func (im *matrixImage) check(t *testing.T, name, damage string, mem *vfs.Mem) {
	t.Helper()
	base := path.Base(name)
	what := fmt.Sprintf("%s: %s %s", im.name, name, damage)
	e, l := im.open(t, mem)
	logs := func() string { return e.logs.String() }
	loud := func() bool { return strings.Contains(logs(), "level=WARN") || strings.Contains(logs(), "level=ERROR") }
	if l == nil {
		if base != metaFile || !strings.Contains(logs(), metaFile) {
			t.Errorf("%s: the manager does not open: %s", what, logs())
		}
		return
	}
	if err := l.Err(); err != nil {
		if !strings.Contains(err.Error(), base) && !strings.Contains(err.Error(), "t-0") {
			t.Errorf("%s: offline without a name: %v", what, err)
		}
		return
	}
	got, data := observe(t, l)
	isLog := strings.HasSuffix(base, logSuffix)
	if got == im.want && bytes.Equal(data, im.data) {
		return
	}
	if !loud() && !im.unnoticed(base, damage) {
		t.Errorf("%s: silently\n%s\ninstead of\n%s\n%d bytes of %d; %s", what, got, im.want, len(data), len(im.data), logs())
	}
	if strings.Contains(got, "corrupt") {
		t.Errorf("%s: a corrupt batch is served", what)
	}
	if !isLog && base != logStartFile && !bytes.Equal(data, im.data) {
		t.Errorf("%s: other data: %d bytes of %d: %s", what, len(data), len(im.data), logs())
	}
	// And it can be stopped and started again.
	if err := e.m.Close(); err != nil && l.Err() == nil {
		t.Errorf("%s: %v", what, err)
	}
}

// TestLeftoversAndUnknownFiles: what a crash, a later version or an operator put beside the
// files of a partition. What is ours to remove goes, and is named; the rest is left alone, and named.
func TestLeftoversAndUnknownFiles(t *testing.T) {
	im := matrixImages(t)[0]
	junk := []byte("junk that is no file of any kind")
	const seg = "/data/t-0/00000000000000000037"
	for _, c := range []struct {
		file    string
		stays   bool
		event   string
		offline bool
	}{
		{seg + ".log.deleted", false, "leftover file is removed", false},
		{seg + ".index.deleted", false, "leftover file is removed", false},
		{seg + ".log.cleaned", false, "taken back", false},
		{seg + ".timeindex.cleaned", false, "taken back", false},
		{seg + ".txnindex.swap", false, "", false},
		{seg + ".log.swap", true, "is offline", true},
		{"/data/t-0/leader-epoch-checkpoint.tmp", false, "leftover file is removed", false},
		{"/data/t-0/00000000000000000999.index", false, "index of a segment that is not there", false},
		{"/data/t-0/00000000000000000999.snapshot", false, "", false},
		{"/data/t-0/notes.txt", true, "unknown file is left alone", false},
		{"/data/t-0/notes.tmp", true, "unknown file is left alone", false},
		{"/data/t-0/backup.deleted", true, "unknown file is left alone", false},
		{"/data/t-0/backup.cleaned", true, "unknown file is left alone", false},
		{"/data/t-0/backup.swap", true, "unknown file is left alone", false},
		{"/data/t-0/123.log", true, "unknown file is left alone", false},
		{"/data/t-0/00000000000000000037.log.bak", true, "unknown file is left alone", false},
		{"/data/t-0/remote_log_snapshot", true, "unknown file is left alone", false},
		{"/data/README", true, "unknown file is left alone", false},
		{"/data/important-delete", true, "unknown file is left alone", false},
		{"/data/recovery-point-offset-checkpoint.tmp", true, "", false},
	} {
		t.Run(path.Base(c.file), func(t *testing.T) {
			mem := im.mem.Clone()
			rewrite(t, mem, c.file, junk)
			e, l := im.open(t, mem)
			logs := e.logs.String()
			if (l.Err() != nil) != c.offline {
				t.Fatalf("%v; %s", l.Err(), logs)
			}
			if !strings.Contains(logs, c.event) || (c.event != "" && !c.offline && !strings.Contains(logs, path.Base(c.file))) {
				t.Errorf("events %s", logs)
			}
			p, err := readFile(mem, c.file)
			if c.stays && (err != nil || string(p) != string(junk)) || !c.stays && !isNotExist(err) {
				t.Errorf("the file: %q, %v", p, err)
			}
			if c.offline {
				return
			}
			if strings.HasSuffix(c.file, txnIndexSuffix+swapSuffix) {
				return // it takes the index's place, and is then found out
			}
			if got, data := observe(t, l); got != im.want || string(data) != string(im.data) {
				t.Errorf("other answers:\n%s\ninstead of\n%s", got, im.want)
			}
		})
	}
	for _, dir := range []string{"/data/lost", "/data/t-0/sub", "/data/x-0.abc-delete"} {
		mem := im.mem.Clone()
		if err := mem.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		e, _ := im.open(t, mem)
		e.m.RemoveDue()
		if _, err := mem.Stat(dir); err != nil || !strings.Contains(e.logs.String(), "unknown file is left alone") {
			t.Errorf("%s: %v; %s", dir, err, e.logs.String())
		}
	}
}
