package loadgen_test

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/broker"
	"stet/broker/mirrormsg"
	"stet/internal/testkit"
	"stet/loadgen"
)

// when calls f once, when the scenario's progress has the text. It is an io.Writer for Options.Progress.
type when struct {
	mu   sync.Mutex
	text string
	f    func()
	seen bytes.Buffer
}

func (w *when) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen.Write(b)
	if w.f != nil && strings.Contains(w.seen.String(), w.text) {
		go w.f()
		w.f = nil
	}
	return len(b), nil
}

// states are the states of the mirror's partitions, after all left the passing ones.
func states(ctx context.Context, t *testing.T, dst string) string {
	t.Helper()
	cl := testkit.Client(t, dst)
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) { // a condition is polled
		req := mirrormsg.NewPtrDescribeMirrorsRequest()
		req.MirrorNames = []string{"m"}
		resp, err := req.RequestWith(ctx, cl)
		if err != nil || len(resp.Mirrors) != 1 {
			t.Fatal(err, resp)
		}
		seen := map[string]int{}
		passing := false
		for _, topic := range resp.Mirrors[0].Topics {
			for _, p := range topic.Partitions {
				seen[p.State]++
				passing = passing || p.State != "MIRRORING" && p.State != "PAUSED" && p.State != "STOPPED" && p.State != "FAILED"
			}
		}
		if !passing || time.Now().After(deadline) {
			return strings.Trim(fmt.Sprint(seen), "map[]")
		}
	}
}

func is(want string) func(string) bool { return func(got string) bool { return got == want } }

// become waits until the partitions are as wanted: the answer to a pause or a resume comes before it holds. It returns how they are.
func become(ctx context.Context, t *testing.T, dst string, right func(string) bool) (got string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) { // a condition is polled
		if got = states(ctx, t, dst); right(got) {
			break
		}
	}
	return got
}

// dynamic are the settings of the throttle that are set explicitly.
func dynamic(ctx context.Context, t *testing.T, dst string) string {
	t.Helper()
	adm := kadm.NewClient(testkit.Client(t, dst))
	br, err := adm.DescribeBrokerConfigs(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	tr, err := adm.DescribeTopicConfigs(ctx, "load")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, rc := range append(br, tr...) {
		for _, c := range rc.Configs {
			if strings.HasPrefix(c.Key, "mirror.replication.throttled.") && (c.Source == kmsg.ConfigSourceDynamicBrokerConfig || c.Source == kmsg.ConfigSourceDynamicTopicConfig) {
				out = append(out, c.Key+"="+*c.Value)
			}
		}
	}
	return strings.Join(out, " ")
}

func setThrottle(ctx context.Context, t *testing.T, dst, rate, replicas string) {
	t.Helper()
	adm := kadm.NewClient(testkit.Client(t, dst))
	alter := func(key, value string) []kadm.AlterConfig {
		return []kadm.AlterConfig{{Op: kadm.SetConfig, Name: key, Value: &value}}
	}
	br, err := adm.AlterBrokerConfigs(ctx, alter("mirror.replication.throttled.rate", rate), 1)
	if err != nil || br[0].Err != nil {
		t.Fatal(err, br)
	}
	tr, err := adm.AlterTopicConfigs(ctx, alter("mirror.replication.throttled.replicas", replicas), "load")
	if err != nil || tr[0].Err != nil {
		t.Fatal(err, tr)
	}
}

func pair(t *testing.T) (src, dst *broker.Broker) {
	t.Helper()
	src, err := testkit.TryBroker(filepath.Join(t.TempDir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	return src, testkit.StartBroker(t, "", "mirror.metadata.refresh.interval.ms=200")
}

func catchupOptions(src, dst *broker.Broker, w *when) loadgen.CatchupOptions {
	o := options()
	o.Create, o.Rate, o.CPU, o.Progress = false, loadgen.Rate{}, nil, w
	o.RecordSize, o.BatchSize, o.Compression = 1000, 1<<20, "none"
	return loadgen.CatchupOptions{Options: o, Source: src.Addr(), Destination: dst.Addr(), Mirror: "m", Topics: "load"}
}

// TestCatchupResumes: an interrupt or a lost source while it fills leaves nothing paused, and the report says what ended it.
func TestCatchupResumes(t *testing.T) {
	for _, end := range []string{"interrupt", "source"} {
		t.Run(end, func(t *testing.T) {
			src, dst := pair(t)
			all := testkit.Context(t)
			startMirror(all, t, src.Addr(), dst.Addr())
			ctx, cancel := context.WithCancel(all)
			defer cancel()
			stopped := make(chan struct{})
			w := &when{text: "fill load", f: func() {
				defer close(stopped)
				if end == "interrupt" {
					cancel()
				} else {
					testkit.StopBroker(t, src)
				}
			}}
			o := catchupOptions(src, dst, w)
			o.Fill = 1 << 40
			r, err := loadgen.Catchup(ctx, o)
			<-stopped
			if end == "interrupt" {
				defer testkit.StopBroker(t, src)
			}
			if err == nil || r == nil || r.OK() || len(r.Left) != 0 || end == "interrupt" && !strings.Contains(strings.Join(r.NotValid, ";"), "ended: early: interrupted") {
				t.Errorf("%v, %+v", err, r)
			}
			right := func(got string) bool {
				return !strings.Contains(got, "PAUS") && (end != "interrupt" || got == "MIRRORING:3")
			}
			if got := become(all, t, dst.Addr(), right); !right(got) {
				t.Errorf("partitions are left %s", got)
			}
		})
	}
}

// TestCatchupLeavesNoSecret: when the destination goes while the topics are paused, the command that resumes them is told.
func TestCatchupLeavesNoSecret(t *testing.T) {
	src := testkit.StartBroker(t, "")
	dst, err := testkit.TryBroker(filepath.Join(t.TempDir(), "data"), "mirror.metadata.refresh.interval.ms=200")
	if err != nil {
		t.Fatal(err)
	}
	all := testkit.Context(t)
	startMirror(all, t, src.Addr(), dst.Addr())
	ctx, cancel := context.WithCancel(all)
	defer cancel()
	w := &when{text: "fill load", f: func() { testkit.StopBroker(t, dst); cancel() }}
	o := catchupOptions(src, dst, w)
	o.Fill, o.Topics = 1<<40, "lo.*"
	r, err := loadgen.Catchup(ctx, o)
	if err == nil || r == nil || len(r.Left) != 1 || !strings.Contains(r.Left[0], "still paused: load of mirror m (") ||
		!strings.HasSuffix(r.Left[0], "to resume: stet mirrors --bootstrap-server "+dst.Addr()+" --resume --topics 'lo.*' --mirror m") {
		t.Errorf("%v, %+v", err, r)
	}
}

// TestPausedIsNotResumed: a topic that somebody else paused is not touched.
func TestPausedIsNotResumed(t *testing.T) {
	src, dst := pair(t)
	defer testkit.StopBroker(t, src)
	ctx := testkit.Context(t)
	startMirror(ctx, t, src.Addr(), dst.Addr())
	req := mirrormsg.NewPtrPauseMirrorTopicsRequest()
	pt := mirrormsg.NewPauseMirrorTopicsRequestTopic()
	pt.TopicName = "load"
	req.MirrorName, req.Topics = "m", append(req.Topics, pt)
	if resp, err := req.RequestWith(ctx, testkit.Client(t, dst.Addr())); err != nil || resp.Topics[0].ErrorCode != 0 {
		t.Fatal(err, resp)
	}
	if got := become(ctx, t, dst.Addr(), is("PAUSED:3")); got != "PAUSED:3" {
		t.Fatalf("paused topics are %s", got)
	}
	if _, err := loadgen.Catchup(ctx, catchupOptions(src, dst, &when{})); err == nil || !strings.Contains(err.Error(), "is PAUSED already; resume it first: stet mirrors") {
		t.Errorf("%v", err)
	}
	if got := become(ctx, t, dst.Addr(), is("PAUSED:3")); got != "PAUSED:3" {
		t.Errorf("the topics are %s", got)
	}
}

// TestThrottleIsPutBack: whatever ends a throttle run, what the operator had set is set again, and what was not is not; nothing is paused.
func TestThrottleIsPutBack(t *testing.T) {
	src, dst := pair(t)
	all := testkit.Context(t)
	startMirror(all, t, src.Addr(), dst.Addr())
	run := func(ctx context.Context, w *when) (*loadgen.Report, error) {
		return loadgen.RunThrottle(ctx, loadgen.ThrottleOptions{CatchupOptions: catchupOptions(src, dst, w), Rates: []int64{1e6, 1e6, 1e6, 1e6}, Each: 3 * time.Second})
	}
	interrupted := func(t *testing.T, text string) {
		t.Helper()
		ctx, cancel := context.WithCancel(all)
		defer cancel()
		r, err := run(ctx, &when{text: text, f: cancel})
		if err == nil || r == nil || r.OK() || len(r.Left) != 0 || !strings.Contains(strings.Join(r.NotValid, ";"), "ended: early: interrupted") {
			t.Errorf("%v, %+v", err, r)
		}
		if got := become(all, t, dst.Addr(), is("MIRRORING:3")); got != "MIRRORING:3" {
			t.Errorf("partitions are left %s", got)
		}
	}
	interrupted(t, "achieved")
	if got := dynamic(all, t, dst.Addr()); got != "" {
		t.Errorf("left behind: %s", got)
	}
	setThrottle(all, t, dst.Addr(), "123456789", "0:1,2:1")
	want := dynamic(all, t, dst.Addr())
	if want != "mirror.replication.throttled.rate=123456789 mirror.replication.throttled.replicas=0:1,2:1" {
		t.Fatalf("set: %s", want)
	}
	interrupted(t, "achieved")
	if got := dynamic(all, t, dst.Addr()); got != want {
		t.Errorf("the operator's throttle is now %q", got)
	}
	// The source is lost within the second step: no figure of that one, the throttle is put back all the same.
	stopped := make(chan struct{})
	r, err := run(all, &when{text: "achieved", f: func() { defer close(stopped); testkit.StopBroker(t, src) }})
	<-stopped
	if err == nil || r == nil || r.OK() || len(r.Throttle) != 1 || !strings.Contains(strings.Join(r.NotValid, ";"), "ended: early: the source was lost: its leader "+src.Addr()) {
		t.Errorf("%v, %+v", err, r)
	}
	if got := dynamic(all, t, dst.Addr()); got != want {
		t.Errorf("the operator's throttle is now %q", got)
	}
}
