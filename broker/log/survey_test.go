package log

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"stet/internal/vfs"
	"stet/zerocopy/batch"
)

// fakes are headers that may be those of a batch behind an offset, one after the other, of which none is right.
func fakes(base int64, n int) (out []byte) {
	for len(out) < n {
		h := hdr()
		h.BaseOffset = base
		b := batch.Batch(batch.Build(nil, h))
		out = append(out, b...)
		out[len(out)-1]++
	}
	return out[:n]
}

// TestSurveyIsLinear: whatever lies where a batch was, a survey reads the segment once and a bounded part again, and what lies before
// and behind is served.
func TestSurveyIsLinear(t *testing.T) {
	from, stored := bigRot(t, 2<<20, 5000)
	name := logFiles(t, from.mem)[0]
	good, err := readFile(from.mem, name)
	if err != nil {
		t.Fatal(err)
	}
	a, b := len(good)/4, len(good)*3/4
	for what, fill := range map[string][]byte{
		"zeros": make([]byte, b-a), "twos": bytes.Repeat([]byte{2}, b-a), "ones": bytes.Repeat([]byte{0xff}, b-a),
		"headers": fakes(stored[len(stored)/3].BaseOffset(), b-a),
	} {
		mem := from.mem.Clone()
		rewrite(t, mem, name, bytes.Join([][]byte{good[:a], fill, good[b:]}, nil))
		counted := &countingFS{Mem: mem}
		e := newEnv(t)
		e.cfg, e.clock, e.mem, e.fs = from.cfg, from.clock, mem, counted
		e.open()
		l := e.m.Get("t", 0)
		counted.bytes = 0
		s := l.segs[0]
		if err := s.survey(s.size); err != nil {
			t.Fatal(err)
		}
		if most := 3*s.size + 64<<20; counted.bytes > most || what != "headers" && counted.bytes > 2*s.size {
			t.Errorf("%s: %d bytes read of a segment of %d", what, counted.bytes, s.size)
		}
		missing, bad, err := serve(l, stored, 64<<10, false)
		if err != nil || len(bad) != 1 || len(missing) == 0 || len(missing) > len(stored)*5000*2/3 {
			t.Errorf("%s: %d offsets are missing, %d ranges: %v", what, len(missing), len(bad), err)
		}
	}
}

// TestSearchAllocatesNothing: every byte of what is lost is looked at, also where each looks like a magic.
func TestSearchAllocatesNothing(t *testing.T) {
	v := &verifier{s: &segment{check: &checked{oldEnd: 1000}}, limit: 1 << 30}
	p := bytes.Repeat([]byte{2}, 64<<10)
	if n := testing.AllocsPerRun(10, func() {
		if i := v.candidate(p, 0); i != len(p)-batch.HeaderSize+1 {
			t.Fatal(i)
		}
	}); n != 0 {
		t.Error(n)
	}
	h := hdr()
	h.BaseOffset = 7
	one := batch.Build(nil, h, kvs(1, "x")...)
	for at := range 300 {
		q := append(bytes.Repeat([]byte{2}, at), one...)
		if i := v.candidate(q, 0); i != at {
			t.Errorf("%d instead of %d", i, at)
		}
	}
}

// TestManyCorruptBatches: a bad segment does not fill the log of events; all are counted, and its index is read once.
func TestManyCorruptBatches(t *testing.T) {
	e := newEnv(t)
	e.cfg.IndexIntervalBytes = 150
	l := e.create()
	var stored []batch.Batch
	for range 200 {
		stored = append(stored, batch.Batch(at(l.LogEndOffset(), 0, 2)))
		e.follow(l, stored[len(stored)-1])
	}
	l.SetHighWatermark(l.LogEndOffset())
	roll(t, l)
	if err := e.m.Close(); err != nil {
		t.Fatal(err)
	}
	for i := 1; i < len(stored); i += 2 {
		flipIn(t, e.mem, stored, stored[i].BaseOffset(), []int{9, 70}[i/2%2]) // lengths and records
	}
	opens := 0
	from := e
	e = newEnv(t)
	e.cfg, e.clock, e.mem = from.cfg, from.clock, from.mem
	e.fs = vfs.Inject(e.mem, func(op vfs.Op, name string) error {
		if op == vfs.OpOpen && strings.HasSuffix(name, "0"+indexSuffix) {
			opens++
		}
		return nil
	})
	e.open()
	l = e.m.Get("t", 0)
	opens = 0
	if err := l.segs[0].survey(l.segs[0].size); err != nil {
		t.Fatal(err)
	}
	if opens != 1 {
		t.Errorf("the index was opened %d times", opens)
	}
	logs := e.logs.String()
	if n := strings.Count(logs, `"corrupt batch is not served"`); n != namedCorrupt || e.m.CorruptBatches() != 100 {
		t.Errorf("%d events, %d counted", n, e.m.CorruptBatches())
	}
	if !strings.Contains(logs, fmt.Sprintf("count=%d", 100-namedCorrupt)) || !strings.Contains(logs, fmt.Sprintf("offset=%d next=400", stored[2*namedCorrupt+1].BaseOffset())) {
		t.Error(logs)
	}
	missing, bad, err := serve(l, stored, 300, false)
	if err != nil || len(missing) != 200 || len(bad) != 100 {
		t.Error(len(missing), len(bad), err)
	}
}

// BenchmarkSurveyTwos surveys 1 MiB of which every byte looks like a magic.
func BenchmarkSurveyTwos(b *testing.B) {
	v := &verifier{s: &segment{check: &checked{oldEnd: 1000}}, limit: 1 << 30}
	p := bytes.Repeat([]byte{2}, 1<<20)
	b.SetBytes(int64(len(p)))
	for b.Loop() {
		v.candidate(p, 0)
	}
}
