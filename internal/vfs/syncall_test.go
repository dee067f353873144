package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestSyncAll: many files at once, through the kernel and one by one; the error of one is not that of another.
func TestSyncAll(t *testing.T) {
	for _, n := range []int{0, 1, 3, 4, 600} {
		for _, watched := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d files, watched %t", n, watched), func(t *testing.T) { // which closes them
				synced := 0
				bad := errors.New("disk")
				fsys := OS
				if watched {
					seen := make(chan string, n)
					fsys = Inject(OS, func(op Op, path string) error {
						if op == OpSync {
							seen <- path
							if filepath.Base(path) == "1" {
								return bad
							}
						}
						return nil
					})
					defer func() {
						if len(seen) != n {
							t.Errorf("%d of %d files were synced", len(seen), n)
						}
					}()
				}
				dir := t.TempDir()
				var files []File
				for i := range n {
					f, err := fsys.OpenFile(filepath.Join(dir, fmt.Sprint(i)), os.O_RDWR|os.O_CREATE, 0o644)
					if err != nil {
						t.Fatal(err)
					}
					if _, err := f.WriteAt([]byte("x"), 0); err != nil {
						t.Fatal(err)
					}
					if !watched && i == 1 {
						f.Close()
					} else {
						defer f.Close()
					}
					files = append(files, f)
				}
				for i, err := range SyncAll(files) {
					switch {
					case i != 1 && err == nil:
						synced++
					case i == 1 && (watched && errors.Is(err, bad) || !watched && errors.Is(err, fs.ErrClosed)):
						synced++
					default:
						t.Errorf("file %d of %d: %v", i, n, err)
					}
				}
				if synced != n {
					t.Errorf("%d answers for %d files", synced, n)
				}
			})
		}
	}
}
