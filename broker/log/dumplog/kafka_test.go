package dumplog

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSameAsKafkasTool compares with what kafka-dump-log 4.3.1 printed for the same files.
func TestSameAsKafkasTool(t *testing.T) {
	t.Chdir("../testdata/kafka-4.3.1")
	want, err := os.ReadFile("dump.txt")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*-0/0*")
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	var out, errs bytes.Buffer
	if err := Run(&out, &errs, files, Options{PrintDataLog: true}); err != nil || errs.Len() != 0 {
		t.Fatal(err, errs.String())
	}
	got, exp := strings.Split(out.String(), "\n"), strings.Split(string(want), "\n")
	for i := range min(len(got), len(exp)) {
		if got[i] != exp[i] {
			t.Fatalf("line %d:\n%s\nKafka:\n%s", i+1, got[i], exp[i])
		}
	}
	if len(got) != len(exp) {
		t.Fatalf("%d lines, Kafka %d", len(got), len(exp))
	}
}
