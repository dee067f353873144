package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// kafka is a real Apache Kafka cluster, run by scripts/kafka/kafka.
type kafka struct {
	dir, bootstrap string
	cl             *kgo.Client
	stopped        bool
}

func (b *bench) startKafka(ctx context.Context, name string, brokers int, args ...string) (*kafka, error) {
	k := &kafka{dir: b.dir(name)}
	b.onEnd(k.stop)
	cmd := exec.CommandContext(ctx, "scripts/kafka/kafka", append([]string{"start", k.dir, "--brokers", strconv.Itoa(brokers)}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("kafka start: %w: %s", err, errs.String())
	}
	f := strings.Fields(out.String())
	if len(f) == 0 {
		return nil, errors.New("kafka start printed no bootstrap servers")
	}
	k.bootstrap = f[len(f)-1]
	var err error
	k.cl, err = kgo.NewClient(kgo.SeedBrokers(strings.Split(k.bootstrap, ",")...), kgo.MetadataMinAge(50*time.Millisecond))
	return k, err
}

// stop ends the nodes, also those of a start that was interrupted, once.
func (k *kafka) stop() {
	if k.stopped {
		return
	}
	k.stopped = true
	if k.cl != nil {
		k.cl.Close()
	}
	_ = exec.Command("scripts/kafka/kafka", "stop", k.dir).Run() // it complains itself
	_ = os.RemoveAll(k.dir)                                      // the whole work folder goes at the end
}

// runScript runs scripts/kafka/kafka.
func runScript(args ...string) error {
	if out, err := exec.Command("scripts/kafka/kafka", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("kafka %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

func (k *kafka) data(node int) string {
	return filepath.Join(k.dir, fmt.Sprintf("node-%d", node), "data")
}

func (k *kafka) pid(node int) (int, error) {
	text, err := os.ReadFile(filepath.Join(k.dir, fmt.Sprintf("node-%d", node), "pid"))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// addr is a node's address.
func (k *kafka) addr(node int) string { return strings.Split(k.bootstrap, ",")[node-1] }

// create makes a topic whose partitions are on one node only.
func (k *kafka) create(ctx context.Context, topic string, partitions int, node int32) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = topic, -1, -1
	for i := range partitions {
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Partition, a.Replicas = int32(i), []int32{node}
		t.ReplicaAssignment = append(t.ReplicaAssignment, a)
	}
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, k.cl)
	if err != nil {
		return err
	}
	for _, t := range resp.Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return fmt.Errorf("topic %s: %w", t.Topic, err)
		}
	}
	return nil
}

// reassign gives all partitions of a topic these replicas.
func (k *kafka) reassign(ctx context.Context, topic string, partitions int, replicas ...int32) error {
	var a kadm.AlterPartitionAssignmentsReq
	for i := range partitions {
		a.Assign(topic, int32(i), replicas)
	}
	resp, err := kadm.NewClient(k.cl).AlterPartitionAssignments(ctx, a)
	if err != nil {
		return err
	}
	return resp.Error()
}

// waitISR waits until every partition has n in-sync replicas.
func (k *kafka) waitISR(ctx context.Context, topic string, n int) error {
	for {
		m, err := kadm.NewClient(k.cl).Metadata(ctx, topic)
		if err != nil {
			return err
		}
		done := true
		for _, p := range m.Topics[topic].Partitions {
			done = done && len(p.ISR) == n && len(p.Replicas) == n
		}
		if done {
			return nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// ends is the sum of the end offsets; a topic that is not there yet has 0.
func (k *kafka) ends(ctx context.Context, topic string) (sum int64, err error) {
	list, err := kadm.NewClient(k.cl).ListEndOffsets(ctx, topic)
	if err != nil {
		return 0, err
	}
	list.Each(func(o kadm.ListedOffset) { sum += max(o.Offset, 0) })
	return sum, nil
}

// startMM2 runs MirrorMaker 2 from s to d for one topic.
func (b *bench) startMM2(s, d *kafka, topic string) (*exec.Cmd, error) {
	props := b.dir("mm2-" + topic + ".properties")
	text := fmt.Sprintf(`clusters=s,d
s.bootstrap.servers=%s
d.bootstrap.servers=%s
s->d.enabled=true
d->s.enabled=false
s->d.topics=%s
tasks.max=2
replication.policy.class=org.apache.kafka.connect.mirror.IdentityReplicationPolicy
replication.factor=1
checkpoints.topic.replication.factor=1
heartbeats.topic.replication.factor=1
offset-syncs.topic.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
config.storage.replication.factor=1
emit.heartbeats.enabled=false
emit.checkpoints.enabled=false
sync.topic.acls.enabled=false
`, s.bootstrap, d.bootstrap, topic)
	if err := writeFile(props, text); err != nil {
		return nil, err
	}
	log, err := os.Create(b.dir("mm2-" + topic + ".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own
	cmd := exec.Command("scripts/kafka/kafka", "mm2", props)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	b.onEnd(func() { kill(cmd) })
	return cmd, nil
}

func kill(cmd *exec.Cmd) {
	if cmd.ProcessState == nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}
