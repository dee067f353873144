package main_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/broker/mirrormsg"
	"stet/internal/testkit"
	"stet/internal/testkit/port"
)

// TestMirrorsTranscript walks through every action of `stet mirrors` with the published outputs.
func TestMirrorsTranscript(t *testing.T) {
	t.Parallel()
	ctx := contextFor(t, 2*time.Minute)
	src := testkit.StartProcess(t, "")
	for _, topic := range []string{"orders-us", "orders-eu", "my-topic"} {
		createTopic(ctx, t, src.Addr, topic, 1)
	}
	cl := testkit.Client(t, src.Addr)
	if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "orders-us", Value: []byte("v")}, &kgo.Record{Topic: "my-topic", Value: []byte("v")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	p := testkit.StartProcess(t, "", "mirror.metadata.refresh.interval.ms=500")
	file := filepath.Join(t.TempDir(), "my-mirror.properties")
	if err := os.WriteFile(file, []byte("bootstrap.servers="+src.Addr+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		t.Helper()
		return testkit.MustStet(t, append([]string{"mirrors", "--bootstrap-server", p.Addr}, args...)...)
	}
	is := func(want string, args ...string) {
		t.Helper()
		if got := run(args...); got != want {
			t.Errorf("stet mirrors %s:\n%q, want\n%q", strings.Join(args, " "), got, want)
		}
	}
	is("Created mirror my-mirror\n", "--create", "--mirror", "my-mirror", "--mirror-config", file)
	is("orders-eu: nothing would be cut\norders-us: nothing would be cut\n", "--start", "--dry-run", "--topics", "orders-us,orders-eu", "--mirror", "my-mirror")
	if out := run("--describe"); strings.Contains(out, "orders") {
		t.Errorf("the dry run started something:\n%s", out)
	}
	is("Started 2 mirror topic(s) in mirror my-mirror: [orders-us, orders-eu]\n", "--start", "--topics", "orders-us,orders-eu", "--mirror", "my-mirror")
	is("Started 1 mirror topic(s) in mirror my-mirror: [my-topic]\n", "--start", "--topics", "my-.*", "--mirror", "my-mirror")
	waitFor(t, p, "my-mirror", "lag-zero")
	lines := strings.Split(run("--list"), "\n")
	if f := strings.Fields(lines[0]); strings.Join(f, " ") != "MIRROR TOPICS CLUSTER-ID BOOTSTRAP-SERVER" {
		t.Errorf("columns of --list: %v", f)
	}
	if f := strings.Fields(lines[1]); strings.Join(f, " ") != "my-mirror 3 "+src.Cluster+" "+src.Addr {
		t.Errorf("row of --list: %v", f)
	}
	lines = strings.Split(run("--describe", "--mirror", "my-mirror"), "\n")
	if f := strings.Fields(lines[0]); strings.Join(f, " ") != "MIRROR TOPIC PARTITION SOURCE-OFFSET DESTINATION-OFFSET LAG STATE" {
		t.Errorf("columns of --describe: %v", f)
	}
	contains(t, "--describe", strings.Join(strings.Fields(strings.Join(lines[1:], " ")), " "),
		"my-mirror my-topic 0 1 1 0 MIRRORING", "my-mirror orders-eu 0 0 0 0 MIRRORING", "my-mirror orders-us 0 1 1 0 MIRRORING")
	var rows []map[string]any
	if err := json.Unmarshal([]byte(run("--describe", "--json")), &rows); err != nil {
		t.Fatal(err)
	}
	if len(rows) != 3 {
		t.Fatalf("%d rows as JSON", len(rows))
	}
	for _, k := range []string{"mirror", "topic", "topicId", "partition", "sourceOffset", "destinationOffset", "lag", "lagMs", "lagAgeMs", "state", "lastMirrorEpoch", "lastMirrorOffset", "retryAttempt", "error"} {
		if _, ok := rows[0][k]; !ok {
			t.Errorf("--describe --json lacks %s", k)
		}
	}
	is("Paused mirroring for 1 topic(s) in mirror my-mirror: [my-topic]\n", "--pause", "--topics", "my-topic", "--mirror", "my-mirror")
	if _, errs, code := testkit.Stet(t, "mirrors", "--bootstrap-server", p.Addr, "--pause", "--topics", "my-topic", "--mirror", "my-mirror"); code != 1 || !strings.Contains(errs, "MIRROR_TOPIC_ALREADY_PAUSED") {
		t.Errorf("a second pause: code %d, %s", code, errs)
	}
	eventually(t, "PAUSED", func() string { return run("--describe") }, regexp.MustCompile(`my-topic +0 +- +1 +- +PAUSED`))
	is("Resumed mirroring for 1 topic(s) in mirror my-mirror: [my-topic]\n", "--resume", "--topics", "my-topic", "--mirror", "my-mirror")
	waitFor(t, p, "my-mirror", "lag-zero")

	dry := run("--stop", "--dry-run", "--topics", "orders-us", "--mirror", "my-mirror")
	contains(t, "stop --dry-run", dry, "orders-us-0: would stop at 1")
	waitFor(t, p, "my-mirror", "MIRRORING")
	out := run("--stop", "--topics", "orders-us", "--mirror", "my-mirror")
	contains(t, "stop", out, "Stopped mirroring for 1 topic(s) in mirror my-mirror: [orders-us]\n")
	var stops []map[string]any
	if err := json.Unmarshal([]byte(run("--stop", "--json", "--topics", "orders-eu", "--mirror", "my-mirror")), &stops); err != nil || len(stops) != 1 || stops[0]["lastMirrorOffset"] != 0.0 {
		t.Errorf("--stop --json: %v, %v", stops, err)
	}
	contains(t, "stop of a stopped topic", run("--stop", "--topics", "orders-us", "--mirror", "my-mirror"), "Stopped mirroring for 1 topic(s)")
	if _, errs, code := testkit.Stet(t, "mirrors", "--bootstrap-server", p.Addr, "--delete", "--mirror", "my-mirror"); code != 1 || !strings.Contains(errs, "MIRROR_NOT_EMPTY") {
		t.Errorf("delete while a topic is mirrored: code %d, %s", code, errs)
	}
	contains(t, "wait-lag-zero", run("--stop", "--wait-lag-zero", "10000", "--topics", "my-topic", "--mirror", "my-mirror"), "[my-topic]")
	is("Deleted mirror my-mirror\n", "--delete", "--mirror", "my-mirror")
	if out := run("--list"); strings.Contains(out, "my-mirror") {
		t.Errorf("--list after the deletion:\n%s", out)
	}
}

// eventually calls f until its output matches.
func eventually(t *testing.T, what string, f func() string, want *regexp.Regexp) string {
	t.Helper()
	var out string
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if out = f(); want.MatchString(out) {
			return out
		}
		<-time.After(50 * time.Millisecond)
	}
	t.Fatalf("%s: %q does not come:\n%s", what, want, out)
	return ""
}

// TestMirrorTopicIsReadOnly: every request of SPEC section 6 that is served, in a
// mixed request with a local topic that goes on; a given topic id that is used is refused.
func TestMirrorTopicIsReadOnly(t *testing.T) {
	t.Parallel()
	ctx := contextFor(t, 2*time.Minute)
	src := testkit.StartProcess(t, "")
	createTopic(ctx, t, src.Addr, "ro", 2)
	p := testkit.StartProcess(t, "", "mirror.metadata.refresh.interval.ms=500")
	createTopic(ctx, t, p.Addr, "local", 1)
	mirror(t, p, "m", src.Addr, "ro")
	waitFor(t, p, "m", "lag-zero")
	cl := testkit.Client(t, p.Addr, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	policy := func(what string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "POLICY_VIOLATION") {
			t.Errorf("%s: %v, want POLICY_VIOLATION", what, err)
		}
	}
	res := cl.ProduceSync(ctx, &kgo.Record{Topic: "ro", Value: []byte("v")}, &kgo.Record{Topic: "local", Value: []byte("v")})
	for _, r := range res {
		if r.Record.Topic == "local" && r.Err != nil {
			t.Errorf("the local topic in a mixed request: %v", r.Err)
		}
		if r.Record.Topic == "ro" {
			policy("produce", r.Err)
		}
	}
	adm := kadm.NewClient(cl)
	if r, err := adm.UpdatePartitions(ctx, 4, "ro"); err != nil {
		t.Error(err)
	} else {
		policy("create partitions", r["ro"].Err)
		if !strings.Contains(r["ro"].ErrMessage, "m") {
			t.Errorf("the message does not name the mirror: %q", r["ro"].ErrMessage)
		}
	}
	if r, err := adm.DeleteTopics(ctx, "ro", "local"); err != nil {
		t.Error(err)
	} else {
		policy("delete topic", r["ro"].Err)
		if r["local"].Err != nil {
			t.Errorf("deleting the local topic in the same request: %v", r["local"].Err)
		}
	}
	for _, key := range []string{"mirror.name", "mirror.start"} {
		r, err := adm.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Name: key, Value: kadm.StringPtr("x"), Op: kadm.SetConfig}}, "ro")
		if err != nil || len(r) != 1 || !strings.Contains(fmt.Sprint(r[0].Err), "INVALID_CONFIG") {
			t.Errorf("%s: %v %v, want INVALID_CONFIG", key, r, err)
		}
	}
	// Consumers and group commits are allowed.
	offs := kadm.Offsets{}
	offs.Add(kadm.Offset{Topic: "ro", Partition: 0, At: 0, LeaderEpoch: -1})
	if err := adm.CommitAllOffsets(ctx, "g", offs); err != nil {
		t.Errorf("group commit: %v", err)
	}
	// MirrorInfo with a used id.
	topics, err := adm.ListTopics(ctx, "ro")
	if err != nil {
		t.Fatal(err)
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 5000
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = "other", 1, 1
	mirrormsg.SetMirrorInfo(&rt, topics["ro"].ID)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		t.Fatal(err)
	}
	if resp.Topics[0].ErrorCode == 0 {
		t.Error("a topic with a used id was created")
	}
	// After the stop all of it works.
	testkit.MustStet(t, "mirrors", "--bootstrap-server", p.Addr, "--stop", "--topics", "ro", "--mirror", "m")
	if err := testkit.Client(t, p.Addr).ProduceSync(ctx, &kgo.Record{Topic: "ro", Value: []byte("v")}).FirstErr(); err != nil {
		t.Errorf("produce after the stop: %v", err)
	}
}

// TestUnreachableSource: the mirror is made, the start is kept, describe says why
// nothing runs, and it starts by itself when the source is there.
func TestUnreachableSource(t *testing.T) {
	t.Parallel()
	ctx := contextFor(t, 2*time.Minute)
	src := testkit.StartProcess(t, "")
	createTopic(ctx, t, src.Addr, "later", 1)
	src.Stop()
	p := testkit.StartProcess(t, "", "mirror.metadata.refresh.interval.ms=500")
	createMirror(t, p, "m", src.Addr)
	_, errs, code := testkit.Stet(t, "mirrors", "--bootstrap-server", p.Addr, "--start", "--topics", "later", "--mirror", "m")
	if code != 0 || !strings.Contains(errs, "refused") {
		t.Errorf("start: code %d, %q; want 0 and why nothing runs", code, errs)
	}
	eventually(t, "describe", func() string {
		return testkit.MustStet(t, "mirrors", "--bootstrap-server", p.Addr, "--describe", "--mirror", "m")
	}, regexp.MustCompile(`(?s)m.*refused`))
	src.Restart(t)
	waitFor(t, p, "m", "lag-zero")
}

// TestSourceThatIsNoKafka: the reason names what answered.
func TestSourceThatIsNoKafka(t *testing.T) {
	t.Parallel()
	p := testkit.StartProcess(t, "", "mirror.metadata.refresh.interval.ms=500")
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	tls := httptest.NewTLSServer(http.NotFoundHandler())
	defer tls.Close()
	free := port.Hold(t)
	for name, c := range map[string]struct{ addr, want string }{
		"http": {web.Listener.Addr().String(), "(?i)http"}, "tls": {tls.Listener.Addr().String(), "(?i)tls"},
		"port": {free, "refused"}, "host": {"no-such-host.invalid:9092", "no-such-host.invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			createMirror(t, p, name, c.addr)
			out, errs, _ := testkit.Stet(t, "mirrors", "--bootstrap-server", p.Addr, "--start", "--topics", "t", "--mirror", name)
			// Whether it is HTTP is found out by asking anew, which may come after the answer.
			if name != "http" && !regexp.MustCompile(c.want).MatchString(errs) {
				t.Errorf("start says %q %q, want %q", out, errs, c.want)
			}
			eventually(t, "describe", func() string {
				return testkit.MustStet(t, "mirrors", "--bootstrap-server", p.Addr, "--describe", "--mirror", name)
			}, regexp.MustCompile(c.want))
		})
	}
}

// TestRefusals: one clear line on stderr and exit code 1 (2 for wrong usage), nothing changed.
func TestRefusals(t *testing.T) {
	t.Parallel()
	ctx := contextFor(t, 2*time.Minute)
	src := testkit.StartProcess(t, "")
	createTopic(ctx, t, src.Addr, "taken", 1)
	createTopic(ctx, t, src.Addr, "fine", 1)
	p := testkit.StartProcess(t, "", "mirror.metadata.refresh.interval.ms=500")
	createTopic(ctx, t, p.Addr, "taken", 1)
	createMirror(t, p, "m", src.Addr)
	conf := func(text string) string {
		file := filepath.Join(t.TempDir(), "x.properties")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	good := "bootstrap.servers=" + src.Addr + "\n"
	blocker := conf("not a directory")
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"unknown topic":        {[]string{"mirrors", "--start", "--topics", "nope", "--mirror", "m"}, 1, "nope"},
		"taken topic":          {[]string{"mirrors", "--start", "--topics", "taken", "--mirror", "m"}, 1, "taken"},
		"unknown mirror":       {[]string{"mirrors", "--start", "--topics", "fine", "--mirror", "nope"}, 1, "UNKNOWN_MIRROR"},
		"mirror exists":        {[]string{"mirrors", "--create", "--mirror", "m", "--mirror-config", conf(good)}, 1, "MIRROR_ALREADY_EXISTS"},
		"bad mirror name":      {[]string{"mirrors", "--create", "--mirror", "a/b", "--mirror-config", conf(good)}, 1, "INVALID_MIRROR_NAME"},
		"reserved mirror name": {[]string{"mirrors", "--create", "--mirror", "a.stopped", "--mirror-config", conf(good)}, 1, "INVALID_MIRROR_NAME"},
		"unknown key":          {[]string{"mirrors", "--create", "--mirror", "x", "--mirror-config", conf(good + "fetch.wait.ms=1\n")}, 1, "fetch.wait.max.ms"},
		"bad value":            {[]string{"mirrors", "--create", "--mirror", "x", "--mirror-config", conf(good + "mirror.on.gap=maybe\n")}, 1, "mirror.on.gap"},
		"no bootstrap":         {[]string{"mirrors", "--create", "--mirror", "x", "--mirror-config", conf("fetch.min.bytes=1\n")}, 1, "bootstrap.servers"},
		"security not built":   {[]string{"mirrors", "--create", "--mirror", "x", "--mirror-config", conf(good + "security.protocol=SASL_SSL\n")}, 1, "security.protocol"},
		"bad pattern":          {[]string{"mirrors", "--start", "--topics", "a(", "--mirror", "m"}, 1, "a("},
		"no such file":         {[]string{"mirrors", "--create", "--mirror", "x", "--mirror-config", "/no/such/file"}, 1, "/no/such/file"},
		"topic not in mirror":  {[]string{"mirrors", "--stop", "--topics", "fine", "--mirror", "m"}, 1, "TOPIC_NOT_IN_MIRROR"},
		"two actions":          {[]string{"mirrors", "--list", "--describe"}, 2, "exactly one"},
		"no mirror name":       {[]string{"mirrors", "--start", "--topics", "x"}, 2, "--mirror"},
		"unknown state":        {[]string{"mirrors", "--describe", "--mirror", "m", "--wait", "FOO"}, 2, "lag-zero and the states PREPARING, EPOCH_FENCING, MIRRORING"},
		"nothing to wait for":  {[]string{"mirrors", "--describe", "--mirror", "m", "--wait", "lag-zero", "--timeout", "5m"}, 1, "no topic was started in mirror m"},
		"mirror of itself":     {[]string{"mirrors", "--create", "--mirror", "self", "--mirror-config", conf("bootstrap.servers=" + p.Addr + "\n")}, 1, "cannot mirror itself"},
		"unknown flag":         {[]string{"mirrors", "--frobnicate"}, 2, "frobnicate"},
		"unknown entity type":  {[]string{"configs", "--describe", "--entity-type", "planets"}, 2, "planets"},
		"unknown topic config": {[]string{"configs", "--alter", "--entity-type", "mirrors", "--entity-name", "m", "--add-config", "fetch.max.byte=1"}, 1, "fetch.max.bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{c.args[0], "--bootstrap-server", p.Addr}, c.args[1:]...)
			out, errs, code := testkit.Stet(t, args...)
			if code != c.code || !strings.Contains(errs, c.want) {
				t.Errorf("exit code %d, stdout %q, stderr %q; want code %d and %q", code, out, errs, c.code, c.want)
			}
			if lines := strings.Count(strings.TrimSpace(errs), "\n") + 1; c.code == 1 && lines != 1 {
				t.Errorf("%d lines on stderr: %q", lines, errs)
			}
		})
	}
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"unknown key":         {[]string{"--set", "listenrs=x"}, "listeners"},
		"a controller alone":  {[]string{"--set", "process.roles=controller"}, "process.roles"},
		"a file, no folder":   {[]string{"--set", "log.dirs=" + blocker, "--set", "listeners=PLAINTEXT://127.0.0.1:0"}, blocker},
		"unwritable folder":   {[]string{"--set", "log.dirs=/proc/stet", "--set", "listeners=PLAINTEXT://127.0.0.1:0"}, "/proc/stet"},
		"port in use":         {[]string{"--set", "log.dirs=" + t.TempDir() + "/d", "--set", "listeners=PLAINTEXT://" + p.Addr}, "address already in use"},
		"directory in use":    {[]string{"--set", "log.dirs=" + p.Dir, "--set", "listeners=PLAINTEXT://127.0.0.1:0"}, p.Dir},
		"security not built":  {[]string{"--set", "listeners=SSL://127.0.0.1:0"}, "SSL"},
		"no such config file": {[]string{"--config", "/no/such/file"}, "/no/such/file"},
	} {
		t.Run("broker: "+name, func(t *testing.T) {
			out, errs, code := testkit.Stet(t, append([]string{"broker", "--set", "http.listener="}, c.args...)...)
			if code != 1 || !strings.Contains(errs, c.want) {
				t.Errorf("exit code %d, stdout %q, stderr %q; want code 1 and %q", code, out, errs, c.want)
			}
			if lines := strings.Count(strings.TrimSpace(errs), "\n") + 1; lines != 1 {
				t.Errorf("%d lines on stderr: %q", lines, errs)
			}
		})
	}
	// None of it changed anything: the mirror has no topics, and nothing but it exists.
	if out := testkit.MustStet(t, "mirrors", "--bootstrap-server", p.Addr, "--list"); strings.Count(out, "\n") != 2 || !regexp.MustCompile(`m +0 `).MatchString(out) {
		t.Errorf("--list after all refusals:\n%s", out)
	}
}
