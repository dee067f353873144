package log

import (
	"os"
	"path/filepath"
	"testing"

	"stet/internal/clock"
	"stet/internal/vfs"
	"stet/zerocopy/batch"
)

// TestReadaheadRealFiles counts pages of real files: what a cold reader brings is gone after
// it, what was in memory before and the tail stay, and most of what it reads was there before it came.
func TestReadaheadRealFiles(t *testing.T) {
	cfg := DefaultConfig()
	cfg.SegmentBytes = 16 << 20
	m, err := OpenManager(ManagerOptions{Dirs: []string{t.TempDir()}, NodeID: 1, Clock: clock.System}, func(string) Config { return cfg })
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}()
	l, err := m.Create("t", 0, testID, 7, cfg)
	if err != nil {
		t.Fatal(err)
	}
	value := make([]byte, 500<<10)
	for l.Size() < 100<<20 {
		if _, err := l.AppendAsLeader(batch.Build(nil, hdr(), batch.KV{Value: value}), 0, OriginClient); err != nil {
			t.Fatal(err)
		}
	}
	l.SetHighWatermark(l.LogEndOffset())
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	resident := func(s *segment, from, to int64) int64 {
		t.Helper()
		f, err := s.file.pin()
		if err != nil {
			t.Fatal(err)
		}
		defer s.file.unpin()
		n, err := f.(vfs.PageCacher).Resident(from, to-from)
		if err != nil {
			t.Skipf("READAHEAD NOT TESTED ON REAL FILES: pages in memory cannot be counted here: %v", err)
		}
		return n
	}
	for _, s := range l.segs {
		if err := s.file.f.(vfs.PageCacher).DontNeed(0, 0); err != nil {
			t.Fatal(err)
		}
		if n := resident(s, 0, s.size); n > 0 {
			t.Skipf("READAHEAD NOT TESTED ON REAL FILES: this file system keeps %d of %d bytes in memory", n, s.size)
		}
	}
	// Whether memory is short, and whether the kernel takes a block at once, is another file's to show.
	control, err := vfs.OS.OpenFile(filepath.Join(t.TempDir(), "control"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer control.Close()
	if _, err := control.WriteAt(make([]byte, 2<<20), 0); err != nil {
		t.Fatal(err)
	}
	if err := control.Sync(); err != nil {
		t.Fatal(err)
	}
	controlled := func() int64 {
		n, err := control.(vfs.PageCacher).Resident(0, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if err := control.(vfs.PageCacher).DontNeed(0, 0); err != nil {
		t.Fatal(err)
	}
	if err := control.(vfs.PageCacher).WillNeed(0, 1<<20); err != nil {
		t.Fatal(err)
	}
	whole := controlled() == 1<<20
	if _, err := control.ReadAt(make([]byte, 1<<20), 0); err != nil {
		t.Fatal(err)
	}
	read := func(seg *segment, off int64, p []byte) {
		t.Helper()
		if _, err := seg.file.ReadAt(p, off); err != nil {
			t.Fatal(err)
		}
	}
	hot, last := l.segs[2], l.active()
	read(hot, 4<<20, make([]byte, 8<<20)) // somebody's
	read(last, 0, make([]byte, last.size))

	p := make([]byte, 2<<20)
	ready, asked := int64(0), int64(0)
	for o := int64(0); o < l.LogEndOffset(); {
		s, err := l.Read(o, 1<<20, noOffset, true)
		if err != nil {
			t.Fatal(err)
		}
		ready += resident(s.seg, s.Pos(), s.Pos()+int64(s.Len()))
		asked += int64(s.Len())
		if _, err := s.ReadAt(p[:s.Len()], 0); err != nil {
			t.Fatal(err)
		}
		o = nextOf(t, p[:s.Len()], o)
		s.Release()
		m.ahead.drain(false)
	}
	if !whole {
		t.Log("NOT TESTED: whether bytes are there before they are asked for; this kernel or device does not take a block at once")
	} else if ready < asked/2 {
		t.Errorf("of %d bytes %d were in memory when they were asked for", asked, ready)
	}
	if controlled() != 1<<20 {
		t.Skip("NOT TESTED: what stays in memory; the system takes back pages of others, too")
	}
	for i, s := range l.segs[:4] {
		limit := int64(4 << 20) // what is read before a run of reads is seen as one
		if i == 0 {
			limit += 8 << 20 // and what the kernel itself reads ahead after it
		}
		if s == hot {
			if n := resident(s, 5<<20, 12<<20); n != 7<<20 {
				t.Errorf("of what was in memory before %d bytes of %d are left", n, 7<<20)
			}
			limit += 8 << 20
		}
		if n := resident(s, 0, s.size); n > limit {
			t.Errorf("segment %d: %d bytes of %d are left in memory", i, n, s.size)
		}
	}
	if n := resident(last, 0, last.size); n < last.size {
		t.Errorf("the tail has %d bytes of %d in memory", n, last.size)
	}
}
