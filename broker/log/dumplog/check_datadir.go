package dumplog

import (
	"fmt"
	"os"
	"path/filepath"
)

// checkDataDir compares the checkpoints of a log directory with the logs in it.
func (p *printer) checkDataDir(dir string, ends map[string]span) {
	_, err := os.Stat(filepath.Join(dir, cleanMarker))
	clean := err == nil
	for _, name := range []string{recoveryName, logStartName, highWatermarks, cleanerName} {
		file := filepath.Join(dir, name)
		rows, err := readCheckpoint(file)
		if err != nil {
			continue // not there, or printing said why
		}
		for i, r := range rows {
			tp := fmt.Sprintf("%s-%d", r.Topic, r.Partition)
			s, ok := ends[filepath.Join(dir, tp)]
			bad := func(format string, args ...any) {
				p.find(Finding{file, -1, r.Offset, int64(i), tp + ": " + fmt.Sprintf(format, args...)})
			}
			switch {
			case !ok:
				bad("there is no such partition in the directory")
			case !s.known:
			case r.Offset > s.end:
				bad("offset %d is above the end of the log, %d", r.Offset, s.end)
			case clean && name == recoveryName && r.Offset != s.end:
				bad("offset %d is not the end of the log, %d, although the broker was shut down cleanly", r.Offset, s.end)
			}
		}
	}
}
