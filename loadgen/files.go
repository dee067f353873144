package loadgen

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"syscall"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// CheckFile finds out whether a report can be written there, before a run and not after it. What is there stays.
func CheckFile(file string) error {
	_, err := os.Stat(file)
	missing := errors.Is(err, os.ErrNotExist)
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("%s: %w", file, cause(err))
	}
	err = f.Close()
	if missing {
		err = errors.Join(err, os.Remove(file))
	}
	return err
}

// SameFile says that two names are those of one regular file, also through a link, or when it is not there yet.
func SameFile(a, b string) bool {
	sa, erra := os.Stat(a)
	sb, errb := os.Stat(b)
	if erra == nil && errb == nil {
		return sa.Mode().IsRegular() && os.SameFile(sa, sb)
	}
	return erra != nil && errb != nil && resolve(a) == resolve(b)
}

// resolve is the absolute name of a file that may be missing, its folder's links followed.
func resolve(file string) string {
	if abs, err := filepath.Abs(file); err == nil {
		file = abs
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(file)); err == nil {
		return filepath.Join(dir, filepath.Base(file))
	}
	return file
}

// WriteFile makes a file of what write writes. On an error, such as a full disk, the file
// that stood there before is untouched. Devices and pipes are written as they are.
func WriteFile(file string, write func(io.Writer) error) error {
	target, flags := file, os.O_CREATE|os.O_EXCL|os.O_WRONLY
	regular := true
	if st, err := os.Stat(file); err == nil && !st.Mode().IsRegular() {
		regular, flags = false, os.O_WRONLY
	} else {
		if link, err := filepath.EvalSymlinks(file); err == nil {
			file = link
		}
		target = fmt.Sprintf("%s.%d.tmp", file, os.Getpid())
	}
	f, err := os.OpenFile(target, flags, 0o644)
	if err != nil {
		return fmt.Errorf("%s: %w", file, cause(err))
	}
	w := bufio.NewWriterSize(f, 64<<10)
	err = write(w)
	if err == nil {
		err = w.Flush()
	}
	err = errors.Join(err, f.Close())
	if err == nil && regular {
		err = os.Rename(target, file)
	}
	if err != nil {
		if regular {
			_ = os.Remove(target) // nothing more can be done about it
		}
		return fmt.Errorf("%s could not be written: %w", file, cause(err))
	}
	return nil
}

// cause is the system's word for an error of a file, which is named elsewhere.
func cause(err error) error {
	var sys syscall.Errno
	if errors.As(err, &sys) {
		return sys
	}
	return err
}

// WriteJSON writes the report to a file.
func (r *Report) WriteJSON(file string) error {
	return WriteFile(file, func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(r)
	})
}

// NegativeTag is appended to the tag of a histogram whose values are the absolute ones of negative samples.
const NegativeTag = "_negative"

// WriteHDR writes the histograms as an HdrHistogram log (values in microseconds). Negative
// samples, which HdrHistogram refuses, stand in histograms of their own (NegativeTag).
func (r *Report) WriteHDR(file string) error {
	return WriteFile(file, func(out io.Writer) error {
		w := hdrhistogram.NewHistogramLogWriter(out)
		if err := errors.Join(w.OutputLogFormatVersion(), w.OutputStartTime(r.Started.UnixMilli()), w.OutputLegend()); err != nil {
			return err
		}
		var names []string
		for name := range r.recorders {
			names = append(names, name)
		}
		sort.Strings(names)
		put := func(tag string, h *hdrhistogram.Histogram) error {
			h.SetTag(tag)
			h.SetStartTimeMs(r.Started.UnixMilli())
			h.SetEndTimeMs(time.Now().UnixMilli())
			return w.OutputIntervalHistogram(h)
		}
		for _, name := range names {
			rec := r.recorders[name]
			if err := put(name, rec.Positive()); err != nil {
				return err
			}
			if neg := rec.Negative(); neg.TotalCount() > 0 {
				if err := put(name+NegativeTag, neg); err != nil {
					return err
				}
			}
		}
		return nil
	})
}
