package dumplog

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"stet/broker/log"
)

// TestSmallFiles: a file that takes a partition offline, or that it cannot rely on, is named although there is nothing of it to print.
func TestSmallFiles(t *testing.T) {
	for _, name := range log.SmallFiles {
		for what, text := range map[string]string{"empty": "", "garbage": "garbage\n", "from the future": "version: 1\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA\nincarnation: 1\ncompacted: 1\n"} {
			dir, part := wholeDir(t)
			file := filepath.Join(part, name)
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if errs, err := checkDir(dir); !errors.Is(err, ErrBad) || !strings.Contains(errs, file+" is bad: ") {
				t.Errorf("%s, %s: %v\n%s", name, what, err, errs)
			}
		}
	}
}
