package dumplog

import (
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

func known(name string) bool {
	switch filepath.Ext(name) {
	case ".log", ".index", ".timeindex", ".txnindex", ".snapshot":
		_, err := baseOf(name)
		return err == nil
	}
	return strings.HasSuffix(name, "-checkpoint")
}

// Expand replaces directories (of a partition, or of many) by the files in them that can be
// printed, in order of their names; files stay as they are.
func Expand(args []string) ([]string, error) {
	var out []string
	for _, a := range args {
		var found []string
		err := filepath.WalkDir(a, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if !d.IsDir() && (path == a || known(d.Name())) {
				found = append(found, path)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		slices.Sort(found)
		out = append(out, found...)
	}
	return out, nil
}
