package log

import (
	"bytes"
	"fmt"
	"testing"
)

// TestHandles: with a few open files only, many partitions are written, read, cut, deleted
// and opened again; readers keep what they hold.
func TestHandles(t *testing.T) {
	e := newEnv(t)
	e.cfg.SegmentBytes = 400
	const partitions, limit = 60, 16
	m, err := OpenManager(ManagerOptions{FS: e.fs, Dirs: []string{"/data"}, NodeID: 1, Clock: e.clock, MaxOpenFiles: limit}, func(string) Config { return e.cfg })
	if err != nil {
		t.Fatal(err)
	}
	var logs []*Log
	for p := range int32(partitions) {
		l, err := m.Create("t", p, testID, 7, e.cfg)
		if err != nil {
			t.Fatal(err)
		}
		logs = append(logs, l)
	}
	want := make([][]byte, partitions)
	var held []Slice
	for round := range 6 {
		for i, l := range logs {
			b := plain(3, fmt.Sprint(i, round))
			e.lead(l, b, 0, OriginClient)
			want[i] = append(want[i], b...)
		}
		if n := len(m.handles.open); n > limit {
			t.Fatalf("%d files are open", n)
		}
	}
	for i, l := range logs {
		if got := readAll(t, l, 0, l.LogEndOffset()); !bytes.Equal(got, want[i]) {
			t.Fatalf("partition %d: %d bytes, want %d", i, len(got), len(want[i]))
		}
	}
	for _, l := range logs[:5] {
		s, err := l.Read(0, 1, noOffset, true)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, s)
	}
	if err := m.Delete("t", 0); err != nil {
		t.Fatal(err)
	}
	if err := logs[1].TruncateFullyAndStartAt(0); err != nil {
		t.Fatal(err)
	}
	e.follow(logs[1], at(0, 1, 2))
	if err := logs[2].IncrementLogStartOffset(logs[2].LogEndOffset()); err != nil {
		t.Fatal(err)
	}
	for _, l := range logs[5:] {
		_ = readAll(t, l, 0, l.LogEndOffset())
	}
	for i, s := range held {
		p := make([]byte, s.Len())
		n, _ := s.ReadAt(p, 0)
		if i == 1 { // a cut may shorten it, never change it
			p = p[:n]
		}
		if !bytes.HasPrefix(want[i], p) || (i != 1 && n != s.Len()) {
			t.Errorf("held slice %d: %d of %d bytes", i, n, s.Len())
		}
		s.Release()
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if n := len(m.handles.open); n != 0 {
		t.Errorf("%d files are open after Close", n)
	}
}
