package log

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"stet/internal/vfs"
)

func TestManagerRefusesWrongDirectories(t *testing.T) {
	e := newEnv(t)
	e.open()
	id := e.m.ClusterID()
	if len(id) != 22 {
		t.Fatalf("cluster id %q", id)
	}
	if _, err := OpenManager(ManagerOptions{FS: e.fs, Dirs: []string{"/data"}, NodeID: 1}, nil); !errors.Is(err, vfs.ErrLocked) || !strings.Contains(err.Error(), "/data") {
		t.Fatalf("a second manager: %v", err)
	}
	if err := e.m.Close(); err != nil {
		t.Fatal(err)
	}
	try := func(cluster string, node int32, dirs ...string) error {
		m, err := OpenManager(ManagerOptions{FS: e.fs, Dirs: dirs, NodeID: node, ClusterID: cluster}, func(string) Config { return e.cfg })
		if err == nil {
			if m.ClusterID() != id {
				t.Fatalf("cluster id %s", m.ClusterID())
			}
			err = m.Close()
		}
		return err
	}
	if err := try("other", 1, "/data"); err == nil || !strings.Contains(err.Error(), id) || !strings.Contains(err.Error(), "other") {
		t.Fatalf("another cluster: %v", err)
	}
	if err := try(id, 2, "/data"); err == nil || !strings.Contains(err.Error(), "node.id") {
		t.Fatalf("another node: %v", err)
	}
	if err := try(id, 1, "/data", "/data/"); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Fatalf("a directory twice: %v", err)
	}
	// A failed start leaves no lock behind, and the right one works. A new directory joins.
	if err := try("", 1, "/data", "/data2"); err != nil {
		t.Fatal(err)
	}
	ro := vfs.Inject(e.mem, func(op vfs.Op, path string) error {
		if op == vfs.OpOpen || op == vfs.OpLock || op == vfs.OpMkdir {
			return os.ErrPermission
		}
		return nil
	})
	if _, err := OpenManager(ManagerOptions{FS: ro, Dirs: []string{"/new"}, NodeID: 1}, nil); !errors.Is(err, os.ErrPermission) || !strings.Contains(err.Error(), "/new") {
		t.Fatalf("a read-only directory: %v", err)
	}
}

func TestCreateNeverAdoptsAnother(t *testing.T) {
	e := newEnv(t)
	l := e.create()
	e.lead(l, plain(3, "x"), 0, OriginClient)
	if same := e.create(); same != l {
		t.Fatal("the same topic got another log")
	}
	e.reopen()
	if l := e.create(); l.LogEndOffset() != 3 || l.Incarnation() != 7 || l.TopicID() != testID {
		t.Fatalf("end %d, incarnation %d", l.LogEndOffset(), l.Incarnation())
	}
	// Same id, other incarnation (SPEC 10): deleted and made again.
	l2, err := e.m.Create("t", 0, testID, 8, e.cfg)
	if err != nil || l2.LogEndOffset() != 0 || l2.Incarnation() != 8 {
		t.Fatalf("%v %v", l2, err)
	}
	// And after a crash before any checkpoint, the new log inherits nothing of the old one.
	l2.SetHighWatermark(0)
	e.lead(l2, plain(1, "y"), 0, OriginClient)
	e.mem, e.m = e.mem.Clone(), nil
	e.fs = e.mem
	e.open()
	l2 = e.m.Get("t", 0)
	if l2 == nil || l2.LogEndOffset() != 1 || l2.LogStartOffset() != 0 || l2.Incarnation() != 8 {
		t.Fatalf("%+v", l2)
	}
	if got := readAll(t, l2, 0, noOffset); len(got) == 0 {
		t.Fatal("nothing to read")
	}
}

func TestCheckpointsOfADeletedLogAreForgotten(t *testing.T) {
	e := newEnv(t)
	l := e.create()
	e.lead(l, plain(50, "x"), 0, OriginClient)
	if err := l.IncrementLogStartOffset(40); err != nil {
		t.Fatal(err)
	}
	l.SetHighWatermark(50)
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	e.m.Checkpoint()
	if err := e.m.Delete("t", 0); err != nil {
		t.Fatal(err)
	}
	if e.m.Get("t", 0) != nil || len(e.m.Logs()) != 0 {
		t.Fatal("still there")
	}
	if _, err := l.AppendAsFollower(at(50, 0, 1)); !errors.Is(err, ErrClosed) {
		t.Fatalf("an append to a deleted log: %v", err)
	}
	if _, err := l.Read(40, 1, noOffset, true); !errors.Is(err, ErrClosed) {
		t.Fatalf("a read of a deleted log: %v", err)
	}
	l, err := e.m.Create("t", 0, testID, 9, e.cfg)
	if err != nil {
		t.Fatal(err)
	}
	e.lead(l, plain(3, "y"), 0, OriginClient)
	e.mem = e.mem.Clone()
	e.fs, e.m = e.mem, nil
	e.open()
	l = e.m.Get("t", 0)
	if l.LogStartOffset() != 0 || l.LogEndOffset() != 3 || l.Recovered().ScannedBytes == 0 {
		t.Fatalf("start %d, end %d, %+v", l.LogStartOffset(), l.LogEndOffset(), l.Recovered())
	}
}

func TestDeletedDirectoryIsRemovedLater(t *testing.T) {
	e := newEnv(t)
	e.cfg.FileDeleteDelayMs = 5000
	l := e.create()
	e.lead(l, plain(3, "x"), 0, OriginClient)
	s, err := l.Read(0, 1000, noOffset, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.m.Delete("t", 0); err != nil {
		t.Fatal(err)
	}
	dirs := func() (names []string) {
		es, err := e.fs.ReadDir("/data")
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range es {
			if x.IsDir() {
				names = append(names, x.Name())
			}
		}
		return names
	}
	if d := dirs(); len(d) != 1 || !strings.HasPrefix(d[0], "t-0.") || !strings.HasSuffix(d[0], "-delete") {
		t.Fatalf("%v", d)
	}
	e.clock.Advance(4 * time.Second)
	e.m.RemoveDue()
	if len(dirs()) != 1 {
		t.Fatal("removed too early")
	}
	e.clock.Advance(time.Second)
	e.m.RemoveDue()
	if d := dirs(); len(d) != 0 {
		t.Fatalf("%v", d)
	}
	p := make([]byte, s.Len())
	if n, err := s.ReadAt(p, 0); n != len(p) || err != nil {
		t.Fatalf("a reader in flight: %d, %v", n, err)
	}
	s.Release()
}

func TestLongTopicNames(t *testing.T) {
	name := strings.Repeat("n", 249)
	if d := deletedDirName(topicPartition{name, 123456}); len(d) > 255 || !strings.HasSuffix(d, "-delete") {
		t.Fatalf("%d %s", len(d), d)
	}
	for dir, want := range map[string]string{"a-b-3": "a-b/3", "x-0": "x/0", "x": "", "x-": "", "-1": "", "x--1": "x-/1", "x-01": "", "x-99999999999": "", "t-0.abc-delete": ""} {
		tp, err := parsePartitionDir(dir)
		got := ""
		if err == nil {
			got = tp.topic + "/" + tp.String()[len(tp.topic)+1:]
		}
		if got != want {
			t.Errorf("%s: %q, want %q", dir, got, want)
		}
	}
}

func TestRetention(t *testing.T) {
	setup := func(cfg func(*Config)) (*env, *Log) {
		e := newEnv(t)
		e.cfg.SegmentBytes = 200
		cfg(&e.cfg)
		l := e.create()
		for range 10 {
			h := hdr()
			h.Timestamp = e.clock.Now().UnixMilli()
			e.lead(l, plainAt(h, 2), 0, OriginClient)
			e.clock.Advance(time.Minute)
		}
		l.SetHighWatermark(l.LogEndOffset())
		return e, l
	}
	e, l := setup(func(c *Config) { c.RetentionMs = 5*60000 + 1 })
	l.SetRetentionEnabled(false)
	e.m.ApplyRetention()
	if l.LogStartOffset() != 0 {
		t.Fatal("deleted although retention is off (a mirror)")
	}
	l.SetRetentionEnabled(true)
	e.m.ApplyRetention()
	start := l.LogStartOffset()
	if start == 0 || start > 10 || l.segs[0].base != start {
		t.Fatalf("log start %d", start)
	}
	// What was deleted is gone from the directory, but only after the delay.
	ls := mustList(t, e.fs, l.Dir())
	if ls.segments[0] != start || len(ls.orphans) == 0 {
		t.Fatalf("%+v", ls)
	}
	if l = e.reopen(); l.LogStartOffset() != start {
		t.Fatalf("log start %d after a restart", l.LogStartOffset())
	}
	// All of it.
	l.SetHighWatermark(l.LogEndOffset())
	e.clock.Advance(time.Hour)
	e.m.ApplyRetention()
	if l.LogStartOffset() != 20 || l.LogEndOffset() != 20 || l.Size() != 0 {
		t.Fatalf("%d..%d, %d bytes", l.LogStartOffset(), l.LogEndOffset(), l.Size())
	}
	e.lead(l, plain(1, "on"), 0, OriginClient)

	e, l = setup(func(c *Config) { c.RetentionMs = -1; c.RetentionBytes = 300 })
	size := l.Size()
	l.SetHighWatermark(l.LogEndOffset())
	e.m.ApplyRetention()
	if l.Size() >= size || l.Size() < 300 {
		t.Fatalf("%d bytes", l.Size())
	}
	e, l = setup(func(c *Config) { c.RetentionMs = 1; c.CleanupPolicy = "compact" })
	e.m.ApplyRetention()
	if l.LogStartOffset() != 0 {
		t.Fatal("a compacted topic was deleted from")
	}
	e, l = setup(func(c *Config) { c.RetentionMs = 1 })
	l.SetHighWatermark(5)
	e.clock.Advance(time.Hour)
	e.m.ApplyRetention()
	if l.LogStartOffset() > 5 {
		t.Fatalf("deleted above the high watermark: %d", l.LogStartOffset())
	}
}

func TestLogStartInsideABatch(t *testing.T) {
	e := newEnv(t)
	l := e.create()
	if err := l.TruncateFullyAndStartAt(105); err != nil {
		t.Fatal(err)
	}
	if _, err := l.AppendAsFollower(at(90, 1, 10)); !errors.Is(err, ErrOffsetOrder) {
		t.Fatalf("a batch that ends below the log start: %v", err)
	}
	e.follow(l, at(100, 1, 10), at(110, 1, 2))
	if l.LogStartOffset() != 105 || l.LogEndOffset() != 112 {
		t.Fatalf("%d..%d", l.LogStartOffset(), l.LogEndOffset())
	}
	if _, err := l.AppendAsFollower(at(111, 1, 2)); !errors.Is(err, ErrOffsetOrder) {
		t.Fatalf("only the first batch may begin below: %v", err)
	}
	check := func(l *Log) {
		t.Helper()
		if l.LogStartOffset() != 105 || l.LogEndOffset() != 112 || len(readAll(t, l, 105, noOffset)) == 0 {
			t.Fatalf("%d..%d", l.LogStartOffset(), l.LogEndOffset())
		}
		if es := l.EpochEntries(); !slices.Equal(es, []EpochEntry{{1, 105}}) && !slices.Equal(es, []EpochEntry{{1, 100}}) {
			t.Fatalf("epochs %v", es)
		}
	}
	check(e.reopen())
	e.m.Checkpoint()
	check(e.crash(e.mem.Clone()))
}

func TestWideGap(t *testing.T) {
	e := newEnv(t)
	l := e.create()
	e.follow(l, at(0, 1, 1), at(5_000_000_000, 1, 1), at(5_000_000_001, 2, 1), at(99_000_000_000, 2, 3))
	want := readAll(t, l, 0, noOffset)
	check := func(l *Log) {
		t.Helper()
		if got := readAll(t, l, 0, noOffset); string(got) != string(want) || l.LogEndOffset() != 99_000_000_003 {
			t.Fatalf("%d bytes, end %d", len(got), l.LogEndOffset())
		}
	}
	check(e.reopen())
	l = e.crash(e.mem.Clone())
	check(l)
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	check(e.crash(e.mem.CrashClone(nil)))
}

// TestFilesAreKafkas names every file of a partition and a log directory.
func TestFilesAreKafkas(t *testing.T) {
	dir := t.TempDir()
	e := newEnv(t)
	m, err := OpenManager(ManagerOptions{Dirs: []string{dir}, NodeID: 3, Clock: e.clock}, func(string) Config { return e.cfg })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenManager(ManagerOptions{Dirs: []string{dir}, NodeID: 3}, nil); !errors.Is(err, vfs.ErrLocked) {
		t.Fatalf("a second manager: %v", err)
	}
	l, err := m.Create("orders", 2, testID, 41, e.cfg)
	if err != nil {
		t.Fatal(err)
	}
	e.lead(l, txn(1, 0, 0, 2), 5, OriginClient)
	e.lead(l, endTxn(1, 0, false, 0), 5, OriginCoordinator)
	if s, err := l.Read(0, 10, noOffset, true); err != nil || s.File().OSFile() == nil {
		t.Fatalf("no file for sendfile: %v", err)
	} else {
		s.Release()
	}
	if d := m.DirSizes(); len(d) != 1 || d[0].Total <= 0 || d[0].Usable <= 0 || len(d[0].Partitions) != 1 || d[0].Partitions[0].Size != l.Size() {
		t.Fatalf("%+v", d)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		".kafka_cleanshutdown":                    `{"version":0,"brokerEpoch":-1}`,
		".lock":                                   "",
		"log-start-offset-checkpoint":             "0\n0\n",
		"meta.properties":                         "*",
		"orders-2/00000000000000000000.index":     "",
		"orders-2/00000000000000000000.log":       "*",
		"orders-2/00000000000000000000.timeindex": "*",
		"orders-2/00000000000000000000.txnindex":  "*",
		"orders-2/00000000000000000003.snapshot":  "*",
		"orders-2/leader-epoch-checkpoint":        "0\n1\n5 0\n",
		"orders-2/partition.metadata":             "version: 0\ntopic_id: AQIDAAAAAAAAAAAAAAAAAA",
		"orders-2/stet.incarnation":               string(sealText([]byte("version: 1\nincarnation: 41\ntopic_id: AQIDAAAAAAAAAAAAAAAAAA\n"))),
		"recovery-point-offset-checkpoint":        "0\n1\norders 2 3\n",
		"replication-offset-checkpoint":           "0\n1\norders 2 0\n",
		"stet-partitions":                         string(sealText(fmt.Appendf(nil, "1\n1\norders 2 41 %q\n", dir))),
	}
	err = filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		w, ok := want[rel]
		if !ok {
			t.Errorf("unexpected file %s", rel)
			return nil
		}
		delete(want, rel)
		if b, err := os.ReadFile(p); err != nil || (w != "*" && string(b) != w) {
			t.Errorf("%s: %q, %v", rel, b, err)
		}
		return nil
	})
	if err != nil || len(want) != 0 {
		t.Fatalf("missing: %v, %v", want, err)
	}
}

// TestRun drives the periodic work with a fake clock.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t)
		e.cfg.SegmentBytes, e.cfg.FlushMs = 200, 3000
		l := e.create()
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { e.m.Run(ctx); close(done) }()
		defer func() { cancel(); <-done }()
		for range 4 {
			e.lead(l, plain(2, "x"), 0, OriginClient)
		}
		l.SetHighWatermark(6)
		synctest.Wait()
		if rp := l.RecoveryPoint(); rp == 0 || rp != l.active().base {
			t.Fatalf("recovery point %d after a roll", rp)
		}
		e.clock.Advance(4 * time.Second)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if rp := l.RecoveryPoint(); rp != 8 {
			t.Fatalf("recovery point %d after flush.ms", rp)
		}
		time.Sleep(70 * time.Second)
		synctest.Wait()
		for name, want := range map[string]string{recoveryPointFile: "0\n1\nt 0 8\n", highWatermarkFile: "0\n1\nt 0 6\n"} {
			if p, err := readFile(e.fs, "/data/"+name); err != nil || string(p) != want {
				t.Errorf("%s: %q, %v", name, p, err)
			}
		}
	})
}
