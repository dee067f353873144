package dumplog

import (
	"fmt"
	"strings"
)

// Finding is one thing that is wrong with a file. -1: not known, or it has no such place.
type Finding struct {
	File     string
	Position int64 // byte of the file
	Offset   int64 // of a record
	Entry    int64 // of an index, snapshot or checkpoint, from 0
	Problem  string
}

func (f Finding) String() string {
	var where []string
	for _, w := range []struct {
		name string
		v    int64
	}{{"position", f.Position}, {"offset", f.Offset}, {"entry", f.Entry}} {
		if w.v >= 0 {
			where = append(where, fmt.Sprintf("%s %d", w.name, w.v))
		}
	}
	if len(where) == 0 {
		return f.File + " is bad: " + f.Problem
	}
	return fmt.Sprintf("%s is bad at %s: %s", f.File, strings.Join(where, ", "), f.Problem)
}

// maxFindings bounds what is kept and printed; the rest is counted.
const maxFindings = 10000

// find keeps a finding once: a file may be read for printing and again for the comparison.
func (p *printer) find(f Finding) {
	if p.seen[f] {
		return
	}
	if p.found++; len(p.findings) >= maxFindings {
		return
	}
	p.seen[f] = true
	p.findings = append(p.findings, f)
	if p.o.JSON {
		p.line(findingLine{Type: "finding", File: f.File, Position: place(f.Position), Offset: place(f.Offset), Entry: place(f.Entry), Problem: f.Problem})
	}
}

func place(v int64) *int64 {
	if v < 0 {
		return nil
	}
	return &v
}

// badBatch is a finding at a batch of a log file; offset is -1 when the batch cannot be read.
func (p *printer) badBatch(name string, pos, offset int64, format string, args ...any) {
	p.find(Finding{name, pos, offset, -1, fmt.Sprintf(format, args...)})
}

// badEntry is a finding at entry i of size bytes that begin at the byte head.
func (p *printer) badEntry(name string, i int, head, size int64, format string, args ...any) {
	p.find(Finding{name, head + int64(i)*size, -1, int64(i), fmt.Sprintf(format, args...)})
}

// badFile is a finding without a place in the file.
func (p *printer) badFile(name, format string, args ...any) {
	p.find(Finding{name, -1, -1, -1, fmt.Sprintf(format, args...)})
}
