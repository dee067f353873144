package main_test

import (
	"fmt"
	"os/exec"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"stet/internal/testkit"
	"stet/internal/testkit/scripted"
)

// TestClientsReadACommittedSourceEpoch is C09 with every client: the destination began
// at epoch 0, the source is at 7, and groups have committed offsets with epoch 7.
func TestClientsReadACommittedSourceEpoch(t *testing.T) {
	t.Parallel()
	ctx := contextFor(t, 2*time.Minute)
	src := scripted.NewCluster(t, 1)
	topic := src.CreateTopic("t", 1)
	src.Change(func() { topic.Logs[0].Epoch = 7 })
	src.Produce(topic, 0, 5, 10)
	p := testkit.StartProcess(t, "", "mirror.metadata.refresh.interval.ms=500")
	mirror(t, p, "m", src.Bootstrap(), "t")
	waitFor(t, p, "m", "lag-zero")
	adm := kadm.NewClient(testkit.Client(t, p.Addr))
	for _, group := range []string{"go", "librdkafka", "java"} {
		offs := kadm.Offsets{}
		offs.Add(kadm.Offset{Topic: "t", Partition: 0, At: 3, LeaderEpoch: 7})
		if err := adm.CommitAllOffsets(ctx, group, offs); err != nil {
			t.Fatal(err)
		}
	}
	c := testkit.Client(t, p.Addr, kgo.ConsumerGroup("go"), kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	fs := c.PollFetches(ctx)
	if err := fs.Err(); err != nil {
		t.Fatal(err)
	}
	if r := fs.Records(); len(r) != 2 || r[0].Offset != 3 || r[0].LeaderEpoch != 7 {
		t.Errorf("franz-go reads %v", r)
	}
	if _, err := exec.LookPath("kcat"); err == nil {
		out, err := exec.Command("kcat", "-b", p.Addr, "-G", "librdkafka", "-c", "2", "-q", "-f", "%o ", "-X", "auto.offset.reset=earliest", "t").CombinedOutput()
		if err != nil || string(out) != "3 4 " {
			t.Errorf("librdkafka reads %q, %v; want offsets 3 and 4", out, err)
		}
	}
	if testkit.HaveKafka() {
		out := testkit.Tool(t, "console-consumer", "--bootstrap-server", p.Addr, "--topic", "t", "--group", "java", "--max-messages", "2", "--timeout-ms", "60000",
			"--property", "print.offset=true", "--consumer-property", "auto.offset.reset=earliest")
		contains(t, "Java", out, "Offset:3", "Offset:4", fmt.Sprintf("Processed a total of %d messages", 2))
	}
}
