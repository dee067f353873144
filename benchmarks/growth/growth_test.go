package growth_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"stet/benchmarks/growth"
)

// allocs is an allocation profile: function -> objects, each of 100 bytes.
func allocs(objects map[string]int64) *profile.Profile {
	p := &profile.Profile{SampleType: []*profile.ValueType{{Type: "alloc_objects", Unit: "count"}, {Type: "alloc_space", Unit: "bytes"}}}
	caller := &profile.Function{ID: 100, Name: "main.caller"}
	cl := &profile.Location{ID: 100, Line: []profile.Line{{Function: caller}}}
	p.Function, p.Location = append(p.Function, caller), append(p.Location, cl)
	id := uint64(0)
	for name, n := range objects {
		id++
		f := &profile.Function{ID: id, Name: name}
		l := &profile.Location{ID: id, Line: []profile.Line{{Function: f}}}
		p.Function, p.Location = append(p.Function, f), append(p.Location, l)
		p.Sample = append(p.Sample, &profile.Sample{Location: []*profile.Location{l, cl}, Value: []int64{n, 100 * n}})
	}
	return p
}

func save(t *testing.T, run growth.Run, kinds map[string]*profile.Profile) string {
	t.Helper()
	dir := t.TempDir()
	for k, p := range kinds {
		f, err := os.Create(filepath.Join(dir, k+".pb.gz"))
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Write(f); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	if err := run.Save(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

func load(t *testing.T, path string) *growth.Record {
	t.Helper()
	r, err := growth.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func budgets(t *testing.T, text string) *growth.Budgets {
	t.Helper()
	file := filepath.Join(t.TempDir(), "b.json")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := growth.LoadBudgets(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestPerGiB: a run that copies twice as much may allocate twice as much; what grew comes first.
func TestPerGiB(t *testing.T) {
	base := load(t, save(t, growth.Run{Scenario: "s", Bytes: 1 << 30, Batches: 1000, Counts: map[string]float64{"allocs": 30}},
		map[string]*profile.Profile{"allocs": allocs(map[string]int64{"a": 10, "b": 20})}))
	head := load(t, save(t, growth.Run{Scenario: "s", Bytes: 2 << 30, Batches: 2000, Counts: map[string]float64{"allocs": 90}},
		map[string]*profile.Profile{"allocs": allocs(map[string]int64{"a": 20, "b": 60, "c": 10, "runtime/pprof.writeHeapProto": 5000})}))
	b := budgets(t, `{"schema":"stet.budgets/1","budgets":[{"name":"allocs_per_batch","limit":0.05,"growth_percent":10},
		{"name":"instructions_per_gib","growth_percent":2},{"name":"copies","scenario":"other","limit":0}]}`)
	r := growth.Compare(base, head, b)
	var got []string
	for _, row := range r.Rows {
		if row.Kind == "alloc_objects" {
			got = append(got, row.Function)
			if row.Function == "b" && (row.Base != 20 || row.Head != 30) {
				t.Errorf("%+v", row)
			}
		}
	}
	if want := "(total) b c a"; strings.Join(got, " ") != want {
		t.Errorf("rows %v, want %s", got, want)
	}
	if len(r.Budgets) != 3 {
		t.Fatalf("budgets %+v", r.Budgets)
	}
	if v := r.Budgets[0]; !v.OK || *v.Value != 0.045 {
		t.Errorf("limit: %+v", v)
	}
	if v := r.Budgets[1]; v.OK || *v.Value < 49 || *v.Value > 51 {
		t.Errorf("growth: %+v", v)
	}
	if v := r.Budgets[2]; !v.OK || v.Value != nil || v.Skipped == "" {
		t.Errorf("what was not recorded: %+v", v)
	}
	if r.OK() {
		t.Error("a budget that is exceeded is ok")
	}
	var out bytes.Buffer
	if err := r.WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(out.Bytes(), &m); err != nil || m["schema"] != "stet.profile/1" || m["scenario"] != "s" {
		t.Errorf("%v %v", err, m)
	}
	out.Reset()
	r.WriteText(&out)
	for _, want := range []string{"BEYOND", "NOT CHECKED", "+50.0 %", "new"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
}

// TestOneFile: without run.json the values are of the whole profile, and it says so.
func TestOneFile(t *testing.T) {
	dir := save(t, growth.Run{Bytes: 1 << 20}, map[string]*profile.Profile{"allocs": allocs(map[string]int64{"a": 7})})
	if err := os.Remove(filepath.Join(dir, growth.RunFile)); err != nil {
		t.Fatal(err)
	}
	rec := load(t, filepath.Join(dir, "allocs.pb.gz"))
	r := growth.Compare(rec, rec, nil)
	if len(r.Rows) == 0 || r.Rows[0].Head != 7 || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "whole") {
		t.Errorf("%+v", r)
	}
}

// TestAdd: rounds add up, and a count that one of them lacks is dropped.
func TestAdd(t *testing.T) {
	record := func(counts map[string]float64) *growth.Record {
		return load(t, save(t, growth.Run{Scenario: "s", Bytes: 1 << 30, Batches: 5, Counts: counts}, map[string]*profile.Profile{"allocs": allocs(map[string]int64{"a": 10})}))
	}
	r := record(map[string]float64{"allocs": 1, "instructions": 7})
	if err := r.Add(record(map[string]float64{"allocs": 2})); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := r.Save(dir); err != nil {
		t.Fatal(err)
	}
	got := load(t, dir)
	if got.Run.Bytes != 2<<30 || got.Run.Batches != 10 || got.Run.Counts["allocs"] != 3 || len(got.Run.Counts) != 1 {
		t.Errorf("%+v", got.Run)
	}
	if rows := growth.Compare(got, got, nil).Rows; len(rows) == 0 || rows[0].Head != 10 {
		t.Errorf("%+v", rows)
	}
}

// cpu is a CPU profile of so many samples, some of them in the allocator.
func cpu(samples, allocating int64) *profile.Profile {
	p := &profile.Profile{SampleType: []*profile.ValueType{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}}}
	for i, name := range []string{"main.work", "runtime.mallocgc"} {
		f := &profile.Function{ID: uint64(i + 1), Name: name}
		l := &profile.Location{ID: uint64(i + 1), Line: []profile.Line{{Function: f}}}
		n := []int64{samples - allocating, allocating}[i]
		p.Function, p.Location = append(p.Function, f), append(p.Location, l)
		p.Sample = append(p.Sample, &profile.Sample{Location: []*profile.Location{l}, Value: []int64{n, n * 1e7}})
	}
	return p
}

// TestShareNeedsSamples: samples in the allocator are beyond a budget of 3 % only when they are so many that it is no chance.
func TestShareNeedsSamples(t *testing.T) {
	b := budgets(t, `{"schema":"stet.budgets/1","budgets":[{"name":"alloc_gc_percent","limit":3}]}`)
	few := load(t, save(t, growth.Run{Bytes: 1 << 30}, map[string]*profile.Profile{"cpu": cpu(60, 3)}))
	if v := b.Apply(nil, few); len(v) != 1 || v[0].Value != nil || !v[0].OK {
		t.Errorf("few: %+v", v)
	}
	// Of 600 samples 3 % are 18, more or less 8.
	chance := load(t, save(t, growth.Run{Bytes: 1 << 30}, map[string]*profile.Profile{"cpu": cpu(600, 24)}))
	if v := b.Apply(nil, chance); len(v) != 1 || v[0].Value == nil || *v[0].Value != 4 || !v[0].OK || v[0].Chance < 1.5 || v[0].Chance > 1.7 {
		t.Errorf("chance: %+v", v)
	}
	many := load(t, save(t, growth.Run{Bytes: 1 << 30}, map[string]*profile.Profile{"cpu": cpu(1000, 50)}))
	if v := b.Apply(nil, many); len(v) != 1 || v[0].Value == nil || *v[0].Value != 5 || v[0].OK {
		t.Errorf("many: %+v", v)
	}
}

func TestBadInput(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	for _, c := range []struct{ file, want string }{
		{filepath.Join(dir, "absent"), "no such file"},
		{dir, "neither"},
		{write("noise.pb.gz", "noise"), "not a profile"},
	} {
		if _, err := growth.Load(c.file); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.file, err, c.want)
		}
	}
	write(growth.RunFile, `{"schema":"other/1"}`)
	if _, err := growth.Load(dir); err == nil || !strings.Contains(err.Error(), "other/1") {
		t.Errorf("schema: %v", err)
	}
	write(growth.RunFile, `{"schema":"stet.run/1"}`)
	if _, err := growth.Load(dir); err == nil || !strings.Contains(err.Error(), "0 bytes") {
		t.Errorf("no bytes: %v", err)
	}
	for _, c := range []struct{ text, want string }{
		{`{}`, "schema"},
		{`{"schema":"stet.budgets/1"}`, "no budgets"},
		{`{"schema":"stet.budgets/1","budgets":[{"name":"alocs","limit":1}]}`, "allowed are"},
		{`{"schema":"stet.budgets/1","budgets":[{"name":"copies"}]}`, "neither"},
		{`{"schema":"stet.budgets/1","budgets":[{"name":"copies","limt":1}]}`, "limt"},
	} {
		if _, err := growth.LoadBudgets(write("b.json", c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.text, err, c.want)
		}
	}
}
