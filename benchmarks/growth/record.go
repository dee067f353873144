package growth

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/pprof/profile"
)

// RunSchema names the format of run.json.
const RunSchema = "stet.run/1"

// Run says what was recorded.
type Run struct {
	Schema   string `json:"schema"`
	Scenario string `json:"scenario"`
	Command  string `json:"command"`
	Commit   string `json:"commit"`
	Machine  string `json:"machine"`
	Date     string `json:"date"`
	// Bytes and Batches went through the measured process meanwhile.
	Bytes   int64 `json:"bytes"`
	Batches int64 `json:"batches"`
	// Counts are exact: allocs, alloc_bytes, syscalls, copied_bytes, checked_bytes, instructions; cpu_seconds is not.
	// A count that could not be taken is absent.
	Counts map[string]float64 `json:"counts"`
}

// GiB is what was copied, in GiB.
func (r *Run) GiB() float64 { return float64(r.Bytes) / (1 << 30) }

// Record is a run with its profiles.
type Record struct {
	Path string
	Run  Run
	// Whole says that the amount copied is unknown, so that values are of the whole profile.
	Whole    bool
	Profiles map[string]*profile.Profile // by kind
}

// Kinds are the profiles of a record; the file is the kind with .pb.gz.
var Kinds = []string{"cpu", "allocs", "mutex", "block"}

// RunFile is the file name of a Run in a record.
const RunFile = "run.json"

const maxProfile = 64 << 20

// Load reads a record from a folder, or a profile file, whose run.json lies beside it if there is one.
func Load(path string) (*Record, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	r := &Record{Path: path, Profiles: map[string]*profile.Profile{}}
	dir := path
	if !st.IsDir() {
		dir = filepath.Dir(path)
		p, err := readProfile(path)
		if err != nil {
			return nil, err
		}
		kind, err := kindOf(p, path)
		if err != nil {
			return nil, err
		}
		r.Profiles[kind] = p
	} else {
		for _, k := range Kinds {
			p, err := readProfile(filepath.Join(path, k+".pb.gz"))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, err
			}
			r.Profiles[k] = p
		}
	}
	b, err := os.ReadFile(filepath.Join(dir, RunFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if len(r.Profiles) == 0 {
			return nil, fmt.Errorf("%s holds neither %s nor a profile (%s with .pb.gz)", path, RunFile, strings.Join(Kinds, ", "))
		}
		r.Whole = true
		return r, nil
	case err != nil:
		return nil, err
	}
	if err := json.Unmarshal(b, &r.Run); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, RunFile), err)
	}
	if r.Run.Schema != RunSchema {
		return nil, fmt.Errorf("%s has schema %q, not %q", filepath.Join(dir, RunFile), r.Run.Schema, RunSchema)
	}
	if r.Run.Bytes <= 0 {
		return nil, fmt.Errorf("%s: %d bytes were copied; there is nothing to relate to", filepath.Join(dir, RunFile), r.Run.Bytes)
	}
	return r, nil
}

// Save writes run.json; profiles are written as they come.
func (r *Run) Save(dir string) error {
	r.Schema = RunSchema
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, RunFile), append(b, '\n'), 0o644)
}

// Add adds another recording of the same to r.
func (r *Record) Add(o *Record) error {
	r.Run.Bytes += o.Run.Bytes
	r.Run.Batches += o.Run.Batches
	for k := range r.Run.Counts {
		if v, ok := o.Run.Counts[k]; ok {
			r.Run.Counts[k] += v
		} else {
			delete(r.Run.Counts, k) // of one alone it would mean nothing
		}
	}
	for k, p := range r.Profiles {
		if o.Profiles[k] == nil {
			delete(r.Profiles, k)
			continue
		}
		sum, err := profile.Merge([]*profile.Profile{p, o.Profiles[k]})
		if err != nil {
			return fmt.Errorf("%s: %w", k, err)
		}
		r.Profiles[k] = sum
	}
	return nil
}

// Save writes the record to a folder.
func (r *Record) Save(dir string) error {
	for _, k := range Kinds {
		file := filepath.Join(dir, k+".pb.gz")
		if r.Profiles[k] == nil {
			if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			continue
		}
		f, err := os.Create(file)
		if err != nil {
			return err
		}
		if err := errors.Join(r.Profiles[k].Write(f), f.Close()); err != nil {
			return err
		}
	}
	return r.Run.Save(dir)
}

func readProfile(file string) (*profile.Profile, error) {
	st, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if st.Size() > maxProfile {
		return nil, fmt.Errorf("%s: a profile of %d bytes", file, st.Size())
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	p, err := profile.ParseData(b)
	if err != nil {
		return nil, fmt.Errorf("%s is not a profile: %w", file, err)
	}
	return p, nil
}

// kindOf tells a profile's kind by its sample types; mutex and block differ in nothing but the file's name.
func kindOf(p *profile.Profile, file string) (string, error) {
	for _, t := range p.SampleType {
		switch t.Type {
		case "cpu":
			return "cpu", nil
		case "alloc_objects", "alloc_space":
			return "allocs", nil
		case "delay":
			if strings.Contains(filepath.Base(file), "mutex") {
				return "mutex", nil
			}
			return "block", nil
		}
	}
	return "", fmt.Errorf("%s is none of the profiles %s", file, strings.Join(Kinds, ", "))
}

// value is a kind of number that a profile holds.
type value struct {
	name, profile, sample string
	unit                  string
	scale                 float64
}

var values = []value{
	{"cpu", "cpu", "cpu", "s", 1e-9},
	{"alloc_objects", "allocs", "alloc_objects", "", 1},
	{"alloc_space", "allocs", "alloc_space", "B", 1},
	{"mutex", "mutex", "delay", "s", 1e-9},
	{"block", "block", "delay", "s", 1e-9},
}

// flat sums up a value by the function at the top of the stack, and tells the sum of all.
func (r *Record) flat(v value) (by map[string]float64, total float64, ok bool) {
	p := r.Profiles[v.profile]
	if p == nil {
		return nil, 0, false
	}
	at := -1
	for i, t := range p.SampleType {
		if t.Type == v.sample {
			at = i
		}
	}
	if at < 0 {
		return nil, 0, false
	}
	per := r.Run.GiB()
	if r.Whole {
		per = 1
	}
	by = map[string]float64{}
	for _, s := range p.Sample {
		if recorder(s) {
			continue
		}
		x := float64(s.Value[at]) * v.scale / per
		by[leaf(s)] += x
		total += x
	}
	return by, total, true
}

// recorder says that a sample is of the recording itself, not of what is recorded: every allocation is noted with its stack.
func recorder(s *profile.Sample) bool {
	for _, l := range s.Location {
		for _, line := range l.Line {
			if line.Function == nil {
				continue
			}
			for _, prefix := range []string{"runtime/pprof.", "net/http/pprof.", "runtime.profilealloc", "runtime.mProf_"} {
				if strings.HasPrefix(line.Function.Name, prefix) {
					return true
				}
			}
		}
	}
	return false
}

func leaf(s *profile.Sample) string {
	for _, l := range s.Location {
		for _, line := range l.Line { // the first is the inlined one
			if line.Function != nil {
				return line.Function.Name
			}
		}
	}
	return "?"
}

// fewSamples is how many samples of a CPU profile say too little about a share of some percent.
const fewSamples = 400

// share is the part, in percent, of a CPU profile's samples that have one of the functions in their stack, and by how much that may be
// chance: two standard errors; false when there are too few samples.
func (r *Record) share(functions ...string) (percent, chance float64, ok bool) {
	p := r.Profiles["cpu"]
	if p == nil || len(p.Sample) == 0 {
		return 0, 0, false
	}
	var hit, all, count int64
	for _, s := range p.Sample {
		if recorder(s) {
			continue
		}
		v := s.Value[len(s.Value)-1]
		all += v
		count += s.Value[0] // samples/count
		if inStack(s, functions) {
			hit += v
		}
	}
	if all == 0 || count < fewSamples {
		return 0, 0, false
	}
	part := float64(hit) / float64(all)
	return 100 * part, 200 * math.Sqrt(part*(1-part)/float64(count)), true
}

func inStack(s *profile.Sample, functions []string) bool {
	for _, l := range s.Location {
		for _, line := range l.Line {
			for _, f := range functions {
				if line.Function != nil && line.Function.Name == f {
					return true
				}
			}
		}
	}
	return false
}
