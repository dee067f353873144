package log

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"stet/internal/vfs"
	"stet/zerocopy/batch"
)

// TestKafkaSwap: what Kafka's cleaner leaves when it is killed, renaming the log before its
// indexes, is taken back or completed; a swap file that is broken costs nothing.
func TestKafkaSwap(t *testing.T) {
	log0, log10, log20 := at(0, 0, 10), at(10, 0, 10), at(20, 0, 5)
	swap := batch.Build(nil, func() batch.Header { h := hdr(); h.BaseOffset = 15; return h }(), kvs(5, "left")...)
	name := func(base int64, suffix string) string { return fmt.Sprintf("/data/t-0/%020d%s", base, suffix) }
	for _, c := range []struct {
		name  string
		files map[string][]byte
		want  []int64 // base offsets of the batches
		fails bool
	}{
		{"indexes still .cleaned", map[string][]byte{name(0, ".log.swap"): swap, name(0, ".index.cleaned"): {}}, []int64{0, 10, 20}, false},
		{"nothing moved aside yet", map[string][]byte{name(0, ".log.swap"): swap, name(0, ".index.swap"): {}}, []int64{15, 20}, false},
		{"cleaned only", map[string][]byte{name(0, ".log.cleaned"): swap[:30], name(0, ".index.cleaned"): {}}, []int64{0, 10, 20}, false},
		{"cleaned at a lower base", map[string][]byte{name(10, ".log.swap"): swap, name(0, ".log.cleaned"): {}}, []int64{0, 10, 20}, false},
		{"broken", map[string][]byte{name(0, ".log.swap"): swap[:len(swap)-1]}, []int64{0, 10, 20}, true},
		{"index left over", map[string][]byte{name(10, ".timeindex.swap"): {}}, []int64{0, 10, 20}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := compactEnv(t)
			l := e.create()
			e.follow(l, log0)
			roll(t, l)
			e.follow(l, log10)
			roll(t, l)
			e.follow(l, log20)
			if err := e.m.Close(); err != nil {
				t.Fatal(err)
			}
			for n, p := range c.files {
				f, err := e.mem.OpenFile(n, os.O_CREATE|os.O_WRONLY, 0o644)
				if err == nil {
					_, err = f.WriteAt(p, 0)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			e.open()
			l = e.m.Get("t", 0)
			if c.fails {
				if err := l.Err(); err == nil || !strings.Contains(err.Error(), ".log.swap: position 0") {
					t.Fatalf("error %v", err)
				}
				if err := e.mem.Remove(name(0, ".log.swap")); err != nil {
					t.Fatal(err)
				}
				_ = e.m.Close()
				e.open()
				l = e.m.Get("t", 0)
			}
			if err := l.Err(); err != nil {
				t.Fatal(err)
			}
			var got []int64
			for p := readAll(t, l, 0, l.LogEndOffset()); len(p) > 0; {
				b, rest, err := batch.Next(p)
				if err != nil {
					t.Fatal(err)
				}
				got, p = append(got, b.BaseOffset()), rest
			}
			if !reflect.DeepEqual(got, c.want) || l.LogEndOffset() != 25 {
				t.Errorf("batches %v to %d, want %v", got, l.LogEndOffset(), c.want)
			}
			entries, err := vfs.FS(e.mem).ReadDir("/data/t-0")
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range entries {
				if strings.HasSuffix(x.Name(), swapSuffix) || strings.HasSuffix(x.Name(), cleanedSuffix) {
					t.Errorf("%s is still there", x.Name())
				}
			}
		})
	}
}
