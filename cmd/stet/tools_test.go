package main_test

import (
	"os/exec"
	"strings"
	"testing"

	"stet/internal/testkit"
)

// contains checks that an output has all of these.
func contains(t *testing.T, what, out string, wants ...string) {
	t.Helper()
	for _, w := range wants {
		if !strings.Contains(out, w) {
			if len(out) > 2000 {
				out = out[:1000] + "\n...\n" + out[len(out)-1000:]
			}
			t.Errorf("%s: lacks %q:\n%s", what, w, out)
		}
	}
}

// TestKafkaToolsAgainstStet runs Apache Kafka's own tools as an operator would.
func TestKafkaToolsAgainstStet(t *testing.T) {
	t.Parallel()
	testkit.NeedKafka(t)
	p := testkit.StartProcess(t, "")
	b := []string{"--bootstrap-server", p.Addr}
	run := func(tool string, args ...string) string {
		t.Helper()
		return testkit.Tool(t, append(append([]string{tool}, b...), args...)...)
	}
	contains(t, "topics --create", run("topics", "--create", "--topic", "orders", "--partitions", "3", "--config", "retention.ms=3600000"), "Created topic orders.")
	contains(t, "topics --list", run("topics", "--list"), "orders")
	contains(t, "topics --describe", run("topics", "--describe", "--topic", "orders"), "PartitionCount: 3", "ReplicationFactor: 1", "retention.ms=3600000", "Leader: 1")
	run("topics", "--alter", "--topic", "orders", "--partitions", "4")
	contains(t, "topics --describe after --alter", run("topics", "--describe", "--topic", "orders"), "PartitionCount: 4")

	contains(t, "configs --alter", run("configs", "--alter", "--entity-type", "topics", "--entity-name", "orders", "--add-config", "max.message.bytes=2000000"), "Completed updating config for topic orders.")
	contains(t, "configs --describe", run("configs", "--describe", "--entity-type", "topics", "--entity-name", "orders"), "max.message.bytes=2000000", "DYNAMIC_TOPIC_CONFIG")
	contains(t, "configs of the broker", run("configs", "--describe", "--entity-type", "brokers", "--entity-name", "1", "--all"), "log.dir", "num.partitions=1")

	out, err := testkit.TryTool(t, "a:1\nb:2\nc:3\n", "console-producer", "--bootstrap-server", p.Addr, "--topic", "console", "--property", "parse.key=true", "--property", "key.separator=:")
	if err != nil {
		t.Fatalf("console-producer: %v\n%s", err, out)
	}
	contains(t, "console-consumer", run("console-consumer", "--topic", "console", "--from-beginning", "--max-messages", "3", "--group", "g1", "--property", "print.key=true"), "a\t1", "b\t2", "c\t3", "Processed a total of 3 messages")
	contains(t, "console-consumer by partition", run("console-consumer", "--topic", "console", "--partition", "0", "--offset", "1", "--max-messages", "2"), "2\n3\n")

	contains(t, "consumer-groups --list", run("consumer-groups", "--list"), "g1")
	contains(t, "consumer-groups --describe", run("consumer-groups", "--describe", "--group", "g1"), "g1", "console", "3")
	contains(t, "consumer-groups --state", run("consumer-groups", "--describe", "--group", "g1", "--state"), "Empty")
	contains(t, "consumer-groups --reset-offsets", run("consumer-groups", "--reset-offsets", "--group", "g1", "--topic", "console", "--to-offset", "1", "--execute"), "console")
	contains(t, "consumer-groups after the reset", run("consumer-groups", "--describe", "--group", "g1"), " 1 ")
	contains(t, "consumer-groups --delete-offsets", run("consumer-groups", "--delete-offsets", "--group", "g1", "--topic", "console"), "Request succeed")
	contains(t, "consumer-groups --delete", run("consumer-groups", "--delete", "--group", "g1"), "Deletion of requested consumer groups")

	contains(t, "producer-perf", testkit.Tool(t, "producer-perf", "--bootstrap-server", p.Addr, "--topic", "orders", "--num-records", "20000", "--record-size", "500", "--throughput", "-1"), "20000 records sent")
	contains(t, "consumer-perf", run("consumer-perf", "--topic", "orders", "--num-records", "20000", "--timeout", "60000"), "9.5367")
	contains(t, "get-offsets", run("get-offsets", "--topic", "console"), "console:0:3")
	contains(t, "get-offsets earliest", run("get-offsets", "--topic", "console", "--time", "-2"), "console:0:0")
	contains(t, "log-dirs", run("log-dirs", "--describe", "--topic-list", "orders"), `"partition":"orders-3"`)
	contains(t, "cluster", testkit.Tool(t, "cluster", "cluster-id", "--bootstrap-server", p.Addr), p.Cluster)
	contains(t, "broker-api-versions", run("broker-api-versions"), "Produce(0): 0 to 13")
	run("topics", "--delete", "--topic", "console")
	if out := run("topics", "--list"); strings.Contains(out, "console") {
		t.Errorf("console is still listed:\n%s", out)
	}

	if code := p.Stop(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
	dump := testkit.Tool(t, "dump-log", "--files", p.Dir+"/orders-0/00000000000000000000.log,"+p.Dir+"/orders-0/00000000000000000000.index,"+p.Dir+"/orders-0/00000000000000000000.timeindex", "--index-sanity-check")
	for _, bad := range []string{"mismatch", "Mismatch", "Found timestamp", "isvalid: false"} {
		if strings.Contains(dump, bad) {
			t.Errorf("dump-log finds %q:\n%s", bad, dump)
		}
	}
	contains(t, "dump-log", dump, "isvalid: true", "passed sanity check")
}

// TestLibrdkafkaAgainstStet produces and consumes with kcat in every codec, with and without a group.
func TestLibrdkafkaAgainstStet(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("kcat"); err != nil {
		t.Skip("needs kcat (librdkafka): apt-get install kcat")
	}
	p := testkit.StartProcess(t, "")
	kcat := func(input string, args ...string) string {
		t.Helper()
		cmd := exec.Command("kcat", append([]string{"-b", p.Addr}, args...)...)
		cmd.Stdin = strings.NewReader(input)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("kcat %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		kcat("one\ntwo\nthree\n", "-P", "-t", "t-"+codec, "-z", codec, "-X", "enable.idempotence=true")
		contains(t, codec, kcat("", "-C", "-t", "t-"+codec, "-o", "beginning", "-e", "-q", "-f", "%o:%s "), "0:one 1:two 2:three")
	}
	contains(t, "group", kcat("", "-G", "g", "-e", "-q", "-X", "auto.offset.reset=earliest", "t-zstd"), "one\ntwo\nthree")
	contains(t, "metadata", kcat("", "-L"), "1 brokers", `topic "t-gzip" with 1 partitions`)
}
