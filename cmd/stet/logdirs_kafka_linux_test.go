package main_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/internal/testkit"
)

// TestKafkaLogDirsTool: Kafka's log-dirs shows both directories of a Stet with every partition's size as it
// is on the disk, and the volume.
func TestKafkaLogDirsTool(t *testing.T) {
	t.Parallel()
	testkit.NeedKafka(t)
	root := t.TempDir()
	dirs := []string{filepath.Join(root, "one"), filepath.Join(root, "two")}
	p := testkit.StartProcess(t, strings.Join(dirs, ","))
	ctx := testkit.Context(t)
	createTopic(ctx, t, p.Addr, "sized", 5)
	cl := testkit.Client(t, p.Addr, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
	for n := range int32(5) {
		for range n * 10 {
			if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "sized", Partition: n, Value: make([]byte, 1000)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	out := testkit.Tool(t, "log-dirs", "--describe", "--bootstrap-server", p.Addr, "--broker-list", "1")
	var got struct {
		Brokers []struct {
			Broker  int `json:"broker"`
			LogDirs []struct {
				LogDir     string `json:"logDir"`
				Error      any    `json:"error"`
				Partitions []struct {
					Partition string `json:"partition"`
					Size      int64  `json:"size"`
					OffsetLag int64  `json:"offsetLag"`
					IsFuture  bool   `json:"isFuture"`
				} `json:"partitions"`
			} `json:"logDirs"`
		} `json:"brokers"`
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &got); err != nil || len(got.Brokers) != 1 || len(got.Brokers[0].LogDirs) != 2 {
		t.Fatalf("%v\n%s", err, out)
	}
	seen := 0
	for _, d := range got.Brokers[0].LogDirs { // in the order of a hash map
		if !slices.Contains(dirs, d.LogDir) || d.Error != nil || len(d.Partitions) < 2 {
			t.Errorf("directory %+v, want one of %s", d, dirs)
		}
		for _, part := range d.Partitions {
			want := int64(0)
			files, err := filepath.Glob(filepath.Join(d.LogDir, part.Partition, "*.log"))
			if err != nil || len(files) == 0 {
				t.Fatalf("%s: %v", part.Partition, err)
			}
			for _, f := range files {
				st, err := os.Stat(f)
				if err != nil {
					t.Fatal(err)
				}
				want += st.Size()
			}
			if part.Size != want || part.OffsetLag != 0 || part.IsFuture {
				t.Errorf("%+v, the files have %d bytes", part, want)
			}
			if strings.HasPrefix(part.Partition, "sized-") {
				seen++
			}
		}
	}
	if seen != 5 {
		t.Errorf("%d partitions:\n%s", seen, out)
	}

	// The tool does not print the volume; Kafka's admin client reads it from the same answer.
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dirs[0], &fs); err != nil {
		t.Fatal(err)
	}
	described, err := cl.Broker(1).Request(ctx, kmsg.NewPtrDescribeLogDirsRequest())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range described.(*kmsg.DescribeLogDirsResponse).Dirs {
		if total := int64(fs.Blocks) * fs.Bsize; d.TotalBytes != total || d.UsableBytes <= 0 || d.UsableBytes > total {
			t.Errorf("%s: %d bytes of %d usable, statfs says %d in all", d.Dir, d.UsableBytes, d.TotalBytes, total)
		}
	}
}
