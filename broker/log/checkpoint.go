package log

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"stet/internal/vfs"
)

// Checkpoint files of a log directory, one line per partition.
const (
	recoveryPointFile = "recovery-point-offset-checkpoint"
	logStartFile      = "log-start-offset-checkpoint"
	highWatermarkFile = "replication-offset-checkpoint"
	cleanerFile       = "cleaner-offset-checkpoint"
)

// topicPartition names a partition.
type topicPartition struct {
	topic     string
	partition int32
}

func (tp topicPartition) String() string {
	return tp.topic + "-" + strconv.Itoa(int(tp.partition))
}

func parseInt(s string, bits int) (int64, error) { return strconv.ParseInt(s, 10, bits) }

// decodeCheckpoint reads Kafka's checkpoint text: a version line "0", a line with the
// number of rows, the rows with their fields separated by blanks.
func decodeCheckpoint(p []byte, fields int) ([][]string, error) {
	if len(p) == 0 {
		return nil, errors.New("empty checkpoint")
	}
	if p[len(p)-1] != '\n' {
		return nil, errors.New("checkpoint ends inside a line")
	}
	lines := strings.Split(strings.TrimSuffix(string(p), "\n"), "\n")
	if lines[0] != "0" {
		return nil, fmt.Errorf("checkpoint version %.20q", lines[0])
	}
	if len(lines) < 2 {
		return nil, errors.New("checkpoint without a count")
	}
	n, err := strconv.Atoi(lines[1])
	if err != nil || n != len(lines)-2 {
		return nil, fmt.Errorf("checkpoint of %.20q entries has %d", lines[1], len(lines)-2)
	}
	rows := make([][]string, 0, n)
	for _, l := range lines[2:] {
		r := strings.Fields(l)
		if len(r) != fields {
			return nil, fmt.Errorf("checkpoint line %.60q", l)
		}
		rows = append(rows, r)
	}
	return rows, nil
}

func encodeOffsets(offsets map[topicPartition]int64) []byte {
	keys := make([]topicPartition, 0, len(offsets))
	for tp := range offsets {
		keys = append(keys, tp)
	}
	slices.SortFunc(keys, func(a, b topicPartition) int {
		if c := strings.Compare(a.topic, b.topic); c != 0 {
			return c
		}
		return int(a.partition - b.partition)
	})
	var b bytes.Buffer
	fmt.Fprintf(&b, "0\n%d\n", len(keys))
	for _, tp := range keys {
		fmt.Fprintf(&b, "%s %d %d\n", tp.topic, tp.partition, offsets[tp])
	}
	return b.Bytes()
}

func decodeOffsets(p []byte) (map[topicPartition]int64, error) {
	if len(p) == 0 {
		return nil, nil // Kafka makes the files empty
	}
	rows, err := decodeCheckpoint(p, 3)
	if err != nil {
		return nil, err
	}
	m := make(map[topicPartition]int64, len(rows))
	for _, r := range rows {
		part, err := parseInt(r[1], 32)
		if err != nil {
			return nil, err
		}
		off, err := parseInt(r[2], 64)
		if err != nil {
			return nil, err
		}
		if off < 0 || part < 0 {
			return nil, fmt.Errorf("%s-%d at offset %d", r[0], part, off)
		}
		m[topicPartition{r[0], int32(part)}] = off
	}
	return m, nil
}

// maxSmallFile bounds what is read of checkpoint, metadata and snapshot files.
const maxSmallFile = 256 << 20

// readFile reads a whole file.
func readFile(fsys vfs.FS, name string) ([]byte, error) {
	f, err := fsys.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size() > maxSmallFile {
		return nil, fmt.Errorf("%s: %d bytes are too many", name, st.Size())
	}
	p := make([]byte, st.Size())
	n, err := f.ReadAt(p, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return p[:n], nil
}

// writeFile replaces a file atomically through a temporary one. With sync it is durable
// on return; without it may be the old one, or empty, after a power failure.
func writeFile(fsys vfs.FS, name string, p []byte, sync bool) error {
	tmp := name + ".tmp"
	f, err := fsys.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(p, 0)
	if err == nil && sync {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = fsys.Rename(tmp, name)
	}
	if err == nil && sync {
		err = fsys.SyncDir(filepath.Dir(name))
	}
	return err
}

func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }
