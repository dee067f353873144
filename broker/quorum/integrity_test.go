package quorum

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

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
	gone := copyTree(t, keep)
	if err := os.Remove(filepath.Join(gone, storeFile)); err != nil {
		t.Fatal(err)
	}
	if opened(t, "without "+storeFile, gone, img) {
		t.Error("a snapshot alone was taken for the metadata")
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
		where := make([]int, len(content))
		for i := range where {
			where[i] = i
		}
		if name == storeFile { // what a flip in a free page does is known
			where = usedBytes(t, content)
		}
		refused := 0
		for range rounds {
			if !flip(where[rnd.IntN(len(where))]) {
				refused++
			}
		}
		t.Logf("%d of %d flips are refused", refused, rounds)
		for range rounds / 10 {
			n := rnd.IntN(len(content))
			try(fmt.Sprintf("cut to %d bytes", n), content[:n])
		}
		if name != storeFile {
			continue
		}
		if opened(t, "empty", func() string { dir := copyTree(t, keep); _ = os.Truncate(filepath.Join(dir, name), 0); return dir }(), img) {
			t.Error("an empty file was taken for the metadata")
		}
		page := os.Getpagesize()
		for at := range metaSize {
			for _, meta := range []int{0, page} {
				if flip(meta + pageHeader + at) {
					t.Errorf("a flipped bit in byte %d of the meta page at %d is not found", at, meta)
				}
			}
		}
	}
}

// usedBytes are the positions of all bytes outside of free pages.
func usedBytes(t *testing.T, file []byte) (at []int) {
	t.Helper()
	m, _ := metaAt(file, 0)
	if other, _ := metaAt(file, int(m.pageSize)); other.txn > m.txn {
		m = other
	}
	c := checker{file: file, size: m.pageSize, used: make([]bool, m.pages)}
	c.used[0], c.used[1], c.used[m.free] = true, true, true
	if err := c.tree(m.root, nil); err != nil {
		t.Fatal(err)
	}
	for page, used := range c.used {
		for i := range int(m.pageSize) {
			if used {
				at = append(at, page*int(m.pageSize)+i)
			}
		}
	}
	return at
}

// TestCheckFileNeverFails: whatever bit is flipped, wherever the file ends, the check comes to an answer.
func TestCheckFileNeverFails(t *testing.T) {
	dir, _ := damageable(t)
	file, err := os.ReadFile(filepath.Join(dir, storeFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := checkFile(file); err != nil {
		t.Fatal(err)
	}
	step := 1
	if invariant.Race {
		step = 17
	}
	wrong := 0
	for _, at := range usedBytes(t, file) {
		for bit := at % step; bit < 8; bit += step {
			file[at] ^= 1 << bit
			if checkFile(file) != nil {
				wrong++
			}
			file[at] ^= 1 << bit
		}
	}
	if wrong == 0 {
		t.Error("nothing was found")
	}
	for n := 0; n < len(file); n += 97 {
		if err := checkFile(file[:n:n]); err == nil && n < len(file)/4 {
			t.Errorf("%d of %d bytes are whole", n, len(file))
		}
	}
}

// TestInterruptedBootstrap: a first start that was killed between its two writes, or in bbolt's first one, is a first start again.
func TestInterruptedBootstrap(t *testing.T) {
	for what, prepare := range map[string]func(path string) error{
		"the term alone": func(path string) error {
			store, err := raftboltdb.NewBoltStore(path)
			if err != nil {
				return err
			}
			return errors.Join(store.SetUint64(termKey, 1), store.Close())
		},
		"an empty file": func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"a page":        func(path string) error { return os.WriteFile(path, make([]byte, 4096), 0o600) },
		"zeros":         func(path string) error { return os.WriteFile(path, make([]byte, 1<<16), 0o600) },
	} {
		dir := t.TempDir()
		if err := prepare(filepath.Join(dir, storeFile)); err != nil {
			t.Fatal(err)
		}
		q, err := Open(Options{Dir: dir, NodeID: 1})
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if err := q.Propose(context.Background(), 0, []meta.Record{&meta.ClusterID{ID: "c"}}); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		_ = q.Close()
	}
}

// TestSnapshotOfOtherEntries: a meta.json that claims more entries than the snapshot stands for is not believed.
func TestSnapshotOfOtherEntries(t *testing.T) {
	dir, _ := damageable(t)
	files, err := filepath.Glob(filepath.Join(dir, "snapshots", "*", "meta.json"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	claims := regexp.MustCompile(`"Index":\d+`).ReplaceAll(text, []byte(`"Index":40`))
	if string(claims) == string(text) {
		t.Fatal(string(text))
	}
	if err := os.WriteFile(files[0], claims, 0o600); err != nil {
		t.Fatal(err)
	}
	if q, err := Open(Options{Dir: dir, NodeID: 1}); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("opened: %v", err)
		if q != nil {
			_ = q.Close()
		}
	}
}

// TestTermOnDisk: no vote and no entry is on the disk in a term that is not; a term that fits in is no end of the trouble, an entry is.
func TestTermOnDisk(t *testing.T) {
	dir := t.TempDir()
	bolt, err := openStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	full := false
	s := &watchedStore{BoltStore: bolt, dir: dir, log: slog.New(slog.DiscardHandler), fault: func() error {
		if full {
			return syscall.ENOSPC
		}
		return nil
	}}
	defer func() { _ = s.Close() }()
	onDisk := func() uint64 {
		n, _ := bolt.GetUint64(termKey)
		return n
	}
	must := func(want bool, err error) {
		t.Helper()
		if (err == nil) != want {
			t.Fatalf("%v, want success %t", err, want)
		}
	}
	vote := func() error { return s.Set([]byte("LastVoteCand"), []byte("1")) }
	entry := func(i uint64) error { return s.StoreLog(&raft.Log{Index: i, Term: s.term}) }
	must(true, s.SetUint64(termKey, 4))
	if onDisk() != 4 {
		t.Fatal(onDisk())
	}
	full = true
	must(true, s.SetUint64(termKey, 5))
	if n, err := s.GetUint64(termKey); n != 5 || err != nil || onDisk() != 4 {
		t.Fatal(n, err, onDisk())
	}
	must(false, vote())
	must(false, entry(1))
	must(true, s.SetUint64(termKey, 6))
	full = false
	must(true, vote())
	if onDisk() != 6 || s.failure() == nil {
		t.Fatalf("term %d is on the disk with the vote, %v", onDisk(), s.failure())
	}
	must(true, entry(1))
	if s.failure() != nil {
		t.Fatal(s.failure())
	}
	full = true
	must(true, s.SetUint64(termKey, 7))
	full = false
	must(true, entry(2))
	if onDisk() != 7 {
		t.Fatal(onDisk())
	}
	if err := checkSeal(3, &raft.Log{Index: 2}); err == nil {
		t.Error("an entry is believed to be another")
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
