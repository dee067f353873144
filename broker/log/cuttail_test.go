package log

import (
	"slices"
	"strings"
	"testing"

	"stet/internal/vfs"
	"stet/zerocopy/batch"
)

// stopped is a cleanly stopped log of one segment with epochs and transactions.
func stopped(t testing.TB, n int) (e *env, stored []batch.Batch) {
	e = newEnv(t)
	e.cfg.IndexIntervalBytes = 150
	l := e.create()
	for i := range n {
		h := hdr()
		h.BaseOffset, h.PartitionLeaderEpoch = l.LogEndOffset(), int32(i/10)
		h.Timestamp += int64(i)
		h.ProducerID, h.ProducerEpoch, h.BaseSequence = 1, 0, int32(2*i)
		b := batch.Batch(batch.Build(nil, h, kvs(2, "rot")...))
		e.follow(l, b)
		stored = append(stored, b)
	}
	l.SetHighWatermark(l.LogEndOffset())
	if err := e.m.Close(); err != nil {
		t.Fatal(err)
	}
	return e, stored
}

// TestCutAtTheLastDamageOnly: a cleanly stopped log with a corrupt batch inside and a corrupt end loses the end, and what of that
// is not there anyway. The event says what was cut and why; at the start after that nothing more is cut, and the log goes on.
func TestCutAtTheLastDamageOnly(t *testing.T) {
	const n = 100
	for _, inside := range []int{3, 9, 70, -1} { // base offset, length, records; none
		for what, hit := range map[string]func(mem *vfs.Mem, stored []batch.Batch){
			"length":       func(mem *vfs.Mem, stored []batch.Batch) { flipIn(t, mem, stored, 2*n-1, 9) },
			"offset delta": func(mem *vfs.Mem, stored []batch.Batch) { flipIn(t, mem, stored, 2*n-1, 26) },
			"base offset":  func(mem *vfs.Mem, stored []batch.Batch) { flipIn(t, mem, stored, 2*n-1, 5) },
			"magic":        func(mem *vfs.Mem, stored []batch.Batch) { flipIn(t, mem, stored, 2*n-1, 16) },
			"two": func(mem *vfs.Mem, stored []batch.Batch) {
				flipIn(t, mem, stored, 2*n-3, 70)
				flipIn(t, mem, stored, 2*n-1, 9)
			},
		} {
			from, stored := stopped(t, n)
			mem := from.mem
			if inside >= 0 {
				flipIn(t, mem, stored, 24, inside)
			}
			hit(mem, stored)
			e, l := openClone(t, from, mem)
			want := int64(2*n - 2)
			if what == "two" {
				want -= 2
			}
			logs := e.logs.String()
			if err := l.Err(); err != nil || l.LogEndOffset() != want || l.Recovered().CutFrom != want {
				t.Fatalf("%d, %s: the log ends at %d, not %d: %v; %s", inside, what, l.LogEndOffset(), want, err, logs)
			}
			if strings.Count(logs, "corrupt end of the log is cut off") != 1 || strings.Contains(logs, "crash") || strings.Contains(logs, "epochs are rebuilt") {
				t.Errorf("%d, %s: %s", inside, what, logs)
			}
			l.SetHighWatermark(l.LogEndOffset())
			kept := slices.Clone(stored[:want/2])
			missing, _, err := serve(l, kept, 300, true)
			if err != nil || inside >= 0 && !slices.Equal(missing, []int64{24, 25}) || inside < 0 && len(missing) > 0 {
				t.Errorf("%d, %s: %v is missing: %v", inside, what, missing, err)
			}
			if ps := l.ActiveProducers(); len(ps) != 1 || ps[0].LastSequence != int32(want)-1 {
				t.Errorf("%d, %s: producers %+v", inside, what, ps)
			}
			e.logs.Reset()
			for range 3 {
				kept = append(kept, batch.Batch(at(l.LogEndOffset(), 99, 2)))
				e.follow(l, kept[len(kept)-1])
			}
			l.SetHighWatermark(l.LogEndOffset())
			l = e.reopen()
			missing, _, err = serve(l, kept, 300, true)
			if err != nil || inside >= 0 && !slices.Equal(missing, []int64{24, 25}) || inside < 0 && len(missing) > 0 || l.LogEndOffset() != want+6 {
				t.Errorf("%d, %s: after a restart up to %d, %v is missing: %v", inside, what, l.LogEndOffset(), missing, err)
			}
			if logs := e.logs.String(); strings.Contains(logs, "cut") {
				t.Errorf("%d, %s: after a restart: %s", inside, what, logs)
			}
		}
	}
}

// TestAllCorruptAtTheEnd: of the active segment nothing is right. It is begun anew.
func TestAllCorruptAtTheEnd(t *testing.T) {
	from, stored := rotImage(t, 40)
	names := logFiles(t, from.mem)
	name := names[len(names)-1]
	p, err := readFile(from.mem, name)
	if err != nil {
		t.Fatal(err)
	}
	clear(p)
	rewrite(t, from.mem, name, p)
	e, l := openClone(t, from, from.mem)
	base := l.active().base
	if l.Err() != nil || l.LogEndOffset() != base || base == 0 || !strings.Contains(e.logs.String(), "corrupt end of the log is cut off") {
		t.Fatalf("%d to %d: %v; %s", base, l.LogEndOffset(), l.Err(), e.logs.String())
	}
	i := slices.IndexFunc(stored, func(b batch.Batch) bool { return b.BaseOffset() >= base })
	for _, b := range stored[i:] {
		e.follow(l, b)
	}
	l.SetHighWatermark(l.LogEndOffset())
	l = e.reopen()
	if missing, _, err := serve(l, stored, 300, true); err != nil || len(missing) > 0 {
		t.Error(missing, err)
	}
}
