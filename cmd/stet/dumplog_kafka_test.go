package main_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"stet/internal/testkit"
)

// dumpModes are the combinations that both tools print; the files are of every kind that Kafka's knows.
var dumpModes = []struct {
	name  string
	flags []string
	exts  []string
	ours  bool // also of what Stet wrote
}{
	{"shallow", nil, []string{".log", ".index", ".timeindex", ".txnindex", ".snapshot"}, true},
	{"deep", []string{"--deep-iteration"}, []string{"d-compact", "d-txns"}, false},
	{"data", []string{"--print-data-log"}, []string{".log"}, true},
	{"data only", []string{"--print-data-log", "--skip-record-metadata"}, []string{"d-txns", "own-"}, false},
	{"sanity", []string{"--index-sanity-check"}, []string{".log", ".index", ".timeindex"}, true},
	{"verify", []string{"--verify-index-only"}, []string{".log", ".index", ".timeindex"}, false},
	{"offsets", []string{"--offsets-decoder"}, []string{"__consumer_offsets"}, false},
}

// sameDumps compares what Stet's dump-log and Kafka's print for all files below a log directory, line by
// line, and what they find to be bad: nothing. Differences that are left out:
//   - the order of files on stderr (Kafka's is that of a hash map);
//   - index files that are preallocated and empty, which a SIGKILL of Kafka leaves: Kafka's tool ends with an
//     exception or reports the unused room as a mismatch; Stet's says that they are empty. Compared are files
//     after a clean stop of Kafka, and ours after any.
func sameDumps(t *testing.T, dir string, ours bool) {
	t.Helper()
	var wg sync.WaitGroup
	for _, m := range dumpModes {
		if ours && !m.ours {
			continue
		}
		files := logFiles(t, dir, m.exts)
		wg.Go(func() {
			args := append([]string{"dump-log", "--files", strings.Join(files, ",")}, m.flags...)
			ours, errs, code := testkit.Stet(t, args...)
			if code != 0 {
				t.Errorf("%s: exit code %d:\n%.2000s", m.name, code, errs)
			}
			theirs, theirErrs, err := kafkaDump(t.Context(), args...)
			if err != nil {
				t.Errorf("%s: Kafka's tool: %v\n%.2000s", m.name, err, theirErrs)
				return
			}
			sameLines(t, m.name+" stdout", ours, theirs)
			sameLines(t, m.name+" stderr", errs, theirErrs)
			if bad := complaints(theirErrs); len(bad) > 0 {
				t.Errorf("%s: Kafka's tool finds %.2000q", m.name, bad)
			}
		})
	}
	wg.Wait()
}

// logFiles are the files of all partitions with one of the extensions, or of one topic. Kafka's metadata
// log is left out: its tool prints those records with a decoder only.
func logFiles(t *testing.T, dir string, exts []string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.Contains(path, "__cluster_metadata") {
			return err
		}
		if slices.Contains(exts, filepath.Ext(path)) || (filepath.Ext(path) == ".log" && slices.ContainsFunc(exts, func(e string) bool { return strings.Contains(path, "/"+e) })) {
			files = append(files, path)
		}
		return nil
	})
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %d files", err, len(files))
	}
	return files
}

// complaints are the lines of Kafka's tool that tell of something bad. It also tells of gaps, also of the one
// before a segment's first offset, and of the timestamp of a batch that a cleaner emptied (-1 in its eyes).
func complaints(stderr string) (bad []string) {
	for l := range strings.Lines(stderr) {
		switch l = strings.TrimSpace(l); {
		case l == "", strings.HasPrefix(l, "Non-consecutive offsets in "), strings.Contains(l, " is followed by "):
		case strings.HasPrefix(l, "Found timestamp mismatch in "), strings.HasSuffix(l, ", log timestamp: -1"):
		default:
			bad = append(bad, l)
		}
	}
	return bad
}

// kafkaDump runs Kafka's tool and returns both outputs.
func kafkaDump(ctx context.Context, args ...string) (stdout, stderr string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join("..", "..", "scripts", "kafka", "kafka"), args...)
	cmd.Env = append(os.Environ(), "KAFKA_VERSION="+testkit.Kafka43, "KAFKA_SHORT=1", "KAFKA_JVM_OPTS=-Dstdout.encoding=UTF-8")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

func sameLines(t *testing.T, what, ours, theirs string) {
	t.Helper()
	a, b := strings.Split(ours, "\n"), strings.Split(theirs, "\n")
	if strings.HasSuffix(what, "stderr") { // Kafka's order is that of a hash map
		slices.Sort(a)
		slices.Sort(b)
	}
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			t.Errorf("%s line %d:\n%.600s\nKafka:\n%.600s", what, i+1, a[i], b[i])
			return
		}
	}
	if len(a) != len(b) {
		t.Errorf("%s: %d lines, Kafka %d: %.600s", what, len(a), len(b), append(a, b...)[min(len(a), len(b)):])
	}
}

// commitOffsets leaves members, assignments, commits and their tombstones in __consumer_offsets.
func commitOffsets(ctx context.Context, t *testing.T, addr, topic string) {
	t.Helper()
	for _, opts := range [][]kgo.Opt{{kgo.InstanceID("static")}, {kgo.Balancers(kgo.RangeBalancer()), kgo.ConsumerGroup("g2")}} {
		cl := testkit.Client(t, addr, append([]kgo.Opt{kgo.ConsumeTopics(topic), kgo.ConsumerGroup("g1"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}, opts...)...)
		if err := cl.PollFetches(ctx).Err(); err != nil {
			t.Fatal(err)
		}
		if err := cl.CommitUncommittedOffsets(ctx); err != nil {
			t.Fatal(err)
		}
		cl.Close()
	}
}
