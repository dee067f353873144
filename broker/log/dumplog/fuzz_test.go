package dumplog

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// FuzzFile replaces one file of a good directory: never a panic, and never an error of another kind
// than a finding or a file that cannot be read. What is printed as JSON always is.
func FuzzFile(f *testing.F) {
	names := []string{".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
	for i, ext := range names {
		p, err := os.ReadFile(filepath.Join("..", "testdata", "kafka-4.3.1", "txns-0", map[bool]string{false: zero, true: "00000000000000000071"}[ext == ".snapshot"]+ext))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(i), p)
	}
	for i, text := range []string{"0\n1\n0 0\n", "0\n1\ntxns 0 71\n"} {
		f.Add(uint8(len(names)+i), []byte(text))
	}
	f.Fuzz(func(t *testing.T, kind uint8, p []byte) {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(filepath.Join("..", "testdata", "kafka-4.3.1"))); err != nil {
			t.Fatal(err)
		}
		part := filepath.Join(dir, "txns-0")
		name := filepath.Join(dir, recoveryName)
		switch i := int(kind) % (len(names) + 2); {
		case i < len(names):
			name = filepath.Join(part, zero+names[i])
		case i == len(names):
			name = filepath.Join(part, epochsName)
		}
		if err := os.WriteFile(name, p, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, o := range []Options{{DeepIteration: true}, {IndexSanityCheck: true, JSON: true, PrintDataLog: true}} {
			err := Run(&bytes.Buffer{}, &bytes.Buffer{}, []string{dir, name}, o)
			if err != nil && !errors.Is(err, ErrBad) {
				t.Fatal(err)
			}
		}
	})
}
