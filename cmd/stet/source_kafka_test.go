package main_test

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/broker/mirrormsg"
	"stet/internal/testkit"
)

// TestKafkaSourceFaults: a source of three nodes under load. Its leaders are moved,
// a node is killed and comes back, and then one that had fallen behind is elected,
// so that acknowledged records vanish. The copy is identical in the end where
// unclean elections are supported, and FAILED for an operator where they are not.
func TestKafkaSourceFaults(t *testing.T) {
	t.Parallel()
	testkit.NeedKafka(t)
	ctx := contextFor(t, 5*time.Minute)
	k := testkit.StartKafka(t, testkit.Kafka43, 3, "min.insync.replicas=1", "unclean.leader.election.interval.ms=1000")
	w := &faults{t: t, ctx: ctx, k: k, cl: testkit.Client(t, k.Bootstrap)}
	w.adm = kadm.NewClient(w.cl)
	w.create("moves", [][]int32{{1, 2, 3}, {2, 3, 1}, {3, 1, 2}})
	uncleanOK := []string{"unclean.leader.election.enable", "true"}
	w.create("ule-on", [][]int32{{1, 2}}, uncleanOK...)
	w.create("ule-off", [][]int32{{1, 2}}, uncleanOK...)

	p := testkit.StartProcess(t, "", "mirror.metadata.refresh.interval.ms=500")
	mirror(t, p, "m", k.Bootstrap, "moves,ule-on,ule-off")
	waitFor(t, p, "m", "MIRRORING")
	testkit.MustStet(t, "configs", "--bootstrap-server", p.Addr, "--alter", "--entity-type", "topics", "--entity-name", "ule-on", "--add-config", "mirror.support.unclean.leader.election=true")
	load := w.load("moves", 3)

	// Leaders are moved by reassignment and preferred election, several times.
	order := [][]int32{{2, 3, 1}, {3, 1, 2}, {1, 2, 3}, {2, 1, 3}}
	for _, replicas := range order {
		var req kadm.AlterPartitionAssignmentsReq
		set := kadm.TopicsSet{}
		for i := range int32(3) {
			req.Assign("moves", i, replicas)
			set.Add("moves", i)
		}
		if r, err := w.adm.AlterPartitionAssignments(ctx, req); err != nil || r.Error() != nil {
			t.Fatalf("reassignment: %v %v", err, r)
		}
		w.until(fmt.Sprintf("broker %d leads", replicas[0]), func() bool {
			if _, err := w.adm.ElectLeaders(ctx, kadm.ElectPreferredReplica, set); err != nil {
				return false
			}
			return w.every("moves", func(d kadm.PartitionDetail) bool { return d.Leader == replicas[0] && len(d.ISR) == 3 })
		})
		load.goesOn(p)
	}

	// The leader of everything is killed, others take over, and it comes back.
	w.must("kill", k.Kill(2))
	w.until("others lead", func() bool {
		return w.every("moves", func(d kadm.PartitionDetail) bool { return d.Leader > 0 && d.Leader != 2 })
	})
	load.goesOn(p)
	w.must("start", k.StartNode(2))
	w.until("all are in sync", func() bool {
		set := kadm.TopicsSet{} // a broker that missed its heartbeats meanwhile has lost what it led
		set.Add("ule-on", 0)
		set.Add("ule-off", 0)
		_, _ = w.adm.ElectLeaders(ctx, kadm.ElectPreferredReplica, set)
		return w.every("moves", func(d kadm.PartitionDetail) bool { return len(d.ISR) == 3 }) &&
			w.every("ule-on", func(d kadm.PartitionDetail) bool { return len(d.ISR) == 2 && d.Leader == 1 }) &&
			w.every("ule-off", func(d kadm.PartitionDetail) bool { return len(d.ISR) == 2 && d.Leader == 1 })
	})
	load.goesOn(p)

	// Node 2 misses 30 acknowledged records, then 1 dies and 2 is elected without them.
	w.write("ule-on", 20)
	w.write("ule-off", 20)
	w.must("kill", k.Kill(2))
	w.until("node 2 is out of sync", func() bool {
		alone := func(d kadm.PartitionDetail) bool { return len(d.ISR) == 1 && d.Leader == 1 }
		return w.every("ule-on", alone) && w.every("ule-off", alone)
	})
	w.write("ule-on", 30)
	w.write("ule-off", 30)
	for _, topic := range []string{"ule-on", "ule-off"} {
		w.until(topic+" is copied to 50", func() bool { return endOffsets(ctx, t, p.Addr, topic) == "50" })
	}
	held := readAll(ctx, t, p.Addr, "ule-off", false)[0]
	w.must("kill", k.Kill(1))
	w.must("start", k.StartNode(2))
	w.until("node 2 is elected uncleanly", func() bool {
		set := kadm.TopicsSet{}
		set.Add("ule-on", 0)
		set.Add("ule-off", 0)
		_, _ = w.adm.ElectLeaders(ctx, kadm.ElectLiveReplica, set)
		led := func(d kadm.PartitionDetail) bool { return d.Leader == 2 }
		return w.every("ule-on", led) && w.every("ule-off", led)
	})
	if end := endOffsets(ctx, t, k.Bootstrap, "ule-on"); end != "20" {
		t.Fatalf("the source's end is %s: nothing was lost, so this test shows nothing", end)
	}
	w.write("ule-on", 15)
	w.write("ule-off", 15)

	var off mirrormsg.DescribeMirrorsResponseMirrorTopicPartition
	w.until("ule-off is FAILED", func() bool { off = w.part(p, "ule-off"); return off.State == "FAILED" })
	if off.RetryAttempt != -1 || off.ErrorMessage == nil || !strings.Contains(*off.ErrorMessage, "20") {
		t.Errorf("ule-off: attempt %d, %v; want -1 and the offset 20", off.RetryAttempt, off.ErrorMessage)
	}
	if now := readAll(ctx, t, p.Addr, "ule-off", false)[0]; strings.Join(now, "\n") != strings.Join(held, "\n") {
		t.Errorf("the copy of ule-off has changed: %d records, %d before", len(now), len(held))
	}
	w.until("ule-on mirrors again", func() bool {
		s := w.part(p, "ule-on")
		return s.State == "MIRRORING" && s.DestinationOffset == 35
	})
	if on := w.part(p, "ule-on"); len(on.Cuts) != 1 || on.Cuts[0].Offset != 20 {
		t.Errorf("cuts %+v, want one at 20", on.Cuts)
	}
	cut := regexp.MustCompile(`records are cut that the source does not have.*topic=ule-on.*`)
	if line := cut.FindString(eventually(t, "the log reports the cut", p.Stderr, cut)); !strings.Contains(line, "from=20") || !strings.Contains(line, "to=50") {
		t.Errorf("the log does not report the cut [20, 50): %q", line)
	}
	logs, err := filepath.Glob(filepath.Join(p.Dir, "__mirror_state-*", "*.log"))
	w.must("state logs", err)
	states := testkit.MustStet(t, "dump-log", "--mirror-state-decoder", "--files", strings.Join(logs, ","))
	if !regexp.MustCompile(`"topicName":"ule-on"[^\n]*"state":8,`).MatchString(states) || regexp.MustCompile(`"topicName":"ule-off"[^\n]*"state":8,`).MatchString(states) {
		t.Errorf("ULE_RECOVERY (8) is to be stored for ule-on and not for ule-off:\n%s", states)
	}
	w.must("start", k.StartNode(1))
	load.goesOn(p)
	load.stop()

	w.until("all is copied", func() bool {
		return strings.Fields(endOffsets(ctx, t, k.Bootstrap, "moves"))[0] != "0" && endOffsets(ctx, t, k.Bootstrap, "moves") == endOffsets(ctx, t, p.Addr, "moves")
	})
	contains(t, "verify", testkit.MustStet(t, "verify", "--source", k.Bootstrap, "--destination", p.Addr, "--topics", "moves|ule-on"), "equal: 4 partitions")
	for _, d := range w.parts(p) {
		if d.topic != "ule-off" && d.State != "MIRRORING" {
			t.Errorf("%s-%d is %s", d.topic, d.PartitionIndex, d.State)
		}
	}
	// What an operator does about ule-off: start it again, which cuts.
	testkit.MustStet(t, "configs", "--bootstrap-server", p.Addr, "--alter", "--entity-type", "topics", "--entity-name", "ule-off", "--add-config", "mirror.support.unclean.leader.election=true")
	testkit.MustStet(t, "mirrors", "--bootstrap-server", p.Addr, "--start", "--topics", "ule-off", "--mirror", "m")
	w.until("ule-off mirrors again", func() bool {
		s := w.part(p, "ule-off")
		return s.State == "MIRRORING" && s.DestinationOffset == 35
	})
	contains(t, "verify", testkit.MustStet(t, "verify", "--source", k.Bootstrap, "--destination", p.Addr, "--mirror", "m"), "equal: 5 partitions")
}

// faults is a source cluster that is mistreated.
type faults struct {
	t   *testing.T
	ctx context.Context
	k   *testkit.Kafka
	cl  *kgo.Client
	adm *kadm.Client
}

func (w *faults) must(what string, err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatalf("%s: %v", what, err)
	}
}

// create makes a topic whose replicas are where they are said to be; the first leads.
func (w *faults) create(topic string, replicas [][]int32, configs ...string) {
	w.t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 10_000
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = topic, -1, -1
	for i, r := range replicas {
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Partition, a.Replicas = int32(i), r
		rt.ReplicaAssignment = append(rt.ReplicaAssignment, a)
	}
	for i := 0; i+1 < len(configs); i += 2 {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = configs[i], &configs[i+1]
		rt.Configs = append(rt.Configs, c)
	}
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(w.ctx, w.cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	w.must("topic "+topic, err)
	for node := range w.k.Brokers { // each learns of it by itself
		w.until(fmt.Sprintf("node %d knows %s", node+1, topic), func() bool {
			md := kmsg.NewPtrMetadataRequest()
			rt := kmsg.NewMetadataRequestTopic()
			rt.Topic = kmsg.StringPtr(topic)
			md.Topics = append(md.Topics, rt)
			kresp, err := w.cl.Broker(node+1).Request(w.ctx, md)
			return err == nil && kresp.(*kmsg.MetadataResponse).Topics[0].ErrorCode == 0
		})
	}
}

// until polls what happens in other processes.
func (w *faults) until(what string, ok func() bool) {
	w.t.Helper()
	start := time.Now()
	for deadline := start.Add(90 * time.Second); ; <-time.After(50 * time.Millisecond) {
		if ok() {
			w.t.Logf("%s after %s", what, time.Since(start).Round(10*time.Millisecond))
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("not within 90 s: %s", what)
		}
	}
}

func (w *faults) every(topic string, ok func(kadm.PartitionDetail) bool) bool {
	ctx, cancel := context.WithTimeout(w.ctx, 5*time.Second)
	defer cancel()
	all, err := w.adm.ListTopics(ctx, topic)
	if err != nil || all[topic].Err != nil || len(all[topic].Partitions) == 0 {
		return false
	}
	for _, d := range all[topic].Partitions {
		if !ok(d) {
			return false
		}
	}
	return true
}

// write appends n acknowledged records, a batch each.
func (w *faults) write(topic string, n int) {
	w.t.Helper()
	cl := testkit.Client(w.t, w.k.Bootstrap, kgo.RetryTimeout(60*time.Second))
	defer cl.Close()
	for i := range n {
		w.must("write to "+topic, cl.ProduceSync(w.ctx, &kgo.Record{Topic: topic, Value: fmt.Appendf(nil, "%s %d of %d", topic, i, n)}).FirstErr())
	}
}

// mirrored is a partition as DescribeMirrors shows it.
type mirrored struct {
	topic string
	mirrormsg.DescribeMirrorsResponseMirrorTopicPartition
}

func (w *faults) parts(p *testkit.Process) (out []mirrored) {
	w.t.Helper()
	cl := testkit.Client(w.t, p.Addr)
	defer cl.Close()
	resp, err := mirrormsg.NewPtrDescribeMirrorsRequest().RequestWith(w.ctx, cl)
	w.must("describe", err)
	for i := range resp.Mirrors {
		for j := range resp.Mirrors[i].Topics {
			rt := &resp.Mirrors[i].Topics[j]
			for _, rp := range rt.Partitions {
				out = append(out, mirrored{rt.TopicName, rp})
			}
		}
	}
	return out
}

func (w *faults) part(p *testkit.Process, topic string) mirrormsg.DescribeMirrorsResponseMirrorTopicPartition {
	w.t.Helper()
	for _, d := range w.parts(p) {
		if d.topic == topic && d.PartitionIndex == 0 {
			return d.DescribeMirrorsResponseMirrorTopicPartition
		}
	}
	w.t.Fatalf("%s is not in the mirror", topic)
	return mirrormsg.DescribeMirrorsResponseMirrorTopicPartition{}
}

// sourceLoad writes all the time, whatever happens to the cluster.
type sourceLoad struct {
	w          *faults
	topic      string
	partitions int32
	cancel     context.CancelFunc
	wg         sync.WaitGroup
}

func (w *faults) load(topic string, partitions int32) *sourceLoad {
	ctx, cancel := context.WithCancel(w.ctx)
	l := &sourceLoad{w: w, topic: topic, partitions: partitions, cancel: cancel}
	cl := testkit.Client(w.t, w.k.Bootstrap, kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RecordRetries(1<<30),
		kgo.RetryTimeout(2*time.Minute), kgo.ProducerBatchCompression(kgo.Lz4Compression()))
	l.wg.Go(func() {
		value := bytes.Repeat([]byte("load "), 200)
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ctx.Err() == nil; i++ {
			cl.Produce(w.ctx, &kgo.Record{Partition: int32(i) % partitions, Value: value}, func(_ *kgo.Record, err error) {
				if err != nil {
					w.t.Errorf("load: %v", err)
				}
			})
			<-tick.C
		}
		if err := cl.Flush(w.ctx); err != nil {
			w.t.Errorf("load: %v", err)
		}
	})
	w.t.Cleanup(l.stop)
	return l
}

func (l *sourceLoad) stop() {
	l.cancel()
	l.wg.Wait()
}

// goesOn waits until every partition of the copy has grown.
func (l *sourceLoad) goesOn(p *testkit.Process) {
	l.w.t.Helper()
	before := map[int32]int64{}
	ends := func() map[int32]int64 {
		m := map[int32]int64{}
		for _, d := range l.w.parts(p) {
			if d.topic == l.topic {
				m[d.PartitionIndex] = d.DestinationOffset
			}
		}
		return m
	}
	for i, end := range ends() {
		before[i] = end
	}
	l.w.until("the copy goes on", func() bool {
		now := ends()
		for i := range l.partitions {
			if now[i] <= before[i] {
				return false
			}
		}
		return true
	})
}
