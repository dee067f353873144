package main_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"stet/broker/mirrormsg"
	"stet/internal/testkit"
	"stet/zerocopy/batch"
)

// TestAcknowledgedMetadataSurvivesKill: kill -9 at the very moment of the
// acknowledgement of a create, an alteration or a deletion of a topic or a mirror.
func TestAcknowledgedMetadataSurvivesKill(t *testing.T) {
	t.Parallel()
	ctx := contextFor(t, 4*time.Minute)
	p := testkit.StartProcess(t, "")
	w := &durable{t: t, ctx: ctx, p: p}
	for round := range 10 {
		topic, mirror := fmt.Sprintf("topic-%d", round), fmt.Sprintf("mirror-%d", round)
		retention := fmt.Sprint(1000 + round)
		var id kadm.TopicID

		w.killedAfter(func(adm *kadm.Client, _ *kgo.Client) error {
			r, err := adm.CreateTopic(ctx, 3, 1, map[string]*string{"retention.ms": kadm.StringPtr("1")}, topic)
			id = r.ID
			return err
		})
		w.is("the created topic", func(adm *kadm.Client, cl *kgo.Client) error {
			all, err := adm.ListTopics(ctx, topic)
			if err != nil {
				return err
			}
			if d := all[topic]; d.Err != nil || d.ID != id || len(d.Partitions) != 3 {
				return fmt.Errorf("%w, id %s, %d partitions; want id %s and 3", d.Err, d.ID, len(d.Partitions), id)
			}
			return cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("v")}).FirstErr()
		})

		w.killedAfter(func(adm *kadm.Client, _ *kgo.Client) error {
			r, err := adm.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Name: "retention.ms", Value: &retention}, {Op: kadm.SetConfig, Name: "cleanup.policy", Value: kadm.StringPtr("compact")}}, topic)
			if err == nil {
				err = r[0].Err
			}
			return err
		})
		w.is("the altered configs", func(adm *kadm.Client, _ *kgo.Client) error {
			r, err := adm.DescribeTopicConfigs(ctx, topic)
			if err != nil {
				return err
			}
			got := map[string]string{}
			for _, c := range r[0].Configs {
				got[c.Key] = c.MaybeValue()
			}
			if got["retention.ms"] != retention || got["cleanup.policy"] != "compact" {
				return fmt.Errorf("retention.ms=%s cleanup.policy=%s", got["retention.ms"], got["cleanup.policy"])
			}
			return nil
		})

		w.killedAfter(func(_ *kadm.Client, cl *kgo.Client) error { return w.createMirror(cl, mirror) })
		w.is("the created mirror", func(_ *kadm.Client, cl *kgo.Client) error { return w.mirrorIs(cl, mirror, true) })

		w.killedAfter(func(adm *kadm.Client, _ *kgo.Client) error {
			r, err := adm.CreatePartitions(ctx, 2, topic)
			if err == nil {
				err = r.Error()
			}
			return err
		})
		w.is("the added partitions", func(adm *kadm.Client, _ *kgo.Client) error {
			all, err := adm.ListTopics(ctx, topic)
			if err == nil && len(all[topic].Partitions) != 5 {
				err = fmt.Errorf("%d partitions", len(all[topic].Partitions))
			}
			return err
		})

		w.killedAfter(func(adm *kadm.Client, cl *kgo.Client) error {
			if r, err := adm.DeleteTopic(ctx, topic); err != nil || r.Err != nil {
				return errors.Join(err, r.Err)
			}
			if round%2 == 0 { // the deletion of a mirror is the last thing in every second round
				return nil
			}
			req := mirrormsg.NewPtrDeleteMirrorRequest()
			req.MirrorName = mirror
			resp, err := req.RequestWith(ctx, cl)
			if err == nil {
				err = mirrormsg.ErrorForCode(resp.ErrorCode)
			}
			return err
		})
		w.is("the deletions", func(adm *kadm.Client, cl *kgo.Client) error {
			all, err := adm.ListTopics(ctx, topic)
			if err != nil {
				return err
			}
			if d, ok := all[topic]; ok && !errors.Is(d.Err, kerr.UnknownTopicOrPartition) {
				return fmt.Errorf("the topic is there: %w", d.Err)
			}
			if dirs, _ := filepath.Glob(filepath.Join(p.Dir, topic+"-?")); len(dirs) > 0 {
				return fmt.Errorf("its folders are there: %v", dirs)
			}
			return w.mirrorIs(cl, mirror, round%2 == 0)
		})
	}
}

// TestStartedMirrorSurvivesKill: kill -9 right after an acknowledged start, pause
// and stop; the intent is carried out by the next process.
func TestStartedMirrorSurvivesKill(t *testing.T) {
	t.Parallel()
	ctx := contextFor(t, 4*time.Minute)
	src := testkit.StartProcess(t, "")
	p := testkit.StartProcess(t, "", "mirror.metadata.refresh.interval.ms=500")
	createMirror(t, p, "m", src.Addr)
	for round := range 5 {
		topic := fmt.Sprintf("t%d", round)
		createTopic(ctx, t, src.Addr, topic, 2)
		if err := testkit.Client(t, src.Addr).ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("v")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		run := func(args ...string) {
			t.Helper()
			testkit.MustStet(t, append([]string{"mirrors", "--bootstrap-server", p.Addr, "--mirror", "m"}, args...)...)
			p.Kill()
			p.Restart(t)
		}
		run("--start", "--topics", topic)
		waitFor(t, p, "m", "lag-zero")
		run("--pause", "--topics", topic)
		waitFor(t, p, "m", "PAUSED")
		run("--resume", "--topics", topic)
		waitFor(t, p, "m", "lag-zero")
		run("--stop", "--topics", topic)
		waitFor(t, p, "m", "STOPPED")
		if err := testkit.Client(t, p.Addr).ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("local")}).FirstErr(); err != nil {
			t.Errorf("after the stop: %v", err)
		}
		contains(t, "verify", testkit.MustStet(t, "verify", "--source", src.Addr, "--destination", p.Addr, "--topics", topic), "equal:")
		testkit.MustStet(t, "mirrors", "--bootstrap-server", p.Addr, "--delete", "--mirror", "m")
		createMirror(t, p, "m", src.Addr)
	}
}

// durable is a broker that is killed after every acknowledgement.
type durable struct {
	t   *testing.T
	ctx context.Context
	p   *testkit.Process
}

func (w *durable) with(f func(*kadm.Client, *kgo.Client) error) error {
	cl := testkit.Client(w.t, w.p.Addr)
	defer cl.Close()
	return f(kadm.NewClient(cl), cl)
}

func (w *durable) killedAfter(f func(*kadm.Client, *kgo.Client) error) {
	w.t.Helper()
	err := w.with(func(adm *kadm.Client, cl *kgo.Client) error {
		err := f(adm, cl)
		w.p.Kill()
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.p.Restart(w.t)
}

func (w *durable) is(what string, f func(*kadm.Client, *kgo.Client) error) {
	w.t.Helper()
	if err := w.with(f); err != nil {
		w.t.Errorf("%s after kill -9: %v", what, err)
	}
}

// createMirror creates a mirror of a source that nobody answers for.
func (w *durable) createMirror(cl *kgo.Client, name string) error {
	req := mirrormsg.NewPtrCreateMirrorRequest()
	req.MirrorName = name
	c := mirrormsg.NewCreateMirrorRequestConfig()
	c.Name, c.Value = "bootstrap.servers", kadm.StringPtr("127.0.0.1:1")
	req.Config = append(req.Config, c)
	resp, err := req.RequestWith(w.ctx, cl)
	if err == nil {
		err = mirrormsg.ErrorForCode(resp.ErrorCode)
	}
	return err
}

func (w *durable) mirrorIs(cl *kgo.Client, name string, there bool) error {
	resp, err := mirrormsg.NewPtrListMirrorsRequest().RequestWith(w.ctx, cl)
	if err != nil {
		return err
	}
	found := false
	for _, m := range resp.Mirrors {
		if m.MirrorName == name {
			found = true
			if m.SourceBootstrap != "127.0.0.1:1" {
				return fmt.Errorf("mirror %s has the bootstrap server %q", name, m.SourceBootstrap)
			}
		}
	}
	if found != there {
		return fmt.Errorf("mirror %s is there: %t, want %t", name, found, there)
	}
	return nil
}

// TestVerifyFindsOneFlippedByte: `stet verify` on clusters and on folders says where, exit code 1.
func TestVerifyFindsOneFlippedByte(t *testing.T) {
	t.Parallel()
	ctx := contextFor(t, time.Minute)
	src := testkit.StartProcess(t, "")
	createTopic(ctx, t, src.Addr, "t", 2)
	cl := testkit.Client(t, src.Addr, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
	for i := range 40 { // a batch each
		if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "t", Partition: int32(i % 2), Value: fmt.Appendf(nil, "value-%02d", i/2)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	p := testkit.StartProcess(t, "", "mirror.metadata.refresh.interval.ms=500")
	mirror(t, p, "m", src.Addr, "t")
	waitFor(t, p, "m", "lag-zero")
	last := func(out string) string {
		lines := strings.Split(strings.TrimSpace(out), "\n")
		return lines[len(lines)-1]
	}
	clusters := []string{"verify", "--source", src.Addr, "--destination", p.Addr, "--mirror", "m"}
	dirs := []string{"verify", "--source-dir", src.Dir, "--destination-dir", p.Dir, "--topics", "t"}
	for _, args := range [][]string{clusters, dirs} {
		out, errs, code := testkit.Stet(t, args...)
		if code != 0 || !strings.HasPrefix(last(out), "equal: 2 partitions, 40 batches, ") {
			t.Fatalf("before: code %d\n%s%s", code, out, errs)
		}
	}
	file := filepath.Join(p.Dir, "t-1", "00000000000000000000.log")
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	at := strings.Index(string(raw), "value-13")
	if at < 0 {
		t.Fatal("value-13 is not stored as it is")
	}
	raw[at] ^= 0x40 // 'v' 0x76 becomes '6' 0x36, in the batch at offset 13
	if err := os.WriteFile(file, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	start := 0 // of the batch that holds it
	for size := int(batch.SizeOf(raw)); start+size <= at; size = int(batch.SizeOf(raw[start:])) {
		start += size
	}
	want := fmt.Sprintf("different: t-1 offset 13 byte %d of the batch: source 0x76, destination 0x36", at-start)
	for _, args := range [][]string{clusters, dirs, append(clusters[:len(clusters):len(clusters)], "--json")} {
		out, errs, code := testkit.Stet(t, args...)
		if code != 1 || last(out) != want {
			t.Errorf("code %d, last line %q, want 1 and %q\n%s", code, last(out), want, errs)
		}
	}
}
