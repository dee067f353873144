package log

import (
	"bytes"
	"hash/crc32"
	"testing"

	"stet/zerocopy/batch"
)

func FuzzSnapshot(f *testing.F) {
	s := newProducers()
	for _, b := range [][]byte{idem(7, 2, 40, 3), txn(8, 0, 0, 2), endTxn(9, 1, true, 6)} {
		s.apply(batch.Batch(b))
	}
	good := s.encodeSnapshot()
	f.Add(good)
	f.Add(newProducers().encodeSnapshot())
	f.Fuzz(func(t *testing.T, p []byte) {
		es, err := decodeSnapshot(p)
		if err != nil {
			// The checksum hides the rest of the decoder from the fuzzer: give it a right one.
			if len(p) < snapshotHeader+4 {
				return
			}
			p = bytes.Clone(p)
			be.PutUint16(p, snapshotVersion)
			be.PutUint32(p[2:], crc32.Checksum(p[snapshotHeader:], castagnoli))
			if es, err = decodeSnapshot(p); err != nil {
				return
			}
		}
		st := newProducers()
		st.load(es, 100, 0, 1<<62)
		again, err := decodeSnapshot(st.encodeSnapshot())
		if err != nil || len(again) != len(st.m) {
			t.Fatalf("%d entries, then %d: %v", len(st.m), len(again), err)
		}
	})
}

func FuzzIndexes(f *testing.F) {
	f.Add(appendOffsetEntries(nil, []offsetEntry{{4, 100}, {9, 230}}), int64(1000))
	f.Add(appendTimeEntries(nil, []timeEntry{{1000, 4}, {2000, 9}}), int64(1000))
	f.Add(appendTxnEntries(nil, []abortedTxn{{1, 2, 3, 4}, {1, 5, 6, 7}}), int64(1000))
	f.Fuzz(func(t *testing.T, p []byte, size int64) {
		if es, err := decodeOffsetIndex(p, size); err == nil && !bytes.HasPrefix(p, appendOffsetEntries(nil, es)) {
			t.Fatalf("offset index: %v", es)
		}
		if es, err := decodeTimeIndex(p); err == nil && !bytes.HasPrefix(p, appendTimeEntries(nil, es)) {
			t.Fatalf("time index: %v", es)
		}
		if es, err := decodeTxnIndex(p); err == nil && !bytes.Equal(p, appendTxnEntries(nil, es)) {
			t.Fatalf("transaction index: %v", es)
		}
	})
}

func FuzzCheckpoints(f *testing.F) {
	f.Add([]byte("0\n2\na-b 0 17\nx 3 0\n"))
	f.Add([]byte("0\n2\n0 0\n5 100\n"))
	f.Add([]byte("version: 0\ntopic_id: AQIDAAAAAAAAAAAAAAAAAA"))
	f.Add(encodeIncarnation(41, [16]byte{1, 2, 3}))
	f.Fuzz(func(t *testing.T, p []byte) {
		if m, err := decodeOffsets(p); err == nil {
			again, err := decodeOffsets(encodeOffsets(m))
			if err != nil || len(again) != len(m) {
				t.Fatalf("%v, then %v: %v", m, again, err)
			}
		}
		if es, err := decodeEpochs(p); err == nil {
			again, err := decodeEpochs(encodeEpochs(es))
			if err != nil || len(again) != len(es) {
				t.Fatalf("%v, then %v: %v", es, again, err)
			}
		}
		if id, err := decodeMetadata(p); err == nil {
			if again, err := decodeMetadata(encodeMetadata(id)); err != nil || again != id {
				t.Fatalf("%v, then %v: %v", id, again, err)
			}
		}
		if n, id, err := decodeIncarnation(p); err == nil {
			if again, same, err := decodeIncarnation(encodeIncarnation(n, id)); err != nil || again != n || same != id {
				t.Fatalf("%d of %x, then %d of %x: %v", n, id, again, same, err)
			}
		}
	})
}

// FuzzOpenSegment opens a partition whose only data file is arbitrary. What is kept is a
// prefix of whole batches, in order, and it is still the same after another restart.
func FuzzOpenSegment(f *testing.F) {
	good := bytes.Join([][]byte{at(0, 1, 2), at(2, 1, 1), at(9, 3, 4)}, nil)
	f.Add(good)
	f.Add(good[:len(good)-5])
	f.Add(make([]byte, 300))
	f.Fuzz(func(t *testing.T, p []byte) {
		e := newEnv(t)
		e.create()
		mem := e.mem.Clone()
		file, err := mem.OpenFile(segmentPath("/data/t-0", 0)+logSuffix, 2, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.WriteAt(p, 0); err != nil {
			t.Fatal(err)
		}
		l := e.crash(mem)
		if l.Err() != nil {
			return // a legacy format: nothing is touched
		}
		got := readAll(t, l, l.LogStartOffset(), noOffset)
		if !bytes.HasPrefix(p, got) {
			t.Fatalf("%d bytes that are not those of the file", len(got))
		}
		next := int64(0)
		for rest := got; len(rest) > 0; {
			b, r, err := batch.Next(rest)
			if err != nil || b.CheckCRC() != nil || b.BaseOffset() < next {
				t.Fatalf("a bad batch was kept: %v", err)
			}
			next, rest = b.NextOffset(), r
		}
		if next != l.LogEndOffset() {
			t.Fatalf("end %d, batches end at %d", l.LogEndOffset(), next)
		}
		l = e.reopen()
		if again := readAll(t, l, l.LogStartOffset(), noOffset); !bytes.Equal(again, got) {
			t.Fatal("other bytes after a restart")
		}
	})
}

// FuzzCompacted: stet.compacted. Whatever it holds, the partition opens, and a file that cannot be
// read counts as the careful answer.
func FuzzCompacted(f *testing.F) {
	f.Add([]byte("version: 0\ncompacted: 17\n"))
	f.Add(encodeCompacted(17))
	f.Add([]byte("version: 1\ncompacted: 17\n"))
	f.Add([]byte("compacted: -5"))
	f.Fuzz(func(t *testing.T, p []byte) {
		n, err := decodeCompacted(p)
		if err == nil {
			if n < 0 {
				t.Fatalf("%d", n)
			}
			if again, err := decodeCompacted(encodeCompacted(n)); err != nil || again != n {
				t.Fatalf("%d, then %d: %v", n, again, err)
			}
		}
	})
}

// FuzzTailEntry: the end of a segment is found, or the damage said, whatever its index file holds.
func FuzzTailEntry(f *testing.F) {
	good := bytes.Join([][]byte{at(0, 1, 2), at(2, 1, 1), at(3, 3, 4)}, nil)
	f.Add(appendOffsetEntries(nil, []offsetEntry{{2, int32(batch.SizeOf(good))}}), 0)
	f.Add([]byte{1, 2, 3}, 5)
	f.Fuzz(func(t *testing.T, idx []byte, cut int) {
		e := newEnv(t)
		l := e.create()
		e.follow(l, good)
		s := l.active()
		rewrite(t, e.mem, s.path+indexSuffix, idx)
		if cut > 0 && cut < len(good) {
			s.size -= int64(cut)
		}
		m, err := s.tail()
		if err == nil && (!m.ok || m.last >= 7) || err != nil && !isTorn(err) {
			t.Fatalf("%+v, %v", m, err)
		}
	})
}
