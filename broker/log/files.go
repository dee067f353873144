package log

import (
	"encoding/base64"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"stet/internal/vfs"
)

// Files beside the segments of a partition.
const (
	metadataFile    = "partition.metadata"
	incarnationFile = "stet.incarnation"
)

// IncarnationFile is in every partition directory that Stet made.
const IncarnationFile = incarnationFile

// noIncarnation is that of a directory which Apache Kafka wrote.
const noIncarnation = -1

func idString(id [16]byte) string { return base64.RawURLEncoding.EncodeToString(id[:]) }

func parseID(s string) (id [16]byte, err error) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) != len(id) {
		return id, fmt.Errorf("topic id %.40q", s)
	}
	return [16]byte(b), nil
}

// fields reads "key: value" lines.
func fields(p []byte) map[string]string {
	m := map[string]string{}
	for line := range strings.Lines(string(p)) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			m[strings.TrimSpace(k)] = strings.TrimSpace(v)
		}
	}
	return m
}

func encodeMetadata(id [16]byte) []byte {
	return fmt.Appendf(nil, "version: 0\ntopic_id: %s", idString(id))
}

func decodeMetadata(p []byte) ([16]byte, error) {
	m := fields(p)
	if m["version"] != "0" {
		return [16]byte{}, fmt.Errorf("%s: version %.20q", metadataFile, m["version"])
	}
	id, err := parseID(m["topic_id"])
	if err != nil {
		return id, fmt.Errorf("%s: %w", metadataFile, err)
	}
	return id, nil
}

// encodeIncarnation is stet.incarnation. It repeats the topic id and ends with a CRC-32C of the lines before it: a flipped bit in either file must
// not make a directory that of another topic, which is removed.
func encodeIncarnation(n int64, id [16]byte) []byte {
	return sealText(fmt.Appendf(nil, "version: 1\nincarnation: %d\ntopic_id: %s\n", n, idString(id)))
}

// decodeIncarnation reads stet.incarnation. Version 0 has the incarnation alone; its id is the zero one.
func decodeIncarnation(p []byte) (n int64, id [16]byte, err error) {
	m := fields(p)
	n, err = strconv.ParseInt(m["incarnation"], 10, 64)
	if v := m["version"]; v != "0" && v != "1" || err != nil {
		return 0, id, fmt.Errorf("%s: version %.20q, incarnation %.20q", incarnationFile, v, m["incarnation"])
	}
	if m["version"] == "0" {
		return n, id, nil
	}
	if _, err = openText(p); err == nil {
		id, err = parseID(m["topic_id"])
	}
	if err != nil {
		return 0, id, fmt.Errorf("%s: %w", incarnationFile, err)
	}
	return n, id, nil
}

// identity is whose a directory is. A file that does not exist gives the zero id or noIncarnation.
type identity struct {
	id          [16]byte
	incarnation int64
	lost        error // why partition.metadata is to be written again; the id is that of stet.incarnation, which has a checksum
}

func readIdentity(fsys vfs.FS, dir string) (identity, error) {
	who := identity{incarnation: noIncarnation}
	p, err := readFile(fsys, filepath.Join(dir, incarnationFile))
	var same [16]byte
	if err == nil {
		who.incarnation, same, err = decodeIncarnation(p)
	}
	if err != nil && !isNotExist(err) {
		return identity{incarnation: noIncarnation}, err
	}
	p, err = readFile(fsys, filepath.Join(dir, metadataFile))
	if err != nil && !isNotExist(err) {
		return who, err
	}
	if err == nil {
		who.id, err = decodeMetadata(p)
	}
	switch known := same != [16]byte{}; {
	case err != nil && known:
		who.id, who.lost = same, err
	case err != nil && !isNotExist(err):
		return who, err
	case err == nil && known && same != who.id:
		return who, fmt.Errorf("%s: topic id %s, but %s has %s", metadataFile, idString(who.id), incarnationFile, idString(same))
	}
	return who, nil
}

// listing is what a partition directory holds.
type listing struct {
	segments  []int64 // bases of .log files, ascending
	snapshots []int64 // ascending
	txns      map[int64]bool
	orphans   []string // left over by deletions, compactions and half-written replacements
	unknown   []string // neither ours nor Kafka's
	swaps     bool     // an exchange of the cleaner is to be completed or taken back
}

func snapshotOffsets(fsys vfs.FS, dir string) ([]int64, error) {
	l, err := list(fsys, dir)
	return l.snapshots, err
}

// list reads a directory in which finishSwaps has left no exchange open.
func list(fsys vfs.FS, dir string) (listing, error) {
	l := listing{txns: map[int64]bool{}}
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return l, err
	}
	var indexes []string
	for _, e := range entries {
		name := e.Name()
		if e.IsDir() || !knownFile(name) {
			l.unknown = append(l.unknown, name)
			continue
		}
		if base, ok := parseSegmentName(name, logSuffix); ok {
			l.segments = append(l.segments, base)
			continue
		}
		if o, ok := parseSegmentName(name, snapshotSuffix); ok {
			l.snapshots = append(l.snapshots, o)
			continue
		}
		if base, ok := parseSegmentName(name, txnIndexSuffix); ok {
			l.txns[base] = true
		}
		switch filepath.Ext(name) {
		case indexSuffix, timeIndexSuffix, txnIndexSuffix:
			indexes = append(indexes, name)
		case deletedSuffix, cleanedSuffix, ".tmp":
			l.orphans = append(l.orphans, name)
		case swapSuffix:
			l.swaps = true
		}
	}
	slices.Sort(l.segments)
	slices.Sort(l.snapshots)
	for _, name := range indexes {
		for _, suffix := range []string{indexSuffix, timeIndexSuffix, txnIndexSuffix} {
			base, ok := parseSegmentName(name, suffix)
			if _, found := slices.BinarySearch(l.segments, base); ok && !found {
				l.orphans = append(l.orphans, name)
			}
		}
	}
	return l, nil
}

// hasData says whether any segment of the directory holds a byte.
func hasData(fsys vfs.FS, dir string) (bool, error) {
	l, err := list(fsys, dir)
	if err != nil || l.swaps {
		return true, err
	}
	for _, base := range l.segments {
		st, err := fsys.Stat(segmentPath(dir, base) + logSuffix)
		if err != nil || st.Size() > 0 {
			return true, err
		}
	}
	return false, nil
}

// createPartition makes the files that name a new partition.
func createPartition(fsys vfs.FS, dir string, id [16]byte, incarnation int64) error {
	if err := fsys.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := writeFile(fsys, filepath.Join(dir, incarnationFile), encodeIncarnation(incarnation, id), false); err != nil {
		return err
	}
	return writeFile(fsys, filepath.Join(dir, metadataFile), encodeMetadata(id), false)
}

var errNotPartition = errors.New("not a partition directory")

// parsePartitionDir splits "topic-3".
func parsePartitionDir(name string) (topicPartition, error) {
	i := strings.LastIndexByte(name, '-')
	if i <= 0 {
		return topicPartition{}, errNotPartition
	}
	n, err := strconv.ParseInt(name[i+1:], 10, 32)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != name[i+1:] {
		return topicPartition{}, errNotPartition
	}
	return topicPartition{name[:i], int32(n)}, nil
}

// removeQuietly removes leftovers; they are harmless if it fails.
func removeQuietly(fsys vfs.FS, dir string, names []string) {
	for _, n := range names {
		_ = fsys.Remove(filepath.Join(dir, n))
	}
}
