package main_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"stet/internal/testkit"
)

// TestKafkaDirectoriesBothWays: topics with delete policy, every codec, transactions (committed, aborted, open)
// and compaction. Apache Kafka is killed, and Stet serves the same records from its directories; Stet is
// killed, and Kafka serves the same records from Stet's: those that it mirrored and those of its own producers.
// Both dump-logs print the same of all files.
func TestKafkaDirectoriesBothWays(t *testing.T) {
	t.Parallel()
	testkit.NeedKafka(t)
	for _, version := range []string{testkit.Kafka43, testkit.Kafka39} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			s := &directories{t: t, ctx: contextFor(t, 6*time.Minute)}
			s.k = testkit.StartKafka(t, version, 1, "log.segment.bytes=1048576", "log.cleaner.backoff.ms=100", "log.cleaner.min.cleanable.ratio=0.01", "offsets.topic.num.partitions=1", "transaction.state.log.num.partitions=1")
			s.fillKafka()
			if version == testkit.Kafka43 {
				if err := s.k.StopNode(1); err != nil {
					t.Fatal(err)
				}
				sameDumps(t, s.k.DataDir(1), false)
				if err := s.k.StartNode(1); err != nil {
					t.Fatal(err)
				}
			}
			s.fillStet()
			kafkas, stets := s.kill()
			s.stetOpens(kafkas)
			s.kafkaOpens(stets)
			if version == testkit.Kafka43 {
				sameDumps(t, stets, true)
			}
		})
	}
}

type directories struct {
	t    *testing.T
	ctx  context.Context
	k    *testkit.Kafka
	p    *testkit.Process
	want map[string]map[bool]map[int32][]string // topic, read committed, partition
}

// dirTopic is a topic of the scenario.
type dirTopic struct {
	name       string
	partitions int32
	configs    []string
}

var (
	compacted     = []string{"cleanup.policy", "compact", "segment.bytes", "1048576", "min.cleanable.dirty.ratio", "0.01"}
	mirroredDirs  = []dirTopic{{"d-codecs", 5, nil}, {"d-txns", 2, nil}, {"d-compact", 1, compacted}}
	ownDirs       = []dirTopic{{"own-codecs", 5, []string{"segment.bytes", "1048576"}}, {"own-compact", 1, compacted}}
	dirIdentities = map[string]bool{"partition.metadata": true, "stet.incarnation": true}
)

// remember reads a topic in both isolation levels.
func (s *directories) remember(addr, topic string) {
	s.t.Helper()
	if s.want == nil {
		s.want = map[string]map[bool]map[int32][]string{}
	}
	s.want[topic] = map[bool]map[int32][]string{}
	for _, committed := range []bool{false, true} {
		r := readAll(s.ctx, s.t, addr, topic, committed)
		if len(r) == 0 {
			s.t.Fatalf("%s is empty", topic)
		}
		s.want[topic][committed] = r
	}
}

// serves checks that a broker serves what was remembered.
func (s *directories) serves(who, addr, topic string) {
	s.t.Helper()
	for _, committed := range []bool{false, true} {
		got, want := readAll(s.ctx, s.t, addr, topic, committed), s.want[topic][committed]
		if reflect.DeepEqual(got, want) {
			continue
		}
		for p, w := range want {
			g := got[p]
			for i := range min(len(w), len(g)) {
				if w[i] != g[i] {
					s.t.Errorf("%s: %s-%d, committed %v, record %d: %.200s, want %.200s", who, topic, p, committed, i, g[i], w[i])
					break
				}
			}
			if len(g) != len(w) {
				s.t.Errorf("%s: %s-%d, committed %v: %d records, want %d", who, topic, p, committed, len(g), len(w))
			}
		}
	}
}

func (s *directories) fillKafka() {
	addr := s.k.Bootstrap
	fill(s.ctx, s.t, addr, "d-")
	createTopic(s.ctx, s.t, addr, "d-compact", 1, compacted...)
	fillCompacted(s.ctx, s.t, addr, "d-compact")
	commitOffsets(s.ctx, s.t, addr, "d-txns")
	for _, d := range ownDirs { // for Stet's own topics to be put in their places
		createTopic(s.ctx, s.t, addr, d.name, d.partitions, d.configs...)
	}
	awaitCleaner(s.ctx, s.t, s.k.DataDir(1), "d-compact")
}

// fillStet mirrors Kafka's topics and writes topics of its own.
func (s *directories) fillStet() {
	for _, d := range mirroredDirs {
		s.remember(s.k.Bootstrap, d.name)
	}
	if c, u := s.want["d-txns"][true], s.want["d-txns"][false]; reflect.DeepEqual(c, u) {
		s.t.Error("the isolation levels do not differ")
	}
	s.p = testkit.StartProcess(s.t, "", "log.cleaner.backoff.ms=100")
	mirror(s.t, s.p, "m", s.k.Bootstrap, "d-codecs,d-txns,d-compact")
	for _, d := range ownDirs {
		createTopic(s.ctx, s.t, s.p.Addr, d.name, d.partitions, d.configs...)
	}
	rnd := rand.New(rand.NewPCG(3, 4))
	for i, codec := range codecs {
		cl := testkit.Client(s.t, s.p.Addr, kgo.ProducerBatchCompression(codec), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		for n := range 2500 {
			value := make([]byte, 600)
			for i := range value {
				value[i] = byte(rnd.Uint32())
			}
			cl.Produce(s.ctx, &kgo.Record{Topic: "own-codecs", Partition: int32(i), Key: fmt.Appendf(nil, "k%d", n), Value: value, Headers: []kgo.RecordHeader{{Key: "h"}}}, nil)
			cl.Produce(s.ctx, &kgo.Record{Topic: "own-compact", Key: fmt.Appendf(nil, "k%d", n%97), Value: value[:300]}, nil)
		}
		if err := cl.Flush(s.ctx); err != nil {
			s.t.Fatal(err)
		}
	}
	waitFor(s.t, s.p, "m", "lag-zero")
	awaitCleaner(s.ctx, s.t, s.p.Dir, "own-compact")
}

// kill ends both with SIGKILL and returns copies of what they leave. What both serve is remembered before.
func (s *directories) kill() (kafkas, stets string) {
	for _, d := range ownDirs {
		s.remember(s.p.Addr, d.name)
	}
	s.p.Kill()
	if err := s.k.Kill(1); err != nil {
		s.t.Fatal(err)
	}
	kafkas, stets = filepath.Join(s.t.TempDir(), "kafka"), filepath.Join(s.t.TempDir(), "stet")
	for to, from := range map[string]string{kafkas: s.k.DataDir(1), stets: s.p.Dir} {
		if err := os.CopyFS(to, os.DirFS(from)); err != nil {
			s.t.Fatal(err)
		}
		out, errs, code := testkit.Stet(s.t, "dump-log", "--files", to)
		if code != 0 || !strings.Contains(out, "baseOffset: ") {
			s.t.Errorf("dump-log of %s: exit code %d\n%.3000s", from, code, errs)
		}
	}
	return kafkas, stets
}

// stetOpens puts Kafka's partitions in the places of topics of the same names.
func (s *directories) stetOpens(kafkas string) {
	p := testkit.StartProcess(s.t, "", "log.cleaner.enable=false")
	for _, d := range mirroredDirs {
		createTopic(s.ctx, s.t, p.Addr, d.name, d.partitions, d.configs...)
	}
	p.Kill()
	for _, d := range mirroredDirs {
		s.replace(p.Dir, kafkas, d)
	}
	p.Restart(s.t)
	for _, d := range mirroredDirs {
		s.serves("Stet", p.Addr, d.name)
	}
	if code := p.Stop(); code != 0 {
		s.t.Errorf("exit code %d", code)
	}
	out, errs, code := testkit.Stet(s.t, "dump-log", "--files", p.Dir)
	if code != 0 || !strings.Contains(out, "baseOffset: ") {
		s.t.Errorf("dump-log after the recovery: exit code %d\n%.3000s", code, errs)
	}
}

// kafkaOpens does it the other way round.
func (s *directories) kafkaOpens(stets string) {
	dir := s.k.DataDir(1)
	for _, d := range append(mirroredDirs, ownDirs...) {
		s.replace(dir, stets, d)
	}
	if err := s.k.StartNode(1); err != nil {
		s.t.Fatal(err)
	}
	for _, d := range append(mirroredDirs, ownDirs...) {
		s.serves("Kafka", s.k.Bootstrap, d.name)
	}
	if err := s.k.StopNode(1); err != nil {
		s.t.Fatal(err)
	}
}

// replace puts the files of a topic's partitions below from into those of dir. The identity of the partition
// stays, and nothing is known of how far its files were flushed.
func (s *directories) replace(dir, from string, d dirTopic) {
	s.t.Helper()
	for p := range d.partitions {
		name := fmt.Sprintf("%s-%d", d.name, p)
		es, err := os.ReadDir(filepath.Join(dir, name))
		if err != nil {
			s.t.Fatal(err)
		}
		for _, e := range es {
			if dirIdentities[e.Name()] {
				continue
			}
			if err := os.Remove(filepath.Join(dir, name, e.Name())); err != nil {
				s.t.Fatal(err)
			}
		}
		if es, err = os.ReadDir(filepath.Join(from, name)); err != nil {
			s.t.Fatal(err)
		}
		for _, e := range es {
			if dirIdentities[e.Name()] {
				continue
			}
			b, err := os.ReadFile(filepath.Join(from, name, e.Name()))
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, name, e.Name()), b, 0o600)
			}
			if err != nil {
				s.t.Fatal(err)
			}
		}
	}
	for _, f := range []string{".kafka_cleanshutdown", "recovery-point-offset-checkpoint", "cleaner-offset-checkpoint"} {
		if err := os.Remove(filepath.Join(dir, f)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.t.Fatal(err)
		}
	}
}
