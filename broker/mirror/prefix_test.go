package mirror

import (
	"testing"

	"pgregory.net/rapid"
)

// history is a log as a list of batches with an epoch each; its identity lies in (offset, epoch).
type history struct {
	start  int64
	epochs []int32 // per offset from 0, ascending
}

func (h history) end() int64 { return int64(len(h.epochs)) }

func (h history) entries() (out []EpochStart) {
	for o := h.start; o < h.end(); o++ {
		if n := len(out); n == 0 || out[n-1].Epoch != h.epochs[o] {
			out = append(out, EpochStart{h.epochs[o], o})
		}
	}
	return out
}

// answer is OffsetForLeaderEpoch of Kafka: an expired epoch ends at the log start, an unknown one above all is (-1, -1).
func (h history) answer(current int32) func(int32) (epochAnswer, error) {
	return func(asked int32) (epochAnswer, error) {
		es := h.entries()
		switch {
		case asked > current || len(es) == 0:
			return epochAnswer{-1, -1}, nil
		case asked == current:
			return epochAnswer{asked, h.end()}, nil
		case asked < es[0].Epoch:
			return epochAnswer{asked, es[0].Start}, nil
		}
		i := len(es) - 1
		for es[i].Epoch > asked {
			i--
		}
		return epochAnswer{es[i].Epoch, localEnd(es, i, h.end())}, nil
	}
}

// common is the length of the true common prefix.
func (h history) common(o history) int64 {
	n := int64(0)
	for n < h.end() && n < o.end() && h.epochs[n] == o.epochs[n] {
		n++
	}
	return n
}

func TestWalkFindsTheCommonPrefix(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Both logs share a history; then each goes on with epochs of its own, which never collide.
		shared := rapid.IntRange(0, 12).Draw(t, "shared")
		var a, b history
		epoch := int32(0)
		for range shared {
			epoch += rapid.Int32Range(0, 2).Draw(t, "step")
			a.epochs, b.epochs = append(a.epochs, epoch), append(b.epochs, epoch)
		}
		grow := func(h *history, n int, parity int32, who string) {
			e := epoch + 1
			for range n {
				e += rapid.Int32Range(0, 3).Draw(t, who)
				if e%2 != parity {
					e++
				}
				h.epochs = append(h.epochs, e)
			}
		}
		grow(&a, rapid.IntRange(0, 8).Draw(t, "a"), 0, "a")
		grow(&b, rapid.IntRange(0, 8).Draw(t, "b"), 1, "b")
		// retention at the source
		b.start = rapid.Int64Range(0, b.end()).Draw(t, "start")
		current := epoch + 1
		if n := len(b.epochs); n > 0 {
			current = max(current, b.epochs[n-1])
		}
		p, err := walk(a.entries(), a.start, a.end(), b.answer(current))
		if err != nil {
			t.Fatal(err)
		}
		want := a.common(b)
		if b.start == b.end() && p.agreed < 0 {
			return // an empty source proves nothing
		}
		switch {
		case p.cut == want:
		case p.cut < want && p.cut == 0 && want <= b.start:
			// The source has nothing left of what was shared.
		case p.cut > want && p.cut <= b.start:
			// Below the source's log start it cannot tell; the gap is found by the fetch.
		default:
			t.Fatalf("cut %d, common %d; local %v, source %v from %d", p.cut, want, a.epochs, b.epochs, b.start)
		}
	})
}

func TestWalkExamples(t *testing.T) {
	for _, tc := range []struct {
		name    string
		entries []EpochStart
		end     int64
		answers map[int32]epochAnswer
		want    prefix
	}{
		{"equal", []EpochStart{{0, 0}, {3, 10}}, 20, map[int32]epochAnswer{3: {3, 20}}, prefix{20, 3, 20}},
		{"source is ahead", []EpochStart{{3, 0}}, 20, map[int32]epochAnswer{3: {3, 50}}, prefix{20, 3, 50}},
		{"C07", []EpochStart{{5, 0}}, 100, map[int32]epochAnswer{5: {5, 80}}, prefix{80, 5, 80}},
		{"C75", []EpochStart{{0, 0}, {1, 1990}}, 1995, map[int32]epochAnswer{1: {0, 2000}}, prefix{1990, 0, 2000}},
		{"unknown epochs", []EpochStart{{5, 0}, {70000, 100}}, 120, map[int32]epochAnswer{70000: {-1, -1}, 5: {5, 130}}, prefix{100, 5, 130}},
		{"nothing in common", []EpochStart{{8, 0}, {9, 5}}, 10, map[int32]epochAnswer{9: {-1, -1}, 8: {-1, -1}}, prefix{0, -1, -1}},
		{"lower epoch that we do not have", []EpochStart{{2, 0}, {6, 5}}, 10, map[int32]epochAnswer{6: {4, 8}, 2: {2, 5}}, prefix{5, 2, 5}},
		{"no epochs", nil, 0, nil, prefix{0, -1, -1}},
	} {
		got, err := walk(tc.entries, 0, tc.end, func(e int32) (epochAnswer, error) {
			a, ok := tc.answers[e]
			if !ok {
				t.Errorf("%s: asked for epoch %d", tc.name, e)
			}
			return a, nil
		})
		if err != nil || got != tc.want {
			t.Errorf("%s: %+v %v, want %+v", tc.name, got, err, tc.want)
		}
	}
	if _, err := walk([]EpochStart{{1, 0}}, 0, 5, func(int32) (epochAnswer, error) { return epochAnswer{7, 9}, nil }); err == nil {
		t.Error("an epoch above the one asked for was accepted")
	}
}

func TestDivergenceCut(t *testing.T) {
	es := []EpochStart{{0, 0}, {1, 1990}}
	for _, tc := range []struct {
		a    epochAnswer
		want int64
	}{{epochAnswer{0, 2000}, 1990}, {epochAnswer{0, 100}, 100}, {epochAnswer{1, 1992}, 1992}, {epochAnswer{1, 5000}, 1995}} {
		if got := divergenceCut(es, 1995, tc.a); got != tc.want {
			t.Errorf("%+v: %d, want %d", tc.a, got, tc.want)
		}
	}
}

func TestPairs(t *testing.T) {
	es := []EpochStart{{5, 0}, {70000, 100}, {70003, 110}}
	if got := (pair{5, 100}).bound(es, 120); got != 100 {
		t.Errorf("rehearsal is cut at %d", got)
	}
	if got := (pair{5, -1}).bound(es, 120); got != 100 {
		t.Errorf("a pair without LMO cuts at %d", got)
	}
	if got := (pair{-1, 0}).bound(es, 120); got != 0 {
		t.Errorf("nothing was ever copied: cut at %d", got)
	}
	// C80: the walk agrees above the pair.
	if got := localWritesCut(pair{5, 100}, prefix{118, 70003, 118}, es, 120, 0); got != 118 {
		t.Errorf("an obsolete pair cuts at %d", got)
	}
	// but an expired epoch proves nothing
	if got := localWritesCut(pair{5, 100}, prefix{118, 70003, 118}, es, 120, 118); got != 100 {
		t.Errorf("an expired epoch made the pair obsolete: %d", got)
	}
	if p := (pair{5, 100}).lowered(4, 80); p != (pair{4, 80}) {
		t.Errorf("lowered to %+v", p)
	}
	if p := (pair{5, 100}).lowered(7, 100); p != (pair{5, 100}) {
		t.Errorf("lowered to %+v", p)
	}
	if noPair.exists() || !(pair{-1, 0}).exists() || !(pair{6, 0}).greater(pair{5, 900}) || (pair{5, 1}).greater(pair{5, 1}) {
		t.Error("existence or order")
	}
}
