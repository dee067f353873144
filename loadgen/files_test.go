package loadgen

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// small is a report with everything that a file may hold.
func small() *Report {
	r := newReport("lag", Options{})
	lag := samplesOf(200, 3*time.Millisecond)
	lag.Record(-2*time.Millisecond, 7)
	r.add("added_lag_ms", lag)
	r.add("control_ms", samplesOf(200, time.Millisecond))
	r.Series["acknowledged"] = &Series{Unit: "MB/s", T: []float64{0.25, 0.5}, V: []float64{1, 2}}
	r.judge(evidence{})
	return r
}

// TestAFullDisk: the error names the file and the reason, what stood there is untouched, and nothing else is left.
func TestAFullDisk(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "r.json")
	if err := os.WriteFile(file, []byte("the report of yesterday"), 0o644); err != nil {
		t.Fatal(err)
	}
	err := WriteFile(file, func(w io.Writer) error {
		_, err := w.Write(bytes.Repeat([]byte("x"), 1<<20))
		return errors.Join(err, &os.PathError{Op: "write", Path: "/somewhere/else", Err: syscall.ENOSPC})
	})
	if err == nil || err.Error() != file+" could not be written: no space left on device" {
		t.Errorf("%v", err)
	}
	if b, _ := os.ReadFile(file); string(b) != "the report of yesterday" {
		t.Errorf("the file holds %q", b)
	}
	if all, _ := os.ReadDir(dir); len(all) != 1 {
		t.Errorf("left over: %v", all)
	}
	// The device that is always full, by every way that a report goes.
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("NOT TESTED: there is no /dev/full here")
	}
	r := small()
	for name, err := range map[string]error{"json": r.WriteJSON("/dev/full"), "hdr": r.WriteHDR("/dev/full")} {
		if err == nil || err.Error() != "/dev/full could not be written: no space left on device" {
			t.Errorf("%s: %v", name, err)
		}
	}
	m, err := OpenManifest("/dev/full", "t")
	if err != nil {
		t.Fatal(err)
	}
	m.Acked(0, 1, 2, 3, time.Now())
	if err := m.Close(); err == nil || err.Error() != "/dev/full is not complete: no space left on device" {
		t.Errorf("manifest: %v", err)
	}
}

// TestAReportComesBack, and so do negative samples, in the report and in the HdrHistogram log.
func TestAReportComesBack(t *testing.T) {
	dir := t.TempDir()
	r := small()
	file := filepath.Join(dir, "r.json")
	if err := CheckFile(file); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("looking whether a file can be written leaves one")
	}
	if err := r.WriteJSON(file); err != nil {
		t.Fatal(err)
	}
	got, err := ReadReport(file)
	if err != nil {
		t.Fatal(err)
	}
	if h := got.Histograms["added_lag_ms"]; h.Count != 207 || h.Negative != 7 || *h.Min > -1.99 || *h.Max < 2.99 {
		t.Errorf("%+v", h)
	}
	log := filepath.Join(dir, "r.hlog")
	if err := r.WriteHDR(log); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int64{}
	rd := hdrhistogram.NewHistogramLogReader(bytes.NewReader(b))
	for {
		h, err := rd.NextIntervalHistogram()
		if err != nil {
			t.Fatal(err)
		}
		if h == nil {
			break
		}
		counts[h.Tag()] = h.TotalCount()
	}
	if counts["added_lag_ms"] != 200 || counts["added_lag_ms"+NegativeTag] != 7 || counts["control_ms"] != 200 || len(counts) != 3 {
		t.Errorf("%v", counts)
	}
}

// TestReportsFromElsewhere: each names the file, what is wrong and what is allowed, in no words of Go's.
func TestReportsFromElsewhere(t *testing.T) {
	good, err := json.Marshal(small())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	hlog := filepath.Join(dir, "made.hlog")
	if err := small().WriteHDR(hlog); err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(hlog)
	if err != nil {
		t.Fatal(err)
	}
	at := func(old, with string) string {
		s := strings.Replace(string(good), old, with, 1)
		if s == string(good) {
			t.Fatalf("the report has no %s", old)
		}
		return s
	}
	for name, c := range map[string]struct{ text, want string }{
		"empty":           {"", "is empty"},
		"hdr":             {string(log), "is an HdrHistogram log, as --hdr writes; a file written with --json is expected"},
		"cut hdr":         {string(log[:len(log)/2]), "is an HdrHistogram log"},
		"prose":           {"hello\n", "is not a report; a file written with --json is expected"},
		"binary":          {"\x00\x01\x02", "is not a report"},
		"list":            {"[1,2]", "is not a report"},
		"cut":             {string(good[:len(good)/2]), "is cut off after "},
		"flipped":         {strings.Replace(string(good), ":", ";", 3), "is damaged: byte "},
		"two":             {string(good) + "{}", "is damaged: byte "},
		"another schema":  {`{"schema":"stet.profile/1"}`, `has the schema "stet.profile/1"; "stet.loadgen/1" is expected`},
		"a later schema":  {`{"schema":"stet.loadgen/2"}`, `"stet.loadgen/1" is expected`},
		"no schema":       {`{"scenario":"lag"}`, "names no schema"},
		"nothing in it":   {`{"schema":"stet.loadgen/1"}`, "is no whole report: it names no scenario"},
		"no start":        {`{"schema":"stet.loadgen/1","scenario":"lag"}`, "no time at which it started"},
		"schema a number": {`{"schema":7}`, `has the schema "7"`},
		"text for number": {at(`"records":0`, `"records":"many"`), "load.records is of the kind string where a number"},
		"object for list": {at(`"checks":[`, `"checks":{},"x":[`), "checks is of the kind object where a list"},
		"started":         {at(`"started":"`, `"started":"x`), "started is not a time"},
		"series":          {at(`"v":[1,2]`, `"v":[1]`), "series acknowledged has other numbers of times and values"},
		"null series":     {at(`"series":{`, `"series":{"a":null,`), "series a "},
		"count":           {at(`"count":207`, `"count":-207`), "histogram added_lag_ms has -207 samples"},
		"percentile":      {at(`"series":{`, `"curves":{"a":[[100,1]]},"series":{`), "curve a has a percentile 100"},
	} {
		file := filepath.Join(dir, "x.json")
		if err := os.WriteFile(file, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := ReadReport(file)
		if err == nil || !strings.HasPrefix(err.Error(), file+" ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
			continue
		}
		for _, word := range []string{"json:", "Go ", "struct", "unmarshal", "invalid character", "\n"} {
			if strings.Contains(err.Error(), word) {
				t.Errorf("%s: %v speaks of %q", name, err, word)
			}
		}
	}
	if _, err := ReadReport(filepath.Join(dir, "nope.json")); err == nil || !strings.HasSuffix(err.Error(), "nope.json: no such file or directory") {
		t.Errorf("a file that is not there: %v", err)
	}
	if _, err := ReadReport(dir); err == nil || !strings.Contains(err.Error(), "is a folder") {
		t.Errorf("a folder: %v", err)
	}
}

// FuzzParseReport: any bytes give a report that can be shown, or an error.
func FuzzParseReport(f *testing.F) {
	good, err := json.Marshal(small())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"schema":"stet.loadgen/1","histograms":{"a":{}},"series":{},"failover":{},"throttle":[{}],"checks":null}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseReport(b)
		if err == nil {
			r.WriteText(io.Discard)
		} else if strings.Contains(err.Error(), "json:") {
			t.Errorf("%v", err)
		}
	})
}
