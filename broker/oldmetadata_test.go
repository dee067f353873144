package broker_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"stet/internal/testkit"
)

// TestOldMetadata: metadata of an earlier time, or none, beside partitions that they do not know. The broker does not start, and
// removes nothing as it would of a deleted topic; with the right ones everything is there.
func TestOldMetadata(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	now, old := filepath.Join(dir, "stet-metadata"), filepath.Join(t.TempDir(), "old")
	ctx := testkit.Context(t)
	run := func(topic string) {
		t.Helper()
		b := testkit.StartBroker(t, dir)
		defer testkit.StopBroker(t, b)
		if err := testkit.Client(t, b.Addr(), kgo.AllowAutoTopicCreation()).ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte(topic)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	run("before")
	if err := os.CopyFS(old, os.DirFS(now)); err != nil {
		t.Fatal(err)
	}
	run("after")
	right := filepath.Join(t.TempDir(), "right")
	for what, c := range map[string]struct {
		put  func() error
		want []string
	}{
		"older": {func() error { return os.CopyFS(now, os.DirFS(old)) }, []string{now, "after-0", "older"}},
		"none":  {func() error { return os.Mkdir(now, 0o755) }, []string{now, "no metadata"}},
		"an empty file": {func() error {
			return os.WriteFile(filepath.Join(must(t, os.MkdirAll(now, 0o755), now), "raft.db"), nil, 0o600)
		}, []string{now, "no metadata"}},
	} {
		if err := os.Rename(now, right); err != nil {
			t.Fatal(err)
		}
		if err := c.put(); err != nil {
			t.Fatal(err)
		}
		for range 2 { // a start that is refused changes nothing about the next
			b, err := testkit.TryBroker(dir)
			if err == nil {
				testkit.StopBroker(t, b)
				t.Fatalf("%s: it started", what)
			}
			for _, text := range c.want {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%s: %v", what, err)
				}
			}
		}
		if err := os.RemoveAll(now); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(right, now); err != nil {
			t.Fatal(err)
		}
	}
	b := testkit.StartBroker(t, dir)
	for _, topic := range []string{"before", "after"} {
		if got := consume(ctx, t, b.Addr(), topic, 1); string(got[0].Value) != topic {
			t.Errorf("%s holds %q", topic, got[0].Value)
		}
	}
}

// TestOldMetadataWithFewerPartitions: partitions that were added since are younger, too.
func TestOldMetadataWithFewerPartitions(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	now, old, right := filepath.Join(dir, "stet-metadata"), filepath.Join(t.TempDir(), "old"), filepath.Join(t.TempDir(), "right")
	ctx := testkit.Context(t)
	b := testkit.StartBroker(t, dir)
	if _, err := kadm.NewClient(testkit.Client(t, b.Addr())).CreateTopic(ctx, 1, 1, nil, "t"); err != nil {
		t.Fatal(err)
	}
	testkit.StopBroker(t, b)
	if err := os.CopyFS(old, os.DirFS(now)); err != nil {
		t.Fatal(err)
	}
	b = testkit.StartBroker(t, dir)
	if r, err := kadm.NewClient(testkit.Client(t, b.Addr())).UpdatePartitions(ctx, 3, "t"); err != nil || r.Error() != nil {
		t.Fatal(err, r)
	}
	testkit.StopBroker(t, b)
	if err := errors.Join(os.Rename(now, right), os.Rename(old, now)); err != nil {
		t.Fatal(err)
	}
	if b, err := testkit.TryBroker(dir); err == nil || !strings.Contains(err.Error(), "older than 2 of the partitions, such as "+filepath.Join(dir, "t-")) {
		t.Errorf("%v", err)
		if err == nil {
			testkit.StopBroker(t, b)
		}
	}
	if err := errors.Join(os.RemoveAll(now), os.Rename(right, now)); err != nil {
		t.Fatal(err)
	}
	testkit.StopBroker(t, testkit.StartBroker(t, dir))
	if found, _ := filepath.Glob(filepath.Join(dir, "t-?")); len(found) != 3 {
		t.Errorf("%v", found)
	}
}

// TestNothingButPartitions: a start without metadata and meta.properties beside partitions writes no new cluster id, so the right ones can be put back.
func TestNothingButPartitions(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	now, right := filepath.Join(dir, "stet-metadata"), filepath.Join(t.TempDir(), "right")
	b := testkit.StartBroker(t, dir)
	if _, err := kadm.NewClient(testkit.Client(t, b.Addr())).CreateTopic(testkit.Context(t), 1, 1, nil, "t"); err != nil {
		t.Fatal(err)
	}
	id := b.ClusterID()
	testkit.StopBroker(t, b)
	if err := errors.Join(os.Rename(now, right), os.Remove(filepath.Join(dir, "meta.properties"))); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if b, err := testkit.TryBroker(dir); err == nil || !strings.Contains(err.Error(), "stet.incarnation says that there were some") {
			t.Errorf("%v", err)
			if err == nil {
				testkit.StopBroker(t, b)
			}
		}
	}
	if err := errors.Join(os.RemoveAll(now), os.Rename(right, now)); err != nil {
		t.Fatal(err)
	}
	b = testkit.StartBroker(t, dir)
	if b.ClusterID() != id || !exists(filepath.Join(dir, "t-0")) {
		t.Errorf("cluster %s, was %s", b.ClusterID(), id)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func must(t *testing.T, err error, path string) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return path
}
