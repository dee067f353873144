package log

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestRotIsFoundWithoutReader: the check in the background is off at rate 0, then takes its time, goes from the newest segment to the
// oldest, finds the corrupt batch, and ends.
func TestRotIsFoundWithoutReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, stored := rotImage(t, 40)
		mem := from.mem.Clone()
		name, pos := flipIn(t, mem, stored, 30, 70)
		e, l := openClone(t, from, mem)
		var all []*segment
		for _, s := range l.segs {
			if s.suspect.Load() {
				all = append(all, s)
			}
		}
		if got := e.m.suspects(e.m.dirs[0]); len(all) < 3 || len(got) != len(all) {
			t.Fatalf("%d suspects of %d", len(got), len(all))
		}
		left := func() (n int) { return len(e.m.suspects(e.m.dirs[0])) }
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); e.m.Run(ctx) }()
		time.Sleep(time.Hour)
		if left() != len(all) {
			t.Error("checked although it is off")
		}
		e.m.SetCheckRate(rotLeast) // a segment per second
		time.Sleep(time.Second / 2)
		synctest.Wait()
		if n := left(); n != len(all) {
			t.Errorf("%d of %d left after half a second", n, len(all))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := left(); n != len(all)-1 {
			t.Errorf("%d of %d left after a second and a half", n, len(all))
		}
		time.Sleep(time.Duration(len(all)) * time.Second)
		synctest.Wait()
		if left() != 0 {
			t.Errorf("%d are left", left())
		}
		cancel()
		<-done
		logs := e.logs.String()
		if strings.Count(logs, "corrupt batch is not served") != 1 || !strings.Contains(logs, fmt.Sprintf("file=%s position=%d", name, pos)) || e.m.CorruptBatches() != 1 || !strings.Contains(logs, "log directory was checked") {
			t.Error(logs)
		}
		for _, s := range all {
			if n := s.refs.Load(); n != 1 {
				t.Errorf("segment %d has %d references", s.base, n)
			}
		}
		if missing, _, err := serve(l, stored, 300, false); err != nil || len(missing) == 0 {
			t.Error(missing, err)
		}
	})
}

// TestSuspectsNewestFirst: by the time of the file.
func TestSuspectsNewestFirst(t *testing.T) {
	from, _ := rotImage(t, 40)
	e, l := openClone(t, from, from.mem.Clone())
	for i, s := range l.segs {
		s.createdMs = int64(i * i % 5)
	}
	last := int64(5)
	for _, s := range e.m.suspects(e.m.dirs[0]) {
		if s.createdMs > last {
			t.Fatalf("%d after %d", s.createdMs, last)
		}
		last = s.createdMs
	}
}
