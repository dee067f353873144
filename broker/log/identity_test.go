package log

import (
	"bytes"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"stet/internal/invariant"
)

// TestFlippedIdentity: no flipped bit in the files that say whose a directory is makes it another topic's, which would be removed. It is as before,
// or offline with the file; and with the right file everything is there.
func TestFlippedIdentity(t *testing.T) {
	for version, incarnation := range [][]byte{[]byte("version: 0\nincarnation: 7\n"), encodeIncarnation(7, testID)} {
		for name, content := range map[string][]byte{metadataFile: encodeMetadata(testID), incarnationFile: incarnation} {
			if version == 0 && name == incarnationFile {
				continue // had no checksum
			}
			offline := 0
			for bit := 0; bit < 8*len(content); bit++ {
				if invariant.Race && bit%13 != 0 {
					continue
				}
				what := fmt.Sprintf("version %d, %s, bit %d", version, name, bit)
				e := newEnv(t)
				l := e.create()
				dir := l.dir
				e.lead(l, plain(3, "x"), 0, OriginClient)
				l.SetHighWatermark(3)
				if err := e.m.Close(); err != nil {
					t.Fatal(err)
				}
				rewrite(t, e.mem, filepath.Join(dir, incarnationFile), incarnation)
				b := bytes.Clone(content)
				b[bit/8] ^= 1 << (bit % 8)
				rewrite(t, e.mem, filepath.Join(dir, name), b)
				e.open()
				l, err := e.m.Create("t", 0, testID, 7, e.cfg)
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				if err := l.Err(); err != nil {
					offline++
					if !strings.Contains(err.Error(), name) {
						t.Errorf("%s: the error does not name the file: %v", what, err)
					}
					_ = e.m.Close() // says so, too
					rewrite(t, e.mem, filepath.Join(dir, name), content)
					e.open()
					if l, err = e.m.Create("t", 0, testID, 7, e.cfg); err != nil {
						t.Fatalf("%s: %v", what, err)
					}
				}
				if l.Err() != nil || l.LogEndOffset() != 3 {
					t.Errorf("%s: %v, log end offset %d", what, l.Err(), l.LogEndOffset())
				}
			}
			if offline == 0 {
				t.Errorf("version %d, %s: no damage was found", version, name)
			}
		}
	}
}

// TestLostTopicID: stet.incarnation knows the topic id, too. Where partition.metadata is missing or torn, as a power failure may leave it, it is
// written again, and the data are there.
func TestLostTopicID(t *testing.T) {
	for what, damage := range map[string]func(e *env, file string) error{
		"missing": func(e *env, file string) error { return e.mem.Remove(file) },
		"empty":   func(e *env, file string) error { rewrite(t, e.mem, file, nil); return nil },
		"torn":    func(e *env, file string) error { rewrite(t, e.mem, file, encodeMetadata(testID)[:20]); return nil },
	} {
		e := newEnv(t)
		l := e.create()
		file := filepath.Join(l.dir, metadataFile)
		e.lead(l, plain(3, "x"), 0, OriginClient)
		e.mem, e.m = e.mem.Clone(), nil // killed: nothing is synced
		e.fs = e.mem
		if err := damage(e, file); err != nil {
			t.Fatal(err)
		}
		e.open()
		l, err := e.m.Create("t", 0, testID, 7, e.cfg)
		if err != nil || l.Err() != nil || l.LogEndOffset() != 3 {
			t.Errorf("%s: %v, %v, log end offset %d", what, err, l.Err(), l.LogEndOffset())
		}
		if p, err := readFile(e.mem, file); err != nil || !bytes.Equal(p, encodeMetadata(testID)) {
			t.Errorf("%s: %q, %v", what, p, err)
		}
	}
}

// TestOwnFilesAreSealed: a flipped bit in a text file of our own is found.
func TestOwnFilesAreSealed(t *testing.T) {
	for name, c := range map[string]struct {
		content []byte
		decode  func([]byte) (any, error)
	}{
		"stet.compacted":  {encodeCompacted(1234), func(p []byte) (any, error) { return decodeCompacted(p) }},
		"stet-partitions": {encodeSettled(map[topicPartition]settled{{"t", 3}: {41, "/data"}}), func(p []byte) (any, error) { return decodeSettled(p) }},
	} {
		want, err := c.decode(c.content)
		if err != nil {
			t.Fatal(err)
		}
		for bit := range 8 * len(c.content) {
			p := bytes.Clone(c.content)
			p[bit/8] ^= 1 << (bit % 8)
			if got, err := c.decode(p); err == nil && !reflect.DeepEqual(got, want) {
				t.Errorf("%s, bit %d: %v", name, bit, got)
			}
		}
	}
}
