package log

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"stet/internal/vfs"
)

// twoDirs opens a manager over two directories with two partitions, one in each.
func (e *env) twoDirs() (*Manager, error) {
	return OpenManager(ManagerOptions{FS: e.fs, Dirs: []string{"/a", "/b"}, NodeID: 1, Clock: e.clock}, func(string) Config { return e.cfg })
}

// TestDirectoryFails: a disk that fails while it is written to, or before the start, takes its
// own partitions offline and no others; after a restart with a healthy disk all is there.
func TestDirectoryFails(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EIO, syscall.EROFS, syscall.ENOSPC} {
		t.Run(errno.Error(), func(t *testing.T) {
			e := newEnv(t)
			var broken atomic.Bool
			e.fs = vfs.Inject(e.mem, func(op vfs.Op, path string) error {
				if broken.Load() && strings.HasPrefix(path, "/a") && op != vfs.OpRead && op != vfs.OpStat && op != vfs.OpCloseFile {
					return errno
				}
				return nil
			})
			m, err := e.twoDirs()
			if err != nil {
				t.Fatal(err)
			}
			byDir := map[string][]*Log{}
			want := map[*Log][]byte{}
			for p := range int32(4) {
				l, err := m.Create("t", p, testID, 7, e.cfg)
				if err != nil {
					t.Fatal(err)
				}
				dir := filepath.Dir(l.Dir())
				byDir[dir] = append(byDir[dir], l)
				for i := range 5 {
					b := plain(2, fmt.Sprint(p, i))
					e.lead(l, b, 0, OriginClient)
					want[l] = append(want[l], b...)
				}
			}
			if len(byDir["/a"]) != 2 || len(byDir["/b"]) != 2 {
				t.Fatalf("placement %v", byDir)
			}
			broken.Store(true)
			if _, err := byDir["/a"][0].AppendAsLeader(plain(1, "lost"), 0, OriginClient); !errors.Is(err, ErrStorage) || !errors.Is(err, errno) {
				t.Fatalf("append: %v", err)
			}
			for _, l := range byDir["/a"] {
				var ke *kerr.Error
				if err := l.Err(); !errors.As(err, &ke) || ke != kerr.KafkaStorageError || !strings.Contains(err.Error(), "/a") {
					t.Errorf("%s: %v", l.Dir(), err)
				}
			}
			for _, l := range byDir["/b"] {
				b := plain(1, "goes on")
				e.lead(l, b, 0, OriginClient)
				want[l] = append(want[l], b...)
			}
			for _, d := range m.DirSizes() {
				if (d.Err != nil) != (d.Dir == "/a") {
					t.Errorf("%s: %v", d.Dir, d.Err)
				}
			}
			if _, err := m.Create("old", 0, [16]byte{9}, 8, e.cfg); !errors.Is(err, ErrStorage) {
				t.Errorf("a partition of the start, which may be on the failed disk: %v", err)
			}
			m.ImageApplied()
			if _, err := m.Create("old", 0, [16]byte{9}, 8, e.cfg); !errors.Is(err, ErrStorage) {
				t.Errorf("the same asked for again: %v", err)
			}
			for p := range int32(4) {
				if l, err := m.Create("new", p, [16]byte{8}, 9, e.cfg); err != nil || filepath.Dir(l.Dir()) != "/b" {
					t.Errorf("a new partition goes to the healthy directory: %v %v", l, err)
				}
			}
			m.Checkpoint()
			m.ApplyRetention()
			if err := m.Close(); err == nil {
				t.Error("a clean shutdown of a failed disk")
			}

			if errno != syscall.ENOSPC { // a start with the disk still broken
				if m, err = e.twoDirs(); err != nil {
					t.Fatal(err)
				}
				online := 0
				for _, l := range m.Logs() {
					if l.Err() == nil {
						online++
					}
				}
				if online != 6 || m.DirSizes()[0].Err == nil || m.DirSizes()[1].Err != nil {
					t.Errorf("%d partitions online, %v", online, m.DirSizes())
				}
				_ = m.Close()
			}
			broken.Store(false)
			if m, err = e.twoDirs(); err != nil {
				t.Fatal(err)
			}
			for l, w := range want {
				n := m.Get(l.Topic(), l.Partition())
				if n == nil || n.Err() != nil {
					t.Fatalf("%s-%d is not back: %v", l.Topic(), l.Partition(), n)
				}
				if got := readAll(t, n, 0, n.LogEndOffset()); !bytes.Equal(got, w) {
					t.Errorf("%s-%d: %d bytes, want %d", l.Topic(), l.Partition(), len(got), len(w))
				}
			}
			if err := m.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}
