package loadgen

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
)

// maxReport bounds the file of a report; real ones have less than a MB.
const maxReport = 64 << 20

// ReadReport reads what WriteJSON wrote. An error names the file, what is wrong with it and what is allowed.
func ReadReport(file string) (*Report, error) {
	st, err := os.Stat(file)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", file, cause(err))
	case st.IsDir():
		return nil, fmt.Errorf("%s is a folder; a file written with --json is expected", file)
	case st.Size() > maxReport:
		return nil, fmt.Errorf("%s has %d bytes; a file written with --json, of at most %d, is expected", file, st.Size(), maxReport)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, cause(err))
	}
	r, err := parseReport(b)
	if err != nil {
		return nil, fmt.Errorf("%s %w", file, err)
	}
	return r, nil
}

func parseReport(b []byte) (*Report, error) {
	text := bytes.TrimSpace(b)
	switch {
	case len(text) == 0:
		return nil, errors.New("is empty; a file written with --json is expected")
	case bytes.HasPrefix(text, []byte("#[")) || bytes.Contains(text[:min(len(text), 4096)], []byte(`"StartTimestamp"`)):
		return nil, errors.New("is an HdrHistogram log, as --hdr writes; a file written with --json is expected")
	case text[0] != '{':
		return nil, errors.New("is not a report; a file written with --json is expected")
	}
	var kind struct {
		Schema any `json:"schema"`
	}
	if err := json.Unmarshal(b, &kind); err != nil {
		return nil, unreadable(err, len(b))
	}
	if kind.Schema != Schema {
		if kind.Schema == nil {
			return nil, fmt.Errorf("names no schema; %q is expected", Schema)
		}
		return nil, fmt.Errorf("has the schema %q; %q is expected", fmt.Sprint(kind.Schema), Schema)
	}
	r := &Report{}
	if err := json.Unmarshal(b, r); err != nil {
		return nil, unreadable(err, len(b))
	}
	return r, r.consistent()
}

// unreadable says in words what is wrong with the JSON.
func unreadable(err error, size int) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax) && syntax.Offset >= int64(size):
		return fmt.Errorf("is cut off after %d bytes", size)
	case errors.As(err, &syntax):
		return fmt.Errorf("is damaged: byte %d is not what JSON has there", syntax.Offset)
	case errors.As(err, &kind) && kind.Field != "":
		want := "an object"
		switch kind.Type.Kind() {
		case reflect.String:
			want = "a text"
		case reflect.Bool:
			want = "true or false"
		case reflect.Slice, reflect.Array:
			want = "a list"
		case reflect.Int, reflect.Int64, reflect.Float64:
			want = "a number that fits"
		}
		return fmt.Errorf("is damaged: %s is of the kind %s where %s is expected", kind.Field, kind.Value, want)
	}
	return errors.New("is damaged: started is not a time")
}

// consistent refuses what cannot have been measured, and makes lists of what may be absent.
func (r *Report) consistent() error {
	if r.Scenario == "" || r.Started.IsZero() {
		return errors.New("is no whole report: it names no scenario, or no time at which it started")
	}
	for name, h := range r.Histograms {
		if h.Count < 0 || h.Negative < 0 || h.Negative > h.Count {
			return fmt.Errorf("is damaged: histogram %s has %d samples, %d of them negative", name, h.Count, h.Negative)
		}
	}
	for name, s := range r.Series {
		if s == nil || len(s.T) != len(s.V) {
			return fmt.Errorf("is damaged: series %s has other numbers of times and values", name)
		}
		if s.T == nil {
			s.T, s.V = []float64{}, []float64{}
		}
	}
	for name, c := range r.Curves {
		for _, p := range c {
			if p[0] < 0 || p[0] >= 100 {
				return fmt.Errorf("is damaged: curve %s has a percentile %g", name, p[0])
			}
		}
	}
	return nil
}
