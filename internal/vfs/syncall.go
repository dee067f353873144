package vfs

import (
	"os"
	"sync"
)

const (
	syncTogether = 4  // from so many files on the kernel is asked once for all
	syncThreads  = 64 // else so many are synced at once, each on a thread of its own
)

// SyncAll is Sync of every file, side by side, so that they share the journal commits of the file system. The errors
// are in the order of the files.
func SyncAll(files []File) []error {
	if len(files) >= syncTogether {
		osFiles := make([]*os.File, 0, len(files))
		for _, f := range files {
			if o, ok := f.(*osFile); ok { // not one that somebody watches
				osFiles = append(osFiles, o.f)
			}
		}
		if len(osFiles) == len(files) {
			if errs, ok := syncFiles(osFiles); ok {
				return errs
			}
		}
	}
	errs := make([]error, len(files))
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(len(files), syncThreads) {
		wg.Go(func() {
			for i := range next {
				errs[i] = files[i].Sync()
			}
		})
	}
	for i := range files {
		next <- i
	}
	close(next)
	wg.Wait()
	return errs
}
