package main_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"stet/internal/testkit"
	"stet/internal/testkit/scripted"
	"stet/zerocopy/batch"
)

// TestKillDuringStop is C64 on real files: kill -9 at any moment of a stop. The next
// process finishes the barrier: each open transaction is aborted once, there is one
// reset record, one epoch, and what was copied is untouched.
func TestKillDuringStop(t *testing.T) {
	t.Parallel()
	ctx := contextFor(t, 3*time.Minute)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 64))
	src := scripted.NewCluster(t, 1)
	p := testkit.StartProcess(t, "", "mirror.metadata.refresh.interval.ms=500")
	createMirror(t, p, "m", src.Bootstrap(), "fetch.wait.max.ms=100")
	inTime := 0
	for round := range 14 {
		topic := src.CreateTopic(fmt.Sprintf("t%d", round), 3)
		for i := range int32(3) {
			for n := range int64(4) { // producers 1 and 3 have open transactions
				h := batch.Header{BaseOffset: n, Timestamp: 1, ProducerID: n, ProducerEpoch: 5}
				if n%2 == 1 {
					h.Attributes = batch.AttrTransactional
				}
				src.Append(topic, i, batch.Build(nil, h, batch.KV{Value: []byte("v")}))
			}
		}
		mirrors := []string{"mirrors", "--bootstrap-server", p.Addr, "--mirror", "m", "--topics", topic.Name}
		testkit.MustStet(t, append(mirrors, "--start")...)
		eventually(t, topic.Name+" is copied", func() string {
			return testkit.MustStet(t, "mirrors", "--bootstrap-server", p.Addr, "--describe", "--mirror", "m")
		}, copiedTo(topic.Name, 3, 4))

		stop := exec.Command(testkit.Binary(t), append(mirrors, "--stop")...)
		if err := stop.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- stop.Wait() }()
		select {
		case err := <-ended:
			if err != nil {
				t.Fatalf("stop: %v", err)
			}
			inTime++
		case <-time.After(10*time.Millisecond + time.Duration(rnd.Int64N(int64(120*time.Millisecond)))): // the moment is the point of the test
		}
		p.Kill()
		_ = stop.Process.Kill()
		p.Restart(t)
		testkit.MustStet(t, append(mirrors, "--stop")...) // it may not have got to the broker
		cl := testkit.Client(t, p.Addr, kgo.RecordPartitioner(kgo.ManualPartitioner()))
		for i := range int32(3) {
			r := cl.ProduceSync(ctx, &kgo.Record{Topic: topic.Name, Partition: i, Value: []byte("local")})
			if err := r.FirstErr(); err != nil || r[0].Record.Offset != 7 {
				t.Errorf("round %d, partition %d: offset %d, %v; want 7", round, i, r[0].Record.Offset, err)
			}
			copied, barrier := stoppedLog(t, filepath.Join(p.Dir, fmt.Sprintf("%s-%d", topic.Name, i)), 4)
			if copied != string(src.Bytes(topic, i)) {
				t.Errorf("round %d, partition %d: what was copied has changed", round, i)
			}
			if got := strings.Join(barrier, ", "); got != "4 ABORT 1, 5 ABORT 3, 6 RESET -1, 7 DATA" {
				t.Errorf("round %d, partition %d: after the copy come %s", round, i, got)
			}
		}
	}
	t.Logf("%d of 14 stops had been answered before the kill", inTime)
}

// stoppedLog reads all segments of a partition: the bytes below an offset, and what each batch from it on is.
func stoppedLog(t *testing.T, dir string, from int64) (copied string, after []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: no segments, %v", dir, err)
	}
	var below []byte
	lowest, highest := int32(math.MaxInt32), int32(0)
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for len(raw) > 0 {
			b, rest, err := batch.Next(raw)
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			raw = rest
			if b.BaseOffset() < from {
				below = append(below, b...)
				continue
			}
			line := fmt.Sprintf("%d DATA", b.BaseOffset())
			if b.IsControl() {
				kind, err := b.ControlType()
				if err != nil {
					t.Fatal(err)
				}
				line = fmt.Sprintf("%d %s %d", b.BaseOffset(), map[int16]string{batch.ControlAbort: "ABORT", batch.ControlCommit: "COMMIT", batch.ControlMirrorPIDReset: "RESET"}[kind], b.ProducerID())
			}
			lowest, highest = min(lowest, b.PartitionLeaderEpoch()), max(highest, b.PartitionLeaderEpoch())
			after = append(after, line)
		}
	}
	// One jump; a restart raises the epoch too, by one.
	if lowest < 65536 || highest-lowest > 1000 {
		t.Errorf("%s: epochs %d to %d after the copy", dir, lowest, highest)
	}
	return string(below), after
}
