package dumplog

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Options are the flags of kafka-dump-log that have a meaning here.
type Options struct {
	DeepIteration      bool  // --deep-iteration: every record of a batch
	PrintDataLog       bool  // --print-data-log: keys and values too; implies DeepIteration
	SkipRecordMetadata bool  // --skip-record-metadata
	IndexSanityCheck   bool  // --index-sanity-check: check indexes, print no entries
	VerifyIndexOnly    bool  // --verify-index-only: compare indexes with the log, print no entries
	MaxBytes           int64 // --max-bytes: of each log file; 0: all
	// Decoder turns key and value of a data record into what is printed after "key:" and
	// "payload:"; nil slices are null. An empty result is left out. Nil: UTF-8 text.
	Decoder func(key, value []byte) (k, v string)
}

// printer carries one run.
type printer struct {
	out *bufio.Writer
	err io.Writer
	o   Options
	bad []string // "Mismatches" and the like, printed at the end as Kafka does
}

// Files prints each file to out in the given order. Findings (index entries that do not
// agree with the log, gaps) go to errw after all files. It returns an error for a file that
// cannot be read, after printing the others.
func Files(out, errw io.Writer, files []string, o Options) error {
	if o.PrintDataLog || o.Decoder != nil {
		o.PrintDataLog, o.DeepIteration = true, true
	}
	p := &printer{out: bufio.NewWriterSize(out, 64<<10), err: errw, o: o}
	var first error
	for _, f := range files {
		p.printf("Dumping %s\n", f)
		if err := p.file(f); err != nil && first == nil {
			first = fmt.Errorf("%s: %w", f, err)
		}
	}
	if err := p.out.Flush(); err != nil {
		return err
	}
	for _, line := range p.bad {
		fmt.Fprintln(errw, line)
	}
	return first
}

func (p *printer) printf(format string, args ...any) { fmt.Fprintf(p.out, format, args...) }

func (p *printer) note(format string, args ...any) {
	p.bad = append(p.bad, fmt.Sprintf(format, args...))
}

func (p *printer) file(name string) error {
	switch filepath.Ext(name) {
	case ".log":
		return p.log(name)
	case ".index":
		return p.offsetIndex(name)
	case ".timeindex":
		return p.timeIndex(name)
	case ".txnindex":
		return p.txnIndex(name)
	case ".snapshot":
		return p.snapshot(name)
	}
	if strings.HasSuffix(name, "-checkpoint") {
		return p.checkpoint(name)
	}
	fmt.Fprintf(p.err, "Ignoring unknown file %s\n", name)
	return nil
}

// baseOf reads the base offset from a file's name.
func baseOf(name string) (int64, error) {
	digits, _, _ := strings.Cut(filepath.Base(name), ".")
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("the file's name does not begin with an offset")
	}
	return n, nil
}

// optional prints as Java's OptionalLong.
func optional(v int64) string {
	if v < 0 {
		return "OptionalLong.empty"
	}
	return fmt.Sprintf("OptionalLong[%d]", v)
}

// text is what Java makes of bytes that are read as UTF-8.
func text(b []byte) string { return string([]rune(string(b))) }

func siblingLog(name string) (*os.File, error) {
	digits, _, _ := strings.Cut(filepath.Base(name), ".")
	return os.Open(filepath.Join(filepath.Dir(name), digits+".log"))
}
