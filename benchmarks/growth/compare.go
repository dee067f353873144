package growth

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"sort"
)

// Schema names the format of a comparison (CLI.md).
const Schema = "stet.profile/1"

// Report is a comparison.
type Report struct {
	Schema   string    `json:"schema"`
	Scenario string    `json:"scenario"`
	Base     string    `json:"base"`
	Head     string    `json:"head"`
	Rows     []Row     `json:"rows"`
	Budgets  []Verdict `json:"budgets"`
	// Notes say what the numbers are not.
	Notes []string `json:"notes,omitempty"`
}

// Row is one function; the values are of the function itself, not of what it calls. The function
// "(total)" is the whole profile. CPU, mutex and block are seconds, alloc_space bytes.
type Row struct {
	Function string  `json:"function"`
	Kind     string  `json:"kind"`
	Base     float64 `json:"base_per_gib"`
	Head     float64 `json:"head_per_gib"`
}

// Total is the name of the row that sums up a profile.
const Total = "(total)"

// Compare sorts the functions of each kind by how much they grew, the totals first. budgets may be nil.
func Compare(base, head *Record, budgets *Budgets) *Report {
	r := &Report{Schema: Schema, Scenario: head.Run.Scenario, Base: name(base), Head: name(head), Rows: []Row{}, Budgets: []Verdict{}}
	if base.Whole != head.Whole {
		r.Notes = append(r.Notes, "one side does not say how much was copied: its values are of the whole profile and cannot be compared per GiB")
	} else if base.Whole {
		r.Notes = append(r.Notes, "neither side says how much was copied: values are of whole profiles")
	}
	if base.Run.Scenario != head.Run.Scenario {
		r.Notes = append(r.Notes, fmt.Sprintf("the scenarios differ: %q and %q", base.Run.Scenario, head.Run.Scenario))
	}
	if base.Run.Machine != head.Run.Machine {
		r.Notes = append(r.Notes, "the machines differ: CPU, mutex and block values cannot be compared")
	}
	for _, v := range values {
		b, bsum, okb := base.flat(v)
		h, hsum, okh := head.flat(v)
		if !okb || !okh {
			if okb != okh {
				r.Notes = append(r.Notes, "only one side has values of "+v.name)
			}
			continue
		}
		names := map[string]bool{}
		for f := range b {
			names[f] = true
		}
		for f := range h {
			names[f] = true
		}
		rows := make([]Row, 0, len(names))
		for f := range names {
			rows = append(rows, Row{f, v.name, b[f], h[f]})
		}
		sort.Slice(rows, func(i, j int) bool {
			gi, gj := rows[i].Head-rows[i].Base, rows[j].Head-rows[j].Base
			if gi != gj {
				return gi > gj
			}
			return rows[i].Function < rows[j].Function
		})
		r.Rows = append(append(r.Rows, Row{Total, v.name, bsum, hsum}), rows...)
	}
	if budgets != nil {
		r.Budgets = budgets.Apply(base, head)
	}
	return r
}

func name(r *Record) string {
	if r.Run.Commit != "" {
		return r.Path + " (" + r.Run.Commit + ")"
	}
	return r.Path
}

// OK says that every budget holds.
func (r *Report) OK() bool { return holds(r.Budgets) }

func holds(list []Verdict) bool {
	for _, v := range list {
		if !v.OK {
			return false
		}
	}
	return true
}

// WriteJSON writes the report for machines.
func (r *Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// shown is how many functions of a kind the table has.
const shown = 12

// WriteText writes the functions that grew most, and the budgets.
func (r *Report) WriteText(w io.Writer) {
	fmt.Fprintf(w, "scenario %s\nbase %s\nhead %s\n", r.Scenario, r.Base, r.Head)
	for _, n := range r.Notes {
		fmt.Fprintf(w, "note: %s\n", n)
	}
	kind, n := "", 0
	for _, row := range r.Rows {
		if row.Kind != kind {
			kind, n = row.Kind, 0
			fmt.Fprintf(w, "\n%-14s %14s %14s %14s %9s  function\n", kind+" / GiB", "base", "head", "growth", "")
		}
		if n++; n > shown+1 || n > 1 && row.Head <= row.Base {
			continue
		}
		percent := "new"
		if row.Base != 0 {
			percent = fmt.Sprintf("%+.1f %%", 100*(row.Head/row.Base-1))
		}
		fmt.Fprintf(w, "%-14s %14s %14s %14s %9s  %s\n", "", number(row.Base), number(row.Head), number(row.Head-row.Base), percent, row.Function)
	}
	if len(r.Budgets) > 0 {
		fmt.Fprintln(w)
		WriteVerdicts(w, r.Budgets)
	}
}

// WriteVerdicts prints budgets; those that could not be held against anything say so.
func WriteVerdicts(w io.Writer, list []Verdict) {
	for _, v := range list {
		switch {
		case v.Value == nil:
			fmt.Fprintf(w, "budget %-32s NOT CHECKED (%s)\n", v.Name, v.Skipped)
		case v.OK:
			fmt.Fprintf(w, "budget %-32s ok      %s of %s%s\n", v.Name, number(*v.Value), number(v.Limit), v.chance())
		default:
			fmt.Fprintf(w, "budget %-32s BEYOND  %s of %s%s\n", v.Name, number(*v.Value), number(v.Limit), v.chance())
		}
	}
}

func (v Verdict) chance() string {
	if v.Chance == 0 {
		return ""
	}
	return fmt.Sprintf(", more or less %.1f", v.Chance)
}

func number(x float64) string {
	switch a := math.Abs(x); {
	case x == 0:
		return "0"
	case a >= 1e5:
		return fmt.Sprintf("%.4g", x)
	case a >= 100:
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.3f", x)
}
