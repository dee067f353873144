package growth

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"
)

// BudgetsSchema names the format of a budgets file.
const BudgetsSchema = "stet.budgets/1"

// Budgets is a budgets file.
type Budgets struct {
	Schema  string   `json:"schema"`
	Budgets []Budget `json:"budgets"`
}

// Budget bounds one of the measures.
type Budget struct {
	Name string `json:"name"`
	// Scenario limits it to records of that scenario; empty: all.
	Scenario string `json:"scenario,omitempty"`
	// Limit is the largest value; GrowthPercent the largest growth over the base. One of them at least is given.
	Limit         *float64 `json:"limit,omitempty"`
	GrowthPercent *float64 `json:"growth_percent,omitempty"`
	Why           string   `json:"why,omitempty"`
}

// Verdict is a budget against what was measured. Value is nil where it could not be measured: Skipped says why.
type Verdict struct {
	Name    string   `json:"name"`
	Limit   float64  `json:"limit"`
	Value   *float64 `json:"value"`
	Chance  float64  `json:"chance,omitempty"` // how far beyond the limit Value may be, since it is counted from few samples
	OK      bool     `json:"ok"`
	Skipped string   `json:"skipped,omitempty"`
}

// measures are what budgets can bound. All but the last need no clock.
var measures = map[string]func(*Record) (float64, bool){
	"allocs_per_batch":      func(r *Record) (float64, bool) { return r.per("allocs", float64(r.Run.Batches)) },
	"alloc_bytes_per_gib":   func(r *Record) (float64, bool) { return r.per("alloc_bytes", r.Run.GiB()) },
	"syscalls_per_gib":      func(r *Record) (float64, bool) { return r.per("syscalls", r.Run.GiB()) },
	"instructions_per_gib":  func(r *Record) (float64, bool) { return r.per("instructions", r.Run.GiB()) },
	"copies":                func(r *Record) (float64, bool) { return r.per("copied_bytes", float64(r.Run.Bytes)) },
	"fetched":               func(r *Record) (float64, bool) { return r.per("socket_bytes", float64(r.Run.Bytes)) },
	"checks":                func(r *Record) (float64, bool) { return r.per("checked_bytes", float64(r.Run.Bytes)) },
	"alloc_objects_per_gib": func(r *Record) (float64, bool) { return r.total("alloc_objects") },
	"alloc_space_per_gib":   func(r *Record) (float64, bool) { return r.total("alloc_space") },
	"alloc_gc_percent":      func(r *Record) (float64, bool) { v, _, ok := r.share(allocAndGC...); return v, ok },
	"cpu_seconds_per_gib":   func(r *Record) (float64, bool) { return r.per("cpu_seconds", r.Run.GiB()) },
}

// chances are of the measures that are counted from samples: how much of them may be chance.
var chances = map[string]func(*Record) float64{
	"alloc_gc_percent": func(r *Record) float64 { _, chance, _ := r.share(allocAndGC...); return chance },
}

// allocAndGC are the functions under which the time of allocation and garbage collection is spent.
var allocAndGC = []string{"runtime.mallocgc", "runtime.gcBgMarkWorker", "runtime.bgsweep", "runtime.bgscavenge", "runtime.gcAssistAlloc", "runtime.gcStart"}

func (r *Record) per(count string, n float64) (float64, bool) {
	v, ok := r.Run.Counts[count]
	if !ok || n <= 0 {
		return 0, false
	}
	return v / n, true
}

func (r *Record) total(name string) (float64, bool) {
	for _, v := range values {
		if v.name == name {
			_, sum, ok := r.flat(v)
			return sum, ok
		}
	}
	panic("BUG: no value " + name)
}

// Measures are the names that a budget may have.
func Measures() []string {
	names := make([]string, 0, len(measures))
	for n := range measures {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

// LoadBudgets reads a budgets file. What it does not know it refuses, lest a misspelt budget bounds nothing.
func LoadBudgets(file string) (*Budgets, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var out Budgets
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&out); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if out.Schema != BudgetsSchema {
		return nil, fmt.Errorf("%s has schema %q, not %q", file, out.Schema, BudgetsSchema)
	}
	for _, x := range out.Budgets {
		if measures[x.Name] == nil {
			return nil, fmt.Errorf("%s: budget %q; allowed are %s", file, x.Name, strings.Join(Measures(), ", "))
		}
		if x.Limit == nil && x.GrowthPercent == nil {
			return nil, fmt.Errorf("%s: budget %s has neither limit nor growth_percent", file, x.Name)
		}
	}
	if len(out.Budgets) == 0 {
		return nil, fmt.Errorf("%s has no budgets", file)
	}
	return &out, nil
}

// Apply holds the budgets against head and, where they bound growth, base, which may be nil.
func (b *Budgets) Apply(base, head *Record) []Verdict {
	out := []Verdict{}
	for _, x := range b.Budgets {
		if x.Scenario != "" && x.Scenario != head.Run.Scenario {
			continue
		}
		v, ok := measures[x.Name](head)
		if x.Limit != nil {
			d := verdict(x.Name, *x.Limit, v, ok, missing)
			if chance := chances[x.Name]; chance != nil && ok {
				d.Chance = chance(head)
				d.OK = v-d.Chance <= d.Limit
			}
			out = append(out, d)
		}
		if x.GrowthPercent == nil || base == nil {
			continue
		}
		was, had := measures[x.Name](base)
		grown, why := 0.0, missing
		switch {
		case !ok || !had:
			ok = false
		case was > 0:
			grown = 100 * (v/was - 1)
		case v > 0:
			ok, why = false, "the base has none"
		}
		out = append(out, verdict(x.Name+" growth %", *x.GrowthPercent, grown, ok, why))
	}
	return out
}

const missing = "not recorded, or too few samples"

func verdict(name string, limit, v float64, ok bool, why string) Verdict {
	if !ok {
		return Verdict{Name: name, Limit: limit, OK: true, Skipped: why}
	}
	return Verdict{Name: name, Limit: limit, Value: &v, OK: v <= limit}
}
