package log

import (
	"maps"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
)

// TestNothingIsOverlooked: partitions change, go and come in three directories while all periodic work runs beside that. Once
// they rest, two rounds of it find everything: watermarks, epochs, identities, the list of partitions, flush.ms.
func TestNothingIsOverlooked(t *testing.T) {
	dirs := []string{"/a", "/b", "/c"}
	for seed := range uint64(5) {
		e := newEnv(t)
		e.cfg.FlushMs = 1
		m, err := OpenManager(ManagerOptions{FS: e.fs, Dirs: dirs, NodeID: 1, Clock: e.clock, MaxOpenFiles: 64}, func(string) Config { return e.cfg })
		if err != nil {
			t.Fatal(err)
		}
		m.ImageApplied()
		var changes, watchers sync.WaitGroup
		done := make(chan struct{})
		for _, work := range []func(){m.tick, func() { m.settleNew(t.Context()) }, m.checkpointWatermarks, m.Checkpoint} {
			watchers.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
						work()
					}
				}
			})
		}
		for p := range int32(8) {
			changes.Go(func() {
				rnd := rand.New(rand.NewPCG(seed, uint64(p)))
				for i := range 150 {
					l := m.Get("t", p)
					if l == nil {
						if _, err := m.Create("t", p, testID, int64(i), e.cfg); err != nil {
							t.Error(err)
						}
						continue
					}
					var err error
					switch end := l.LogEndOffset(); rnd.IntN(10) {
					case 0:
						err = m.Delete("t", p)
					case 1:
						err = l.Truncate(rnd.Int64N(end + 1))
					case 2:
						err = l.TruncateFullyAndStartAt(end + rnd.Int64N(5))
					case 3:
						l.AdvanceHighWatermark()
					case 4:
						err = l.IncrementLogStartOffset(rnd.Int64N(end + 1))
					default:
						_, err = l.AppendAsLeader(plain(1+rnd.IntN(3), "x"), int32(i), OriginClient)
					}
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		changes.Wait()
		close(done)
		watchers.Wait()
		e.clock.Advance(1e9)
		for range 2 {
			m.tick()
			m.settleNew(t.Context())
			m.checkpointWatermarks()
		}
		m.Checkpoint()
		list := map[topicPartition]settled{}
		marks, points := map[string]map[topicPartition]int64{}, map[string]map[topicPartition]int64{}
		for _, dir := range dirs {
			marks[dir], points[dir] = map[topicPartition]int64{}, map[topicPartition]int64{}
		}
		for _, l := range m.all() {
			dir := filepath.Dir(l.dir)
			marks[dir][l.tp], points[dir][l.tp] = l.HighWatermark(), l.RecoveryPoint()
			if !l.newborn {
				list[l.tp] = settled{l.incarnation, dir}
			}
			if l.RecoveryPoint() != l.LogEndOffset() || l.epochOld || l.newborn && l.Size() > 0 {
				t.Errorf("seed %d: %s: flushed to %d of %d, epochs old %t, newborn %t", seed, l.tp, l.RecoveryPoint(), l.LogEndOffset(), l.epochOld, l.newborn)
			}
		}
		for _, dir := range dirs {
			for file, want := range map[string]map[topicPartition]int64{highWatermarkFile: marks[dir], recoveryPointFile: points[dir]} {
				p, err := readFile(e.fs, filepath.Join(dir, file))
				if err != nil && !(isNotExist(err) && len(want) == 0) {
					t.Fatal(err)
				}
				if got, err := decodeOffsets(p); len(p) > 0 && (err != nil || !maps.Equal(got, want)) {
					t.Errorf("seed %d: %s in %s: %v, the logs say %v (%v)", seed, file, dir, got, want, err)
				}
			}
		}
		p, err := readFile(e.fs, m.settledPath())
		if err != nil {
			t.Fatal(err)
		}
		if got, err := decodeSettled(p); err != nil || !maps.Equal(got, list) {
			t.Errorf("seed %d: the list has %v, the logs say %v (%v)", seed, got, list, err)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
