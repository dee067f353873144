package broker_test

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/broker/meta"
	"stet/broker/mirrormsg"
	"stet/internal/testkit/port"
)

// alterMirror sets configs of the mirror and returns the refusal.
func (w *world) alterMirror(kvs ...string) error {
	w.t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceType(meta.ResourceMirror), mirrorName
	for i := 0; i+1 < len(kvs); i += 2 {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Value = kvs[i], &kvs[i+1]
		r.Configs = append(r.Configs, c)
	}
	req.Resources = append(req.Resources, r)
	resp, err := req.RequestWith(w.ctx, w.cl)
	if err != nil {
		w.t.Fatal(err)
	}
	return kerr.ErrorForCode(resp.Resources[0].ErrorCode)
}

// ownTopic makes a topic of this cluster with records and returns its end.
func (w *world) ownTopic(name string, records int) int64 {
	w.t.Helper()
	if _, err := kadm.NewClient(w.cl).CreateTopic(w.ctx, 1, 1, nil, name); err != nil {
		w.t.Fatal(err)
	}
	for range records {
		if err := w.cl.ProduceSync(w.ctx, &kgo.Record{Topic: name, Value: []byte("only copy")}).FirstErr(); err != nil {
			w.t.Fatal(err)
		}
	}
	return w.holds(name)
}

// holds is how many offsets of partition 0 are held.
func (w *world) holds(topic string) int64 {
	w.t.Helper()
	adm := kadm.NewClient(w.cl)
	starts, err := adm.ListStartOffsets(w.ctx, topic)
	if err != nil {
		w.t.Fatal(err)
	}
	ends, err := adm.ListEndOffsets(w.ctx, topic)
	if err != nil {
		w.t.Fatal(err)
	}
	s, _ := starts.Lookup(topic, 0)
	e, _ := ends.Lookup(topic, 0)
	return e.Offset - s.Offset
}

func overwrite(r *mirrormsg.StartMirrorTopicsRequest) { r.Overwrite = true }

func namesSelf(t *testing.T, id string, msg *string) {
	t.Helper()
	if msg == nil || !strings.Contains(*msg, "cannot mirror itself") || !strings.Contains(*msg, id) || strings.Contains(*msg, "--overwrite") {
		t.Errorf("the message does not name the reason: %v", kmsgText(msg))
	}
}

func kmsgText(s *string) string {
	if s == nil {
		return "(none)"
	}
	return *s
}

// TestOwnClusterIsRefusedAtCreate: a mirror of this cluster would replace the only copy by nothing.
func TestOwnClusterIsRefusedAtCreate(t *testing.T) {
	w := newWorld(t)
	for _, config := range [][2]string{{"bootstrap.servers", w.b.Addr()}, {"source.cluster.id", w.b.ClusterID()}} {
		req := mirrormsg.NewPtrCreateMirrorRequest()
		req.MirrorName = mirrorName
		from := w.src.Bootstrap()
		all := map[string]string{"bootstrap.servers": from}
		all[config[0]] = config[1]
		for k, v := range all {
			c := mirrormsg.NewCreateMirrorRequestConfig()
			c.Name, c.Value = k, &v
			req.Config = append(req.Config, c)
		}
		resp, err := req.RequestWith(w.ctx, w.cl)
		if err != nil {
			t.Fatal(err)
		}
		if resp.ErrorCode != kerr.InvalidConfig.Code {
			t.Errorf("%v: %s", config, mirrormsg.CodeName(resp.ErrorCode))
		}
		namesSelf(t, w.b.ClusterID(), resp.ErrorMessage)
	}
	w.create()
	if err := w.alterMirror("source.cluster.id", w.b.ClusterID()); err == nil {
		t.Error("source.cluster.id was set to this cluster's")
	}
}

// TestOwnClusterIsNeverCut: bootstrap.servers that come to lead here later do no harm either, whatever is started.
func TestOwnClusterIsNeverCut(t *testing.T) {
	w := newWorld(t)
	n := w.ownTopic("own", 7)
	w.from = port.Hold(t) // nobody is there
	w.create()
	if err := w.alterMirror("bootstrap.servers", w.b.Addr()); err != nil {
		t.Fatal(err)
	}
	for _, change := range []func(*mirrormsg.StartMirrorTopicsRequest){nil, overwrite} {
		resp, err := w.tryStart(change, "own")
		if err == nil {
			t.Fatal("a topic of this cluster was started as a mirror of itself")
		}
		namesSelf(t, w.b.ClusterID(), resp.ErrorMessage)
	}
	if got := w.holds("own"); got != n {
		t.Errorf("%d of %d records are left", got, n)
	}
}

// TestMirrorTurnedToItself: a running mirror fails and says why; a start that was kept for a stopped topic cuts nothing.
func TestMirrorTurnedToItself(t *testing.T) {
	w := newWorld(t)
	run, kept := w.src.CreateTopic("run", 1), w.src.CreateTopic("kept", 1)
	w.src.Produce(run, 0, 5, 50)
	w.src.Produce(kept, 0, 5, 50)
	w.create()
	w.startTopics("run", "kept")
	w.caughtUp()
	w.stop("kept")
	if err := w.cl.ProduceSync(w.ctx, &kgo.Record{Topic: "kept", Value: []byte("written here")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	n := w.holds("kept")
	w.src.Broker(1).Down()
	w.src.Broker(2).Down()
	if _, err := w.tryStart(overwrite, "kept"); err != nil { // kept until a source is there
		t.Fatal(err)
	}
	if err := w.alterMirror("bootstrap.servers", w.b.Addr()); err != nil {
		t.Fatal(err)
	}
	for _, topic := range []string{"run", "kept"} {
		w.wait(topic+" FAILED because of itself", func(p part) bool {
			return p.topic != topic || p.State == "FAILED" && p.RetryAttempt == -1 && strings.Contains(kmsgText(p.ErrorMessage), "cannot mirror itself")
		})
	}
	if got := w.holds("kept"); got != n {
		t.Errorf("%d of %d records are left", got, n)
	}
	w.same(run)
}
