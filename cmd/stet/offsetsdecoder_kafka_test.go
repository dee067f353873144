package main_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"stet/internal/testkit"
)

// TestOffsetsDecoderAsKafka: `stet dump-log --offsets-decoder` prints what Kafka's prints of the
// __consumer_offsets that Stet wrote: members, an assignment, commits, tombstones.
func TestOffsetsDecoderAsKafka(t *testing.T) {
	t.Parallel()
	testkit.NeedKafka(t)
	p := testkit.StartProcess(t, "", "offsets.topic.num.partitions=1")
	ctx := testkit.Context(t)
	for _, opts := range [][]kgo.Opt{{kgo.InstanceID("static")}, {kgo.Balancers(kgo.RangeBalancer()), kgo.ConsumerGroup("g2")}} {
		cl := testkit.Client(t, p.Addr, append([]kgo.Opt{
			kgo.DefaultProduceTopic("x"), kgo.ConsumeTopics("x"), kgo.ConsumerGroup("g1"), kgo.AllowAutoTopicCreation(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		}, opts...)...)
		if err := cl.ProduceSync(ctx, kgo.StringRecord("a")).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := cl.PollFetches(ctx).Err(); err != nil {
			t.Fatal(err)
		}
		if err := cl.CommitUncommittedOffsets(ctx); err != nil {
			t.Fatal(err)
		}
		cl.Close()
	}
	testkit.Tool(t, "consumer-groups", "--bootstrap-server", p.Addr, "--delete", "--group", "g2")
	if code := p.Stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	file := filepath.Join(t.TempDir(), "00000000000000000000.log")
	b, err := os.ReadFile(filepath.Join(p.Dir, "__consumer_offsets-0", "00000000000000000000.log"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	ours := testkit.MustStet(t, "dump-log", "--offsets-decoder", "--files", file)
	contains(t, "dump-log", ours, `"group":"g1"`, `"offset":`, `"assignedPartitions"`, "<DELETE>")
	if kafkas := testkit.Tool(t, "dump-log", "--offsets-decoder", "--files", file); ours != kafkas {
		t.Errorf("ours:\n%s\nKafka's:\n%s", ours, kafkas)
	}
}
