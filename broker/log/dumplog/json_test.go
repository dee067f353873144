package dumplog

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares with a file below testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	name = filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(name, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	a, b := strings.Split(string(got), "\n"), strings.Split(string(want), "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			t.Fatalf("%s line %d:\n%s\nwant\n%s", name, i+1, a[i], b[i])
		}
	}
	if len(a) != len(b) {
		t.Fatalf("%s: %d lines, want %d", name, len(a), len(b))
	}
}

// jsonOf runs in JSON mode and checks what holds of every output: an object a line, the first with
// the schema, the last with the counts.
func jsonOf(t *testing.T, o Options, args ...string) (out []byte, err error) {
	t.Helper()
	var b, errs bytes.Buffer
	o.JSON = true
	err = Run(&b, &errs, args, o)
	if errs.Len() > 0 {
		t.Errorf("stderr: %s", errs.String())
	}
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	for _, l := range lines {
		var v struct {
			Type string `json:"type"`
		}
		if err := json.Unmarshal([]byte(l), &v); err != nil || v.Type == "" {
			t.Fatalf("%v: %s", err, l)
		}
	}
	if lines[0] != `{"schema":"stet.dumplog/1","type":"run"}` || !strings.HasPrefix(lines[len(lines)-1], `{"type":"end",`) {
		t.Fatalf("%s\n%s", lines[0], lines[len(lines)-1])
	}
	return b.Bytes(), err
}

// TestJSON: every kind of file, Kafka's and our own.
func TestJSON(t *testing.T) {
	kafkas := filepath.Join("..", "testdata", "kafka-4.3.1")
	for name, o := range map[string]Options{"kafka.jsonl": {}, "data.jsonl": {PrintDataLog: true}, "sanity.jsonl": {IndexSanityCheck: true}} {
		args := []string{kafkas}
		if name != "kafka.jsonl" {
			args = []string{filepath.Join(kafkas, "txns-0")}
		}
		out, err := jsonOf(t, o, args...)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		golden(t, name, out)
	}
	dir := partition(t)
	out, err := jsonOf(t, Options{Decoder: func(_ int64, k, _ []byte) (string, string) {
		return map[bool]string{true: `{"a":1}`, false: "no JSON"}[len(k) > 1], "<DELETE>"
	}}, dir)
	if err != nil {
		t.Error(err)
	}
	golden(t, "decoded.jsonl", bytes.ReplaceAll(out, []byte(filepath.Dir(dir)), []byte("DIR")))
}

// TestJSONOfBadFiles: what is found, what is unknown and what cannot be read are lines, too.
func TestJSONOfBadFiles(t *testing.T) {
	dir := partition(t)
	name := filepath.Join(dir, zero+".log")
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	raw[100] ^= 4
	for n, p := range map[string][]byte{name: raw, filepath.Join(dir, "notes.txt"): nil} {
		if err := os.WriteFile(n, p, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := jsonOf(t, Options{}, dir, filepath.Join(dir, "00000000000000000999.log"))
	if !errors.Is(err, ErrBad) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
	golden(t, "bad.jsonl", bytes.ReplaceAll(out, []byte(filepath.Dir(dir)), []byte("DIR")))
}

// TestErrorTexts: each says what to do.
func TestErrorTexts(t *testing.T) {
	dir := partition(t)
	empty := t.TempDir()
	for n, p := range map[string][]byte{"notes.txt": {1}, "x.log": {1}, zero + ".log.deleted": {1}} {
		if err := os.WriteFile(filepath.Join(empty, n), p, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	index := filepath.Join(empty, "00000000000000000007.index")
	if err := os.WriteFile(index, []byte{0, 0, 0, 4, 0, 0, 0, 1}, 0o600); err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(empty, "00000000000000000008.log")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	alone := t.TempDir()
	for arg, want := range map[string]string{
		filepath.Join(dir, "00000000000000000999.log"): "file does not exist; the directory has " + zero + ".log",
		filepath.Join(dir, "no", zero+".log"):          "file does not exist; " + filepath.Join(dir, "no") + " is not there either",
		filepath.Join(empty, "nothing"):                "file does not exist; check the path",
		filepath.Join(empty, "notes.txt"):              "the name says nothing about what it holds: dump-log reads .log,",
		filepath.Join(empty, "x.log"):                  "the file's name does not begin with an offset (as 00000000000000000000.log does)",
		filepath.Join(empty, zero+".log.deleted"):      "copy it to a name without .deleted to read it",
		pipe:  "not a regular file",
		alone: "the directory holds no files of a partition: give a partition's directory",
		index: "cannot be compared: " + filepath.Join(empty, "00000000000000000007.log") + ": file does not exist",
		filepath.Join(dir, zero+".log") + string(filepath.Separator): "not a directory",
	} {
		var out, errs bytes.Buffer
		err := Run(&out, &errs, []string{arg, filepath.Join(dir, zero+".log")}, Options{})
		if err == nil || !strings.Contains(err.Error(), arg) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v\nlacks %q", arg, err, want)
		}
		if !strings.Contains(out.String(), "baseOffset: 0 ") {
			t.Errorf("%s keeps the other file from being printed", arg)
		}
	}
	if os.Geteuid() != 0 {
		secret := filepath.Join(dir, zero+".log")
		if err := os.Chmod(secret, 0); err != nil {
			t.Fatal(err)
		}
		if err := Run(&bytes.Buffer{}, &bytes.Buffer{}, []string{secret}, Options{}); err == nil || !strings.Contains(err.Error(), "run dump-log as the user of the broker") {
			t.Error(err)
		}
	}
}
