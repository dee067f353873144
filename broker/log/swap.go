package log

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"stet/internal/vfs"
)

// finishSwaps completes or takes back the exchange of a compaction, or of a split by Kafka,
// that a crash interrupted. The cases are written down in compact.go. It may be interrupted
// itself, and is then repeated. It returns what it did, for the log.
func finishSwaps(fsys vfs.FS, dir string) (notes []string, err error) {
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var cleaned []string
	minCleaned := noOffset
	swaps := map[int64][]string{} // base -> suffixes
	for _, e := range entries {
		name := e.Name()
		if e.IsDir() || !leftover(name) {
			continue
		}
		switch filepath.Ext(name) {
		case cleanedSuffix:
			cleaned = append(cleaned, name)
			if base, ok := baseOfName(name); ok {
				minCleaned = min(minCleaned, base)
			}
		case swapSuffix:
			if base, ok := baseOfName(name); ok {
				swaps[base] = append(swaps[base], filepath.Ext(strings.TrimSuffix(name, swapSuffix)))
			}
		}
	}
	if len(cleaned) == 0 && len(swaps) == 0 {
		return nil, nil
	}
	bases := make([]int64, 0, len(swaps))
	for base := range swaps {
		bases = append(bases, base)
	}
	slices.Sort(bases)
	// Void .swap files go first: without the .cleaned one they would look like good ones.
	for _, base := range bases {
		if base < minCleaned {
			continue
		}
		for _, suffix := range swaps[base] {
			if err := fsys.Remove(segmentPath(dir, base) + suffix + swapSuffix); err != nil {
				return notes, err
			}
		}
	}
	if len(cleaned) > 0 {
		if err := fsys.SyncDir(dir); err != nil {
			return notes, err
		}
	}
	for _, name := range cleaned {
		if err := fsys.Remove(filepath.Join(dir, name)); err != nil {
			return notes, err
		}
		notes = append(notes, "taken back: "+name)
	}
	for _, base := range bases {
		if base >= minCleaned {
			continue
		}
		if err := finishSwap(fsys, dir, base, swaps[base]); err != nil {
			return notes, err
		}
		notes = append(notes, fmt.Sprintf("completed: %020d", base))
	}
	return notes, fsys.SyncDir(dir)
}

// baseOfName reads the offset that a file's name begins with.
func baseOfName(name string) (int64, bool) {
	digits, _, _ := strings.Cut(name, ".")
	return parseSegmentName(digits, "")
}

// finishSwap completes the exchange at one base.
func finishSwap(fsys vfs.FS, dir string, base int64, suffixes []string) error {
	path := segmentPath(dir, base)
	if slices.Contains(suffixes, logSuffix) {
		end, err := checkSwap(fsys, path+logSuffix+swapSuffix, base)
		if err != nil {
			return err
		}
		if err := removeReplaced(fsys, dir, base, end); err != nil {
			return err
		}
		if err := fsys.Rename(path+logSuffix+swapSuffix, path+logSuffix); err != nil {
			return err
		}
	} else if _, err := fsys.Stat(path + logSuffix); isNotExist(err) {
		// Indexes of a log that is not there any more.
		for _, suffix := range suffixes {
			if err := fsys.Remove(path + suffix + swapSuffix); err != nil {
				return err
			}
		}
		return nil
	} else if err != nil {
		return err
	}
	for _, suffix := range indexSuffixes {
		if !slices.Contains(suffixes, suffix) {
			continue
		}
		if err := fsys.Rename(path+suffix+swapSuffix, path+suffix); err != nil {
			return err
		}
	}
	return nil
}

// checkSwap reads a cleaned log as a whole. It was synced before it got its name: one that
// is broken is a broken disk, and then nothing must be removed.
func checkSwap(fsys vfs.FS, name string, base int64) (end int64, err error) {
	f, err := fsys.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	end = base
	w := newWalker(f, 0, st.Size())
	defer w.close()
	for {
		b, err := w.whole()
		if errors.Is(err, io.EOF) {
			return end, nil
		}
		if err == nil {
			err = b.CheckCRC()
		}
		if err == nil && (b.BaseOffset() < end || b.LastOffsetDelta() < 0) {
			err = errOrder
		}
		if err != nil {
			return 0, fmt.Errorf("%s: position %d: %w", name, w.pos, err)
		}
		end = b.NextOffset()
		w.pos += int64(len(b))
	}
}

// removeReplaced removes the segments with bases in [base, end), the oldest first, and
// always what may be there of the indexes of base.
func removeReplaced(fsys vfs.FS, dir string, base, end int64) error {
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return err
	}
	files := map[int64][]string{}
	for _, e := range entries {
		for _, suffix := range append([]string{logSuffix, snapshotSuffix}, indexSuffixes...) {
			o, ok := parseSegmentName(e.Name(), suffix)
			if ok && (o == base && suffix != snapshotSuffix || o > base && o < end) {
				files[o] = append(files[o], suffix)
			}
		}
	}
	bases := make([]int64, 0, len(files))
	for o := range files {
		bases = append(bases, o)
	}
	slices.Sort(bases)
	for _, o := range bases {
		// The log first, as moveAside does it; its indexes are orphans then.
		slices.SortFunc(files[o], func(a, b string) int { return orderOf(a) - orderOf(b) })
		for _, suffix := range files[o] {
			if err := fsys.Remove(segmentPath(dir, o) + suffix); err != nil {
				return err
			}
		}
	}
	return nil
}

func orderOf(suffix string) int {
	if suffix == logSuffix {
		return 0
	}
	return 1
}
