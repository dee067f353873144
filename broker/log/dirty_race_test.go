package log

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"stet/internal/vfs"
)

// lineOf is the partition's line in a checkpoint file of /data.
func (e *env) lineOf(file, topic string) (int64, bool) {
	e.t.Helper()
	p, err := readFile(e.fs, filepath.Join("/data", file))
	if isNotExist(err) {
		return 0, false
	}
	if err != nil {
		e.t.Fatal(err)
	}
	m, err := decodeOffsets(p)
	if err != nil {
		e.t.Fatal(err)
	}
	o, ok := m[topicPartition{topic, 0}]
	return o, ok
}

// TestCheckpointBesideADelete: a partition that is deleted, or deleted and made again, while a checkpoint goes over the logs
// leaves none of its offsets behind: with them a crash would trust bytes of the new one that nobody synced.
func TestCheckpointBesideADelete(t *testing.T) {
	for _, again := range []bool{false, true} {
		e := newEnv(t)
		l := e.create()
		e.lead(l, plain(9, "old"), 1, OriginClient)
		l.SetHighWatermark(9)
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
		logs := e.m.all() // as Checkpoint has them
		if err := e.m.Delete("t", 0); err != nil {
			t.Fatal(err)
		}
		if again {
			n, err := e.m.Create("t", 0, testID, 8, e.cfg)
			if err != nil {
				t.Fatal(err)
			}
			e.lead(n, plain(3, "new"), 1, OriginClient)
			e.m.checkpointWatermarks()
		}
		if err := e.m.dirs[0].checkpointOffsets(logs, false); err != nil {
			t.Fatal(err)
		}
		e.m.checkpointWatermarks()
		if o, ok := e.lineOf(recoveryPointFile, "t"); o != 0 {
			t.Errorf("made again %t: recovery point %d, %t", again, o, ok)
		}
		if o, ok := e.lineOf(highWatermarkFile, "t"); o != 0 || ok != again {
			t.Errorf("made again %t: high watermark %d, %t", again, o, ok)
		}
	}
}

// TestDeleteThatFails: the partition is not here any more, although its directory could not be renamed, and one that is made
// again is not made in that directory, with the records of the old one.
func TestDeleteThatFails(t *testing.T) {
	e := newEnv(t)
	fails := true
	e.fs = vfs.Inject(e.mem, func(op vfs.Op, name string) error {
		if fails && op == vfs.OpRename && strings.HasSuffix(name, "/t-0") {
			return errors.New("no")
		}
		return nil
	})
	l := e.create()
	e.lead(l, plain(9, "x"), 1, OriginClient)
	l.SetHighWatermark(9)
	e.m.checkpointWatermarks()
	if _, ok := e.lineOf(highWatermarkFile, "t"); !ok {
		t.Fatal("no line")
	}
	if err := e.m.Delete("t", 0); err == nil {
		t.Fatal("deleted")
	}
	e.m.checkpointWatermarks()
	if o, ok := e.lineOf(highWatermarkFile, "t"); ok {
		t.Errorf("high watermark %d of a partition that is not here", o)
	}
	if l, err := e.m.Create("t", 0, testID, 8, e.cfg); err == nil {
		t.Fatalf("made again over the old one, up to offset %d", l.LogEndOffset())
	} else if !errors.Is(err, ErrStorage) {
		t.Error(err)
	}
	fails = false
	l, err := e.m.Create("t", 0, testID, 8, e.cfg)
	if err != nil || l.Err() != nil || l.LogEndOffset() != 0 {
		t.Fatalf("%v, %v, log end %d", err, l.Err(), l.LogEndOffset())
	}
	e.mem = e.mem.Clone() // killed
	e.fs = e.mem
	if l := e.open().Get("t", 0); l == nil || l.Err() != nil || l.Incarnation() != 8 || l.LogEndOffset() != 0 {
		t.Error("after a restart it is not the new one")
	}
}

// TestDeleteWhileTheListIsWritten: a partition that settles and is deleted while the list is written is not in the next list.
func TestDeleteWhileTheListIsWritten(t *testing.T) {
	e := newEnv(t)
	during := func() {}
	e.fs = vfs.Inject(e.mem, func(op vfs.Op, name string) error {
		if op == vfs.OpRename && strings.Contains(name, settledFile) {
			f := during
			during = func() {}
			f()
		}
		return nil
	})
	l := e.create()
	e.m.ImageApplied()
	e.m.checkpointWatermarks()
	e.lead(l, plain(3, "x"), 1, OriginClient)
	e.m.settleNew(t.Context())
	during = func() {
		if err := e.m.Delete("t", 0); err != nil {
			t.Error(err)
		}
	}
	e.m.checkpointWatermarks()
	e.m.checkpointWatermarks()
	p, err := readFile(e.fs, e.m.settledPath())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := decodeSettled(p); err != nil || len(got) != 0 || len(e.m.settled) != 0 {
		t.Errorf("the list has %v (%v), the manager %v", got, err, e.m.settled)
	}
}
