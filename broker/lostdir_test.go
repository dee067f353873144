package broker_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/internal/testkit"
	"stet/internal/vfs"
)

// TestLostDirectoryOverTheWire: a broker starts without one of its volumes, an empty mount point in its place, and without one
// partition directory of the other. What is missing answers KAFKA_STORAGE_ERROR and /readyz counts it; a new topic works;
// with the files back everything that was acknowledged is.
func TestLostDirectoryOverTheWire(t *testing.T) {
	root := t.TempDir()
	f := &failingDir{t: t, ctx: testkit.Context(t), dirs: []string{filepath.Join(root, "a"), filepath.Join(root, "b")}, acked: map[int32]int{}, fs: vfs.OS}
	f.start()
	r, err := kadm.NewClient(f.cl).CreateTopic(f.ctx, 4, 1, nil, "t")
	if err != nil {
		t.Fatal(err)
	}
	f.id = r.ID
	for p := range int32(4) {
		if code := f.produce(p, 10); code != 0 {
			t.Fatal(kerr.ErrorForCode(code))
		}
	}
	at := f.place()
	f.stop(false)

	removed := filepath.Join(f.dirs[0], fmt.Sprintf("t-%d", at[f.dirs[0]][0]))
	move := func(from, to string) {
		t.Helper()
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	move(f.dirs[1], filepath.Join(root, "unmounted"))
	move(removed, filepath.Join(root, "removed"))
	if err := os.Mkdir(f.dirs[1], 0o755); err != nil {
		t.Fatal(err)
	}
	f.start()
	lost := append([]int32{at[f.dirs[0]][0]}, at[f.dirs[1]]...)
	for _, p := range lost {
		for what, code := range map[string]int16{"produce": f.produce(p, 10), "fetch": f.fetch(p), "list offsets": f.listOffsets(p)} {
			if code != kerr.KafkaStorageError.Code {
				t.Errorf("%s of lost partition %d: %v", what, p, kerr.ErrorForCode(code))
			}
		}
	}
	f.holdsAll(at[f.dirs[0]][1])
	md, err := kadm.NewClient(f.cl).Metadata(f.ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	for p, d := range md.Topics["t"].Partitions {
		want := int32(1)
		if slices.Contains(lost, p) {
			want = -1
		}
		if d.Leader != want || (want == -1) != (errors.Is(d.Err, kerr.LeaderNotAvailable) && slices.Equal(d.OfflineReplicas, []int32{1})) || len(d.Replicas) != 1 || len(d.ISR) != 1 {
			t.Errorf("metadata of partition %d: %+v", p, d)
		}
	}
	ask := kmsg.NewPtrDescribeTopicPartitionsRequest()
	ask.Topics = []kmsg.DescribeTopicPartitionsRequestTopic{{Topic: "t"}}
	dt, err := ask.RequestWith(f.ctx, f.cl)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dt.Topics[0].Partitions {
		want := int32(1)
		if slices.Contains(lost, d.Partition) {
			want = -1
		}
		if d.LeaderID != want || (want == -1) != (d.ErrorCode == kerr.LeaderNotAvailable.Code && slices.Equal(d.OfflineReplicas, []int32{1})) {
			t.Errorf("description of partition %d: %+v", d.Partition, d)
		}
	}
	resp, err := http.Get("http://" + f.b.HTTPAddr() + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || !strings.Contains(string(text), "3 partitions are offline") {
		t.Errorf("/readyz: %s %v", text, err)
	}
	if _, err := kadm.NewClient(f.cl).CreateTopic(f.ctx, 4, 1, nil, "new"); err != nil {
		t.Fatal(err)
	}
	for p := range int32(4) {
		cl := testkit.Client(t, f.b.Addr(), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		if err := cl.ProduceSync(f.ctx, &kgo.Record{Topic: "new", Partition: p, Value: []byte("x")}).FirstErr(); err != nil {
			t.Errorf("new-%d: %v", p, err)
		}
	}
	f.stop(true)
	if entries, err := os.ReadDir(f.dirs[1]); err != nil || len(entries) > 0 {
		t.Errorf("in the mount point: %v %v", entries, err)
	}
	if err := os.Remove(f.dirs[1]); err != nil {
		t.Fatal(err)
	}
	move(filepath.Join(root, "unmounted"), f.dirs[1])
	move(filepath.Join(root, "removed"), removed)
	f.start()
	for p := range int32(4) {
		f.holdsAll(p)
	}
	f.stop(false)
}
