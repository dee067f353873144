package log

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"stet/internal/vfs"
	"stet/zerocopy/batch"
)

// damaged is a log with several segments, epochs, producers, and transactions.
func damaged(t *testing.T) (e *env, want *reference) {
	e = newEnv(t)
	e.cfg.SegmentBytes, e.cfg.IndexIntervalBytes = 900, 100
	l := e.create()
	seq := map[int64]int32{}
	for i := range 60 {
		pid := int64(i % 4)
		e.clock.Advance(1e6)
		e.lead(l, txn(pid, 0, seq[pid], 2), int32(i/20), OriginClient)
		seq[pid] += 2
		if i%5 == 4 {
			e.lead(l, endTxn(pid, 0, i%10 == 4, 0), int32(i/20), OriginCoordinator)
		}
	}
	l.SetHighWatermark(l.LogEndOffset())
	return e, refer(t, l)
}

// reference is everything a log answers.
type reference struct {
	data     []byte
	end, lso int64
	epochs   []EpochEntry
	aborted  []AbortedTxn
	open     []OpenTxn
	states   []ProducerState
	maxTs    int64
	maxTsAt  int64
}

func refer(t *testing.T, l *Log) *reference {
	t.Helper()
	at, ts, _, err := l.MaxTimestamp()
	if err != nil {
		t.Fatal(err)
	}
	return &reference{
		readAll(t, l, l.LogStartOffset(), noOffset), l.LogEndOffset(), l.LastStableOffset(), l.EpochEntries(),
		l.AbortedTxns(0, noOffset), l.OpenTransactions(), l.ActiveProducers(), ts, at,
	}
}

func (r *reference) compare(t *testing.T, l *Log) {
	t.Helper()
	if err := l.Err(); err != nil {
		t.Fatal(err)
	}
	l.SetHighWatermark(l.LogEndOffset())
	g := refer(t, l)
	if !bytes.Equal(g.data, r.data) || g.end != r.end || g.lso != r.lso || g.maxTs != r.maxTs || g.maxTsAt != r.maxTsAt {
		t.Errorf("%d bytes, end %d, stable %d, time %d at %d; want %d, %d, %d, %d at %d", len(g.data), g.end, g.lso, g.maxTs, g.maxTsAt, len(r.data), r.end, r.lso, r.maxTs, r.maxTsAt)
	}
	if !slices.Equal(g.epochs, r.epochs) {
		t.Errorf("epochs %v, want %v", g.epochs, r.epochs)
	}
	if !slices.Equal(g.aborted, r.aborted) || !slices.Equal(g.open, r.open) || !slices.Equal(g.states, r.states) {
		t.Errorf("aborted %v, open %v, producers %v; want %v, %v, %v", g.aborted, g.open, g.states, r.aborted, r.open, r.states)
	}
	for o := l.LogStartOffset(); o < l.LogEndOffset(); o++ {
		s, err := l.Read(o, 1, noOffset, true)
		if err != nil {
			t.Fatalf("offset %d: %v", o, err)
		}
		p := make([]byte, s.Len())
		if _, err := s.ReadAt(p, 0); err != nil {
			t.Fatal(err)
		}
		s.Release()
		if b := batch.Batch(p); b.BaseOffset() > o || b.LastOffset() < o {
			t.Fatalf("offset %d: batch %d to %d", o, b.BaseOffset(), b.LastOffset())
		}
	}
}

func rewrite(t *testing.T, fsys vfs.FS, name string, p []byte) {
	t.Helper()
	f, err := fsys.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(p, 0); err != nil {
		t.Fatal(err)
	}
	f.Close()
}

// TestEveryFileDamaged: C08 and the like. Whatever happens to a file that is not the data
// itself, the log answers as before, after a clean shutdown and after a crash.
func TestEveryFileDamaged(t *testing.T) {
	kinds := map[string]func(p []byte) []byte{
		"missing":         nil,
		"empty":           func(p []byte) []byte { return nil },
		"short":           func(p []byte) []byte { return p[:len(p)/2] },
		"one less":        func(p []byte) []byte { return p[:max(len(p)-1, 0)] },
		"last entry lost": func(p []byte) []byte { return p[:max(len(p)-12, 0)] },
		"flipped":         func(p []byte) []byte { p = slices.Clone(p); p[len(p)/2] ^= 0x41; return p },
		"garbage":         func(p []byte) []byte { return bytes.Repeat([]byte{0xA5}, len(p)+7) },
		"zeros":           func(p []byte) []byte { return make([]byte, len(p)) },
		"preallocated":    func(p []byte) []byte { return append(slices.Clone(p), make([]byte, 4800)...) },
	}
	for _, clean := range []bool{true, false} {
		e, want := damaged(t)
		dir := "/data/t-0"
		var image *vfs.Mem
		if clean {
			if err := e.m.Close(); err != nil {
				t.Fatal(err)
			}
			image = e.mem.Clone()
		} else {
			e.m.FlushSealed()
			e.m.Checkpoint()
			image = e.mem.Clone()
		}
		entries, err := image.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		tried := map[string]int{}
		for _, ent := range entries {
			name := ent.Name()
			ext := path.Ext(name)
			if ext == logSuffix || name == metadataFile || name == incarnationFile {
				continue
			}
			if !clean && ext == txnIndexSuffix {
				// Below the recovery point it is believed; only a bad one is made again.
				continue
			}
			p, err := readFile(image, path.Join(dir, name))
			if err != nil || len(p) == 0 {
				continue
			}
			for kind, f := range kinds {
				if ext == txnIndexSuffix && kind != "short" && kind != "one less" && kind != "flipped" && kind != "garbage" {
					continue // a transaction index that is missing means that nothing was aborted
				}
				if ext == txnIndexSuffix && len(f(p))%txnEntrySize == 0 && kind != "garbage" {
					continue
				}
				if (ext == indexSuffix || ext == timeIndexSuffix) && kind == "flipped" {
					continue // no checksum: TestIndexFlips
				}
				if name == epochFile && kind == "flipped" {
					continue // a text file without a checksum
				}
				tried[ext]++
				t.Run(fmt.Sprintf("clean=%v %s %s", clean, name, kind), func(t *testing.T) {
					mem := image.Clone()
					if f == nil {
						if err := mem.Remove(path.Join(dir, name)); err != nil {
							t.Fatal(err)
						}
					} else {
						rewrite(t, mem, path.Join(dir, name), f(p))
					}
					e2 := newEnv(t)
					e2.cfg = e.cfg
					e2.clock = e.clock
					want.compare(t, e2.crash(mem))
				})
			}
		}
		for _, ext := range []string{indexSuffix, timeIndexSuffix, snapshotSuffix, ""} {
			if tried[ext] == 0 {
				t.Errorf("no file %q was damaged", ext)
			}
		}
	}
}

// TestCheckpointsDamaged: the files of the directory, each missing or torn.
func TestCheckpointsDamaged(t *testing.T) {
	e, want := damaged(t)
	if err := e.m.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{recoveryPointFile, logStartFile, highWatermarkFile, cleanFile} {
		for _, kind := range []string{"missing", "empty", "torn", "garbage"} {
			t.Run(name+" "+kind, func(t *testing.T) {
				mem := e.mem.Clone()
				p, err := readFile(mem, "/data/"+name)
				if err != nil {
					t.Fatal(err)
				}
				switch kind {
				case "missing":
					if err := mem.Remove("/data/" + name); err != nil {
						t.Fatal(err)
					}
				case "empty":
					rewrite(t, mem, "/data/"+name, nil)
				case "torn":
					rewrite(t, mem, "/data/"+name, p[:len(p)-1])
				case "garbage":
					rewrite(t, mem, "/data/"+name, []byte("7\nx y z\n"))
				}
				e2 := newEnv(t)
				e2.cfg, e2.clock = e.cfg, e.clock
				want.compare(t, e2.crash(mem))
			})
		}
	}
}

// TestTornTail cuts the data at every byte of the last batches. What is left is whole.
func TestTornTail(t *testing.T) {
	e, want := damaged(t)
	name := e.m.Get("t", 0).active().path + logSuffix
	p, err := readFile(e.mem, name)
	if err != nil {
		t.Fatal(err)
	}
	before := len(want.data) - len(p)
	for n := range len(p) {
		mem := e.mem.Clone()
		rewrite(t, mem, name, p[:n])
		e2 := newEnv(t)
		e2.cfg, e2.clock = e.cfg, e.clock
		l := e2.crash(mem)
		got := readAll(t, l, 0, noOffset)
		if !bytes.HasPrefix(want.data, got) || len(got) < before {
			t.Fatalf("cut at %d: %d bytes", n, len(got))
		}
		whole := 0
		for rest := p[:n]; ; {
			b, r, err := batch.Next(rest)
			if err != nil {
				break
			}
			whole += len(b)
			rest = r
		}
		if len(got) != before+whole {
			t.Fatalf("cut at %d: %d bytes, want %d", n, len(got), before+whole)
		}
		if r := l.Recovered(); (r.CutBytes > 0) != (whole < n) || r.CutBytes != int64(n-whole) {
			t.Fatalf("cut at %d: %+v", n, r)
		}
	}
}

// TestFlippedByte changes every byte of the last segment. The log ends before the batch that
// holds it, or, for a byte that no checksum covers, is unchanged in length.
func TestFlippedByte(t *testing.T) {
	e, want := damaged(t)
	name := e.m.Get("t", 0).active().path + logSuffix
	p, err := readFile(e.mem, name)
	if err != nil {
		t.Fatal(err)
	}
	before := len(want.data) - len(p)
	for n := range len(p) {
		start := 0
		for start+int(batch.SizeOf(p[start:])) <= n {
			start += int(batch.SizeOf(p[start:]))
		}
		mem := e.mem.Clone()
		q := slices.Clone(p)
		q[n] ^= 0x80
		rewrite(t, mem, name, q)
		e2 := newEnv(t)
		e2.cfg, e2.clock = e.cfg, e.clock
		l := e2.crash(mem)
		if err := l.Err(); err != nil {
			t.Fatalf("byte %d: %v", n, err)
		}
		size := int(l.Size())
		if inEpoch := n-start >= 12 && n-start < 16; inEpoch {
			if size != len(want.data) {
				t.Fatalf("byte %d, in the leader epoch: %d bytes", n, size)
			}
			continue
		}
		if inOffset := n-start < 8; inOffset && size > before+start {
			continue // an offset that still rises cannot be told from a gap; the next one may tell
		}
		if size != before+start {
			t.Fatalf("byte %d: %d bytes, want %d", n, size, before+start)
		}
	}
}

// TestLostMiddle: a segment in the middle lost its end, later ones survived a power failure.
func TestLostMiddle(t *testing.T) {
	e, want := damaged(t)
	l := e.m.Get("t", 0)
	mid := l.segs[len(l.segs)/2]
	mem := e.mem.Clone()
	p, err := readFile(mem, mid.path+logSuffix)
	if err != nil {
		t.Fatal(err)
	}
	keep := int(batch.SizeOf(p))
	rewrite(t, mem, mid.path+logSuffix, p[:keep]) // at a batch boundary
	e2 := newEnv(t)
	e2.cfg, e2.clock = e.cfg, e.clock
	l = e2.crash(mem)
	got := readAll(t, l, 0, noOffset)
	if !bytes.HasPrefix(want.data, got) || l.LogEndOffset() <= mid.base || l.LogEndOffset() >= want.end {
		t.Fatalf("end %d, %d bytes", l.LogEndOffset(), len(got))
	}
	r := l.Recovered()
	if r.CutFrom != l.LogEndOffset() || r.CutBytes == 0 || r.Reason == "" {
		t.Fatalf("%+v", r)
	}
	if !strings.Contains(e2.logs.String(), "log is cut after a crash") {
		t.Fatal("the cut was not logged")
	}
}

// TestOldFormat: a log of messages that we cannot read is not touched.
func TestOldFormat(t *testing.T) {
	e := newEnv(t)
	l := e.create()
	e.lead(l, plain(1, "x"), 0, OriginClient)
	name := l.active().path + logSuffix
	mem := e.mem.Clone()
	// A message of format 1: offset, size, crc32, magic 1, attributes, timestamp, key, value.
	msg := make([]byte, 12+4+1+1+8+4+4+3)
	be.PutUint32(msg[8:], uint32(len(msg)-12))
	msg[16] = 1
	be.PutUint32(msg[26:], 0xffffffff)
	be.PutUint32(msg[30:], 3)
	copy(msg[34:], "abc")
	be.PutUint32(msg[12:], crc32.ChecksumIEEE(msg[16:]))
	rewrite(t, mem, name, msg)
	l = e.crash(mem)
	if err := l.Err(); !errors.Is(err, ErrUnsupportedFormat) || !errors.Is(err, ErrStorage) {
		t.Fatal(err)
	}
	if p, _ := readFile(mem, name); !bytes.Equal(p, msg) {
		t.Fatal("the file was changed")
	}
	// Only this partition is offline.
	other, err := e.m.Create("other", 0, testID, 1, e.cfg)
	if err != nil || other.Err() != nil {
		t.Fatal(err)
	}
	if _, err := l.AppendAsLeader(plain(1, "y"), 0, OriginClient); !errors.Is(err, ErrStorage) {
		t.Fatal(err)
	}
	if _, err := l.Read(0, 1, 1, true); !errors.Is(err, ErrStorage) {
		t.Fatal(err)
	}
}

// TestDiskErrors fails every kind of write once. The partition goes offline, the other one
// works on, and after a restart everything acknowledged is there.
func TestDiskErrors(t *testing.T) {
	for _, op := range []vfs.Op{vfs.OpWrite, vfs.OpOpen, vfs.OpRename, vfs.OpTruncate, vfs.OpSync, vfs.OpSyncDir} {
		t.Run(string(op), func(t *testing.T) {
			e := newEnv(t)
			e.cfg.SegmentBytes = 300
			armed := false
			e.fs = vfs.Inject(e.mem, func(o vfs.Op, name string) error {
				if armed && o == op && strings.HasPrefix(name, "/data/t-0") {
					if o == vfs.OpWrite {
						return &vfs.ShortWrite{N: 10}
					}
					return errors.New("EIO")
				}
				return nil
			})
			l := e.create()
			other, err := e.m.Create("other", 0, testID, 1, e.cfg)
			if err != nil {
				t.Fatal(err)
			}
			for i := range 10 {
				e.lead(l, plain(1, fmt.Sprint(i)), 0, OriginClient)
			}
			acked := readAll(t, l, 0, noOffset)
			armed = true
			var got error
			for i := 0; i < 10 && got == nil; i++ {
				if _, got = l.AppendAsLeader(plain(1, "late"), 1, OriginClient); got == nil {
					acked = readAll(t, l, 0, noOffset)
					got = l.Flush()
				}
				if got == nil && i == 5 {
					acked = acked[:batch.SizeOf(acked)]
					got = l.Truncate(1)
				}
			}
			if !errors.Is(got, ErrStorage) || !errors.Is(l.Err(), ErrStorage) {
				t.Fatalf("%v, %v", got, l.Err())
			}
			if _, err := l.AppendAsFollower(at(100, 1, 1)); !errors.Is(err, ErrStorage) {
				t.Fatalf("an append to an offline partition: %v", err)
			}
			e.lead(other, plain(1, "fine"), 0, OriginClient)
			armed = false
			_ = e.m.Close() // no clean marker: t-0 has failed
			l = e.crash(e.mem.Clone())
			if data := readAll(t, l, 0, noOffset); !bytes.HasPrefix(data, acked) {
				t.Fatalf("%d bytes are left, %d were acknowledged", len(data), len(acked))
			}
		})
	}
}
