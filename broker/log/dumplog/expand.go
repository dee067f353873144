package dumplog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// targets is what the arguments name.
type targets struct {
	files      []string
	unknown    []string // in directories, left out
	partitions []string // directories that are checked as a whole
	dataDirs   []string
	listed     map[string]bool // directories of both lists
}

const wanted = "dump-log reads .log, .index, .timeindex, .txnindex, .snapshot and *-checkpoint files, and directories of them"

// silent are files that belong to a directory and have nothing to print.
var silent = map[string]bool{
	"partition.metadata": true, "stet.incarnation": true, "stet.compacted": true, "stet-partitions": true,
	"meta.properties": true, ".lock": true, "raft.db": true, "quorum-state": true, ".kafka_cleanshutdown": true, "bootstrap.checkpoint": true,
}

// passing are the names of files that the broker removes, or replaces others with.
var passing = []string{".deleted", ".cleaned", ".swap", ".tmp"}

func known(name string) bool {
	switch filepath.Ext(name) {
	case ".log", ".index", ".timeindex", ".txnindex", ".snapshot":
		_, err := baseOf(name)
		return err == nil
	}
	return strings.HasSuffix(name, "-checkpoint")
}

// add takes an argument. A directory (of a partition, or of many) is replaced by the files in it that can
// be printed, in the order of their names.
func (t *targets) add(arg string) error {
	st, err := os.Stat(arg)
	if err != nil {
		return explain(arg, err)
	}
	if !st.IsDir() {
		if !st.Mode().IsRegular() { // opening a pipe would wait for a writer
			return fmt.Errorf("%s: not a regular file (%s)", arg, st.Mode().Type())
		}
		switch ext := filepath.Ext(arg); {
		case known(arg):
			t.files = append(t.files, arg)
		case slices.Contains([]string{".log", ".index", ".timeindex", ".txnindex", ".snapshot"}, ext):
			_, err := baseOf(arg)
			return fmt.Errorf("%s: %w", arg, err)
		case slices.Contains(passing, ext):
			return fmt.Errorf("%s: a file that the broker is replacing or removing; copy it to a name without %s to read it", arg, ext)
		default:
			return fmt.Errorf("%s: the name says nothing about what it holds: %s", arg, wanted)
		}
		return nil
	}
	before := len(t.files)
	if err := t.addDir(arg); err != nil {
		return err
	}
	if len(t.files) == before {
		return fmt.Errorf("%s: the directory holds no files of a partition: give a partition's directory (as in log.dirs: orders-0) or the one above; %s", arg, wanted)
	}
	return nil
}

func (t *targets) addDir(root string) error {
	if t.listed == nil {
		t.listed = map[string]bool{}
	}
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return explain(path, err)
		}
		if d.IsDir() {
			return nil
		}
		dir, name := filepath.Dir(path), d.Name()
		switch {
		case !regular(path, d):
			t.unknown = append(t.unknown, path)
		case known(name):
			t.files = append(t.files, path)
			list, key := &t.partitions, "partition "+dir
			if strings.HasSuffix(name, "-checkpoint") && name != epochsName {
				list, key = &t.dataDirs, dir
			}
			if !t.listed[key] {
				*list = append(*list, dir)
				t.listed[key] = true
			}
		case silent[name], slices.Contains(passing, filepath.Ext(name)):
		default:
			t.unknown = append(t.unknown, path)
		}
		return nil
	})
}

// regular follows links.
func regular(path string, d fs.DirEntry) bool {
	if d.Type().IsRegular() {
		return true
	}
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}

// explain says what to do about a file that cannot be read.
func explain(name string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		hint := "check the path"
		if dir := filepath.Dir(name); known(name) {
			if es, derr := os.ReadDir(dir); derr != nil {
				hint = dir + " is not there either"
			} else if at := nearest(es, filepath.Ext(name)); at != "" {
				hint = "the directory has " + at
			}
		}
		return fmt.Errorf("%s: %w; %s", name, fs.ErrNotExist, hint)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s: %w; run dump-log as the user of the broker, or on a copy", name, fs.ErrPermission)
	}
	return fmt.Errorf("%s: %w", name, err)
}

// nearest names the first file of a kind.
func nearest(es []os.DirEntry, ext string) string {
	for _, e := range es {
		if filepath.Ext(e.Name()) == ext {
			return e.Name()
		}
	}
	return ""
}
