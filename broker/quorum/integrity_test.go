package quorum

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/raft"

	"stet/broker/meta"
	"stet/internal/invariant"
)

// damageable is a directory with a snapshot, entries behind it, and the image they make.
func damageable(t *testing.T) (dir string, img *meta.Image) {
	t.Helper()
	dir = t.TempDir()
	q, err := Open(Options{Dir: dir, NodeID: 1})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		if i == 20 {
			if err := q.Snapshot(); err != nil {
				t.Fatal(err)
			}
		}
		recs := []meta.Record{&meta.CreateTopic{Name: fmt.Sprintf("topic-%d", i), ID: [16]byte{byte(i)}, Incarnation: -1}}
		if err := q.Propose(context.Background(), q.Image().Offset(), recs); err != nil {
			t.Fatal(err)
		}
	}
	img = q.Image()
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, img
}

func copyTree(t *testing.T, from string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return to
}

// opened says whether a directory opens with the image, or is refused by an error that names it. Anything else fails the test.
func opened(t *testing.T, what, dir string, img *meta.Image) (ok bool) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { // an election that cannot be won takes 30 s
		q, err := Open(Options{Dir: dir, NodeID: 1})
		if err != nil {
			if !strings.Contains(err.Error(), dir) {
				t.Errorf("%s: the error does not name the directory: %v", what, err)
			}
			return
		}
		ok = true
		defer func() { _ = q.Close() }()
		if !reflect.DeepEqual(q.Image().Records(), img.Records()) {
			t.Errorf("%s: opened with other metadata: offset %d, was %d", what, q.Image().Offset(), img.Offset())
		}
		recs := []meta.Record{&meta.CreateTopic{Name: "next", ID: [16]byte{99}, Incarnation: -1}}
		if err := q.Propose(context.Background(), q.Image().Offset(), recs); err != nil {
			t.Errorf("%s: opened, and cannot be written: %v", what, err)
		}
	})
	return ok
}

// TestDamagedStore: a flipped bit anywhere, or a file that ends early, is found or makes no difference; it is never a panic, and
// never the metadata of an earlier time.
func TestDamagedStore(t *testing.T) {
	keep, img := damageable(t)
	if !opened(t, "the copy as it is", copyTree(t, keep), img) {
		t.Fatal("refused")
	}
	files, err := filepath.Glob(filepath.Join(keep, "snapshots", "*", "*"))
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	for _, name := range append(files, filepath.Join(keep, storeFile)) {
		name, _ = filepath.Rel(keep, name)
		content, err := os.ReadFile(filepath.Join(keep, name))
		if err != nil {
			t.Fatal(err)
		}
		seed := rand.Uint64()
		t.Logf("%s: %d bytes, seed %d", name, len(content), seed)
		rnd := rand.New(rand.NewPCG(seed, 0))
		try := func(what string, damaged []byte) bool {
			dir := copyTree(t, keep)
			if err := os.WriteFile(filepath.Join(dir, name), damaged, 0o600); err != nil {
				t.Fatal(err)
			}
			return opened(t, name+": "+what, dir, img)
		}
		flip := func(at int) bool {
			b := []byte(string(content))
			b[at] ^= 1 << rnd.IntN(8)
			return try(fmt.Sprintf("flipped bit in byte %d", at), b)
		}
		rounds := 150
		if invariant.Race {
			rounds = 40
		}
		refused := 0
		for range rounds {
			if !flip(rnd.IntN(len(content))) {
				refused++
			}
		}
		t.Logf("%d of %d flips are refused", refused, rounds)
		for range rounds / 10 {
			n := rnd.IntN(len(content))
			if n == 0 && name == storeFile {
				continue // as a crash in the first start leaves it; the broker knows that it was there
			}
			try(fmt.Sprintf("cut to %d bytes", n), content[:n])
		}
		if name != storeFile {
			continue
		}
		page := os.Getpagesize()
		for at := range metaSize {
			for _, meta := range []int{0, page} {
				if flip(meta + metaHeader + at) {
					t.Errorf("a flipped bit in byte %d of the meta page at %d is not found", at, meta)
				}
			}
		}
	}
}

// TestEntriesBeforeSeals: entries of a version that wrote no checksums are read.
func TestEntriesBeforeSeals(t *testing.T) {
	dir, img := damageable(t)
	store, err := openStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	first, _ := store.FirstIndex()
	last, _ := store.LastIndex()
	if first == 0 || last <= first {
		t.Fatal(first, last)
	}
	plain := &watchedStore{BoltStore: store, dir: dir}
	for i := first; i <= last; i++ {
		l := &raft.Log{}
		if err := plain.GetLog(i, l); err != nil {
			t.Fatal(err)
		}
		if len(l.Extensions) == 0 {
			t.Fatalf("entry %d has no checksum", i)
		}
		l.Extensions = nil
		if err := store.StoreLog(l); err != nil { // past the wrapper
			t.Fatal(err)
		}
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if !opened(t, "without checksums", dir, img) {
		t.Error("refused")
	}
}

// TestEntryThatIsMissing: an entry that was made for records that are not there is a hole, whatever made it.
func TestEntryThatIsMissing(t *testing.T) {
	f := newFSM(nil)
	rec := []meta.Record{&meta.ClusterID{ID: "c"}}
	if got := f.Apply(&raft.Log{Index: 1, Data: encodeProposal(0, rec)}); got != nil {
		t.Fatal(got)
	}
	if got, _ := f.Apply(&raft.Log{Index: 2, Data: encodeProposal(0, rec)}).(error); !errors.Is(got, ErrBase) || f.failure() != nil {
		t.Fatal(got, f.failure())
	}
	f.Apply(&raft.Log{Index: 3, Data: encodeProposal(2, rec)})
	if err := f.failure(); err == nil || !strings.Contains(err.Error(), "entry 3") {
		t.Error(err)
	}
}
