package dumplog

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"stet/zerocopy/batch"
)

// TestDirectories: a log directory is printed file by file, with checkpoints, and a flipped
// byte is located; files of other names are left out.
func TestDirectories(t *testing.T) {
	dir := t.TempDir()
	part := filepath.Join(dir, "t-0")
	if err := os.Mkdir(part, 0o755); err != nil {
		t.Fatal(err)
	}
	one := batch.Build(nil, batch.Header{ProducerID: -1}, batch.KV{Value: []byte("a")})
	two := batch.Build(nil, batch.Header{BaseOffset: 1, ProducerID: -1}, batch.KV{Value: []byte("b")})
	two[len(two)-2] ^= 1
	for name, p := range map[string][]byte{
		"t-0/00000000000000000000.log": append(bytes.Clone(one), two...), "t-0/leader-epoch-checkpoint": []byte("0\n1\n3 0\n"), "t-0/stet.incarnation": {1},
		"cleaner-offset-checkpoint": []byte("0\n1\nt 0 7\n"), "recovery-point-offset-checkpoint": []byte("0\n2\nt 0 7\n"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), p, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out, errs bytes.Buffer
	err := Run(&out, &errs, []string{dir}, Options{})
	if !errors.Is(err, ErrBad) || !strings.Contains(errs.String(), "recovery-point-offset-checkpoint is bad: checkpoint of \"2\" entries has 1") {
		t.Errorf("error %v", err)
	}
	for _, want := range []string{"epoch: 3 startOffset: 0\n", "topic: t partition: 0 offset: 7\n", "baseOffset: 1 "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("lacks %q:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "incarnation") {
		t.Errorf("prints a file that it does not know:\n%s", out.String())
	}
	if !strings.Contains(errs.String(), "is bad at position 69, offset 1: ") {
		t.Errorf("the flipped byte is not located:\n%s", errs.String())
	}
}
