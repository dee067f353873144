package main_test

import (
	"fmt"
	"os/exec"
	"reflect"
	"sort"
	"strings"
	"testing"
	"time"

	"stet/internal/testkit"
)

// TestMirrorOfRealKafkaIsByteIdentical: everything that a batch can hold, from
// Kafka 4.3 with one and three nodes and from 3.9, compared with the source's
// segment files, and read by three clients in both isolation levels.
func TestMirrorOfRealKafkaIsByteIdentical(t *testing.T) {
	t.Parallel()
	testkit.NeedKafka(t)
	for _, c := range []struct {
		version string
		brokers int
		clients bool // the slow ones too
	}{{testkit.Kafka43, 1, true}, {testkit.Kafka43, 3, false}, {testkit.Kafka39, 1, false}} {
		t.Run(fmt.Sprintf("%s with %d nodes", c.version, c.brokers), func(t *testing.T) {
			t.Parallel()
			ctx := contextFor(t, 4*time.Minute)
			k := sharedKafka(t, c.version, c.brokers)
			topics := fill(ctx, t, k.Bootstrap, "ident-")
			p := testkit.StartProcess(t, "")
			mirror(t, p, "m", k.Bootstrap, "ident-.*")
			waitFor(t, p, "m", "lag-zero")
			sameFiles(t, k.DataDir(1), p.Dir, topics)
			contains(t, "verify", testkit.MustStet(t, "verify", "--source", k.Bootstrap, "--destination", p.Addr, "--mirror", "m"), "equal: 7 partitions")
			for _, topic := range topics {
				for _, committed := range []bool{false, true} {
					src, dst := readAll(ctx, t, k.Bootstrap, topic, committed), readAll(ctx, t, p.Addr, topic, committed)
					if !reflect.DeepEqual(src, dst) {
						t.Errorf("franz-go, %s, committed %t: the source gives %d partitions, the copy %d, or other records", topic, committed, len(src), len(dst))
					}
					if c.clients {
						n := 0
						for _, records := range src {
							n += len(records)
						}
						sameByClients(t, k.Bootstrap, p.Addr, topic, committed, n)
					}
				}
			}
			// It follows live.
			testkit.MustStet(t, "loadgen", "lag", "--source", k.Bootstrap, "--destination", p.Addr, "--topic", topics[0], "--rate", "2MB", "--duration", "2s", "--warmup", "0s", "--max-slip", "1m")
			sameFiles(t, k.DataDir(1), p.Dir, topics)
		})
	}
}

// sameByClients compares what the console consumer and librdkafka read from both sides.
func sameByClients(t *testing.T, source, destination, topic string, committed bool, records int) {
	t.Helper()
	level := "read_uncommitted"
	if committed {
		level = "read_committed"
	}
	console := func(addr string) []string {
		out := testkit.Tool(t, "console-consumer", "--bootstrap-server", addr, "--topic", topic, "--from-beginning", "--timeout-ms", "30000", "--max-messages", fmt.Sprint(records),
			"--property", "print.offset=true", "--property", "print.partition=true", "--property", "print.headers=true", "--property", "print.timestamp=true",
			"--property", "print.key=true", "--consumer-property", "isolation.level="+level)
		var lines []string
		for _, l := range strings.Split(out, "\n") {
			if strings.Contains(l, "Partition:") {
				lines = append(lines, l)
			}
		}
		sort.Strings(lines)
		return lines
	}
	a, b := console(source), console(destination)
	if len(a) != records || !reflect.DeepEqual(a, b) {
		t.Errorf("console consumer, %s, %s: %d lines from the source, %d from the copy, or other ones", topic, level, len(a), len(b))
	}
	if _, err := exec.LookPath("kcat"); err != nil {
		return
	}
	kcat := func(addr string) []string {
		out, err := exec.Command("kcat", "-b", addr, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-f", "%p %o %T %h %k %S\n", "-X", "isolation.level="+level).CombinedOutput()
		if err != nil {
			t.Fatalf("kcat: %v\n%s", err, out)
		}
		lines := strings.Split(string(out), "\n")
		sort.Strings(lines)
		return lines
	}
	a, b = kcat(source), kcat(destination)
	if len(a) < 2 || !reflect.DeepEqual(a, b) {
		t.Errorf("librdkafka, %s, %s: %d lines from the source, %d from the copy, or other ones", topic, level, len(a), len(b))
	}
}
