package dumplog

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Options are the flags of kafka-dump-log that have a meaning here, and our own.
type Options struct {
	DeepIteration      bool  // --deep-iteration: every record of a batch
	PrintDataLog       bool  // --print-data-log: keys and values too; implies DeepIteration
	SkipRecordMetadata bool  // --skip-record-metadata
	IndexSanityCheck   bool  // --index-sanity-check: check indexes, print no entries
	VerifyIndexOnly    bool  // --verify-index-only: compare indexes with the log, print no entries
	MaxBytes           int64 // --max-bytes: of each log file; 0: all
	JSON               bool  // --json: one object per line, see jsonlines.go
	// Decoder turns key and value of a data record into what is printed after "key:" and
	// "payload:"; nil slices are null. An empty result is left out. Nil: UTF-8 text.
	Decoder func(offset int64, key, value []byte) (k, v string)
}

// ErrBad says that a file is damaged or contradicts another one. The findings were printed.
var ErrBad = errors.New("bad files")

// printer carries one run.
type printer struct {
	out      *bufio.Writer
	err      io.Writer
	o        Options
	enc      *json.Encoder
	name     string   // the file that is being printed
	notes    []string // "Mismatches" and the like, printed at the end as Kafka does
	findings []Finding
	found    int // also those beyond maxFindings
	seen     map[Finding]bool
	offsets  map[string]offsetFile
	whole    map[string]bool // directories of which all files are compared
	missing  []error         // arguments that cannot be read
}

// Run prints files, and directories file by file, to out in the given order. What is found to be bad
// goes to errw after all files: first the lines that Kafka's tool would print, then a line per
// finding, with file and place; with JSON it goes to out. After printing all that can be read it returns
// ErrBad if anything was found, or an error that names the arguments that could not be read.
func Run(out, errw io.Writer, args []string, o Options) error {
	if o.PrintDataLog || o.Decoder != nil {
		o.PrintDataLog, o.DeepIteration = true, true
	}
	p := &printer{out: bufio.NewWriterSize(out, 64<<10), err: errw, o: o, seen: map[Finding]bool{}, offsets: map[string]offsetFile{}}
	p.enc = json.NewEncoder(p.out)
	p.enc.SetEscapeHTML(false)
	if o.JSON {
		p.line(runLine{Schema, "run"})
	}
	var t targets
	for _, a := range args {
		if err := t.add(a); err != nil {
			p.missing = append(p.missing, err)
		}
	}
	p.whole = map[string]bool{}
	for _, dir := range t.partitions {
		p.whole[dir] = true
	}
	for _, f := range t.files {
		p.dump(f)
	}
	for _, f := range t.unknown {
		p.ignored(f)
	}
	ends := map[string]span{}
	for _, dir := range t.partitions {
		ends[dir] = p.checkPartition(dir)
	}
	for _, dir := range t.dataDirs {
		p.checkDataDir(dir, ends)
	}
	return p.finish(len(t.files))
}

func (p *printer) finish(files int) error {
	if p.o.JSON {
		p.line(endLine{"end", files, p.found, errorTexts(p.missing)})
	}
	if err := p.out.Flush(); err != nil {
		return err
	}
	if !p.o.JSON {
		for _, line := range p.notes {
			fmt.Fprintln(p.err, line)
		}
		for _, f := range p.findings {
			fmt.Fprintln(p.err, f)
		}
	}
	var problems []error
	if n := p.found; n == 1 {
		problems = append(problems, fmt.Errorf("%w: %s", ErrBad, p.findings[0]))
	} else if n > 1 {
		problems = append(problems, fmt.Errorf("%w: %d findings, the first: %s", ErrBad, n, p.findings[0]))
	}
	return errors.Join(append(problems, p.missing...)...)
}

func errorTexts(errs []error) (out []string) {
	for _, e := range errs {
		out = append(out, e.Error())
	}
	return out
}

// dump prints one file.
func (p *printer) dump(name string) {
	p.name = name
	if p.o.JSON {
		p.line(fileLine{Type: "file", File: name, Kind: kindOf(name)})
	} else {
		p.printf("Dumping %s\n", name)
	}
	err := p.file(name)
	var pe *os.PathError
	switch {
	case errors.As(err, &pe) && pe.Path != name:
		p.missing = append(p.missing, fmt.Errorf("%s cannot be compared: %w", name, explain(pe.Path, err)))
	case errors.As(err, &pe):
		p.missing = append(p.missing, explain(name, err))
	case err != nil:
		p.find(Finding{File: name, Position: -1, Offset: -1, Entry: -1, Problem: err.Error()})
	}
}

func (p *printer) printf(format string, args ...any) {
	if !p.o.JSON {
		fmt.Fprintf(p.out, format, args...)
	}
}

// note keeps a line that Kafka's tool prints after all files.
func (p *printer) note(format string, args ...any) {
	p.notes = append(p.notes, fmt.Sprintf(format, args...))
}

func (p *printer) ignored(name string) {
	if p.o.JSON {
		p.line(fileLine{Type: "ignored", File: name})
		return
	}
	fmt.Fprintf(p.err, "Ignoring unknown file %s\n", name)
}

func kindOf(name string) string {
	switch ext := filepath.Ext(name); ext {
	case ".log", ".index", ".timeindex", ".txnindex", ".snapshot":
		return ext[1:]
	}
	return filepath.Base(name)
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
	return p.checkpoint(name)
}

// baseOf reads the base offset from a file's name.
func baseOf(name string) (int64, error) {
	digits, _, _ := strings.Cut(filepath.Base(name), ".")
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("the file's name does not begin with an offset (as 00000000000000000000.log does): give it the name that it had in the partition's directory")
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

func siblingLog(name string) (*os.File, error) {
	digits, _, _ := strings.Cut(filepath.Base(name), ".")
	return os.Open(filepath.Join(filepath.Dir(name), digits+".log"))
}
