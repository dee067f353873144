package controller

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/broker/meta"
	"stet/broker/mirrormsg"
)

type alterOp struct {
	key   string
	op    kmsg.IncrementalAlterConfigOp
	value any // string or nil
}

const (
	opSet      = kmsg.IncrementalAlterConfigOpSet
	opDelete   = kmsg.IncrementalAlterConfigOpDelete
	opAppend   = kmsg.IncrementalAlterConfigOpAppend
	opSubtract = kmsg.IncrementalAlterConfigOpSubtract
)

func alter(img *meta.Image, typ kmsg.ConfigResourceType, name string, ops ...alterOp) ([]meta.Record, string, string) {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = typ, name
	for _, o := range ops {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Op = o.key, o.op
		if v, ok := o.value.(string); ok {
			c.Value = &v
		}
		r.Configs = append(r.Configs, c)
	}
	req.Resources = append(req.Resources, r)
	recs, resp := incrementalAlterConfigs(img, &Env{BrokerID: 1}, req)
	text := ""
	if m := resp.Resources[0].ErrorMessage; m != nil {
		text = *m
	}
	return recs, mirrormsg.CodeName(resp.Resources[0].ErrorCode), text
}

// Codes as Apache Kafka 4.3.1 gives them, where Kafka has the case.
func TestIncrementalAlterConfigs(t *testing.T) {
	img := mustCreate(t, newImage(1), createReq("t", 1, 1, config("retention.ms", kmsg.StringPtr("5"))))
	img = apply(img, &meta.CreateMirror{Name: "m", ID: [16]byte{1}})
	img = apply(img, configDiff(meta.Resource{Type: meta.ResourceMirror, Name: "m"}, nil, map[string]string{"bootstrap.servers": "h:1"})...)
	topic, broker, mirror, group := kmsg.ConfigResourceTypeTopic, kmsg.ConfigResourceTypeBroker, mirrormsg.ConfigResourceMirror, kmsg.ConfigResourceType(32)
	for _, c := range []struct {
		typ  kmsg.ConfigResourceType
		name string
		op   alterOp
		code string
		want string // the key's value afterwards, or part of the message
	}{
		{topic, "t", alterOp{"retention.ms", opSet, "7"}, "NONE", "7"},
		{topic, "t", alterOp{"retention.ms", opDelete, nil}, "NONE", ""},
		{topic, "t", alterOp{"foo", opDelete, nil}, "NONE", ""},
		{topic, "nope", alterOp{"retention.ms", opSet, "7"}, "UNKNOWN_TOPIC_OR_PARTITION", "'nope'"},
		{topic, "t", alterOp{"foo", opSet, "7"}, "INVALID_CONFIG", "Unknown topic config name: foo"},
		{topic, "t", alterOp{"retention.ms", opSet, nil}, "INVALID_REQUEST", "Null value"},
		{topic, "t", alterOp{"retention.ms", opSet, "x"}, "INVALID_CONFIG", "Invalid value x"},
		{topic, "t", alterOp{"retention.ms", opAppend, "1"}, "INVALID_CONFIG", "not LIST"},
		{topic, "t", alterOp{"cleanup.policy", opAppend, "compact"}, "NONE", "delete,compact"},
		{topic, "t", alterOp{"cleanup.policy", opAppend, "delete"}, "NONE", "delete"},
		{topic, "t", alterOp{"cleanup.policy", opAppend, "x"}, "INVALID_CONFIG", "cleanup.policy"},
		{topic, "t", alterOp{"cleanup.policy", opSubtract, "delete"}, "NONE", ""},
		{topic, "t", alterOp{"mirror.name", opSet, "m"}, "INVALID_CONFIG", "mirror.name"},
		{topic, "t", alterOp{"mirror.start", opDelete, nil}, "INVALID_CONFIG", "mirror.start"},
		{broker, "1", alterOp{"log.retention.ms", opSet, "9"}, "NONE", "9"},
		{broker, "", alterOp{"log.retention.ms", opSet, "9"}, "NONE", "9"},
		{broker, "", alterOp{"log.retention.ms", opSet, "x"}, "INVALID_REQUEST", "log.retention.ms"},
		{broker, "1", alterOp{"log.dirs", opSet, "x"}, "INVALID_REQUEST", "Cannot update these configs dynamically"},
		{broker, "7", alterOp{"log.retention.ms", opSet, "9"}, "INVALID_REQUEST", "Broker 7"},
		{broker, "x", alterOp{"log.retention.ms", opSet, "9"}, "INVALID_REQUEST", "'x'"},
		{broker, "1", alterOp{"log.cleaner.threads", opSet, "2"}, "NONE", "2"},
		{broker, "1", alterOp{"log.cleaner.threads", opSet, "3"}, "INVALID_REQUEST", "Log cleaner threads cannot be increased to more than double the current value 1"},
		{broker, "1", alterOp{"log.cleaner.threads", opSet, "0"}, "INVALID_REQUEST", "Log cleaner threads should be at least 1"},
		{broker, "", alterOp{"log.cleaner.backoff.ms", opSet, "100"}, "NONE", "100"},
		{broker, "", alterOp{"log.cleaner.dedupe.buffer.size", opSet, "1000"}, "INVALID_REQUEST", "log.cleaner.dedupe.buffer.size"},
		{broker, "1", alterOp{"log.cleaner.enable", opSet, "false"}, "INVALID_REQUEST", "Cannot update these configs dynamically"},
		{broker, "1", alterOp{"mirror.num.replica.fetchers", opSet, "4"}, "NONE", "4"},
		{mirror, "m", alterOp{"mirror.topics.include", opAppend, "a.*"}, "NONE", "a.*"},
		{mirror, "m", alterOp{"mirror.topics.exclude", opAppend, "b.*"}, "NONE", "__.*,b.*"},
		{mirror, "m", alterOp{"bootstrap.servers", opDelete, nil}, "INVALID_CONFIG", "bootstrap.servers"},
		{mirror, "m", alterOp{"ssl.keystore.location", opSet, "x"}, "INVALID_CONFIG", "ssl."},
		{mirror, "n", alterOp{"mirror.on.gap", opSet, "fail"}, "UNKNOWN_MIRROR", "'n'"},
		{group, "g", alterOp{"consumer.session.timeout.ms", opSet, "50000"}, "NONE", "50000"},
		{group, "", alterOp{"consumer.session.timeout.ms", opSet, "50000"}, "INVALID_REQUEST", "Default group"},
		{1, "t", alterOp{"a", opSet, "b"}, "INVALID_REQUEST", "type 1"},
	} {
		recs, got, text := alter(img, c.typ, c.name, c.op)
		if got != c.code {
			t.Errorf("%v %q %+v: %s (%s), want %s", c.typ, c.name, c.op, got, text, c.code)
			continue
		}
		if got != "NONE" {
			if !strings.Contains(text, c.want) || len(recs) != 0 {
				t.Errorf("%v %q %+v: %q, %d records", c.typ, c.name, c.op, text, len(recs))
			}
			continue
		}
		after := apply(img, recs...)
		if v := after.Config(meta.ResourceType(c.typ), c.name)[c.op.key]; v != c.want {
			t.Errorf("%v %q %+v: %q, want %q", c.typ, c.name, c.op, v, c.want)
		}
	}
	if _, got, _ := alter(img, topic, "t", alterOp{"retention.ms", opSet, "1"}, alterOp{"retention.ms", opSet, "2"}); got != "INVALID_REQUEST" {
		t.Errorf("duplicate keys: %s", got)
	}
	// Setting what is set already makes no record.
	if recs, _, _ := alter(img, topic, "t", alterOp{"retention.ms", opSet, "5"}); len(recs) != 0 {
		t.Errorf("%d records for nothing", len(recs))
	}
}

// Only what the mirror itself set is removed again (SPEC section 8).
func TestSyncTopicConfigs(t *testing.T) {
	id := [16]byte{3}
	img := mustCreate(t, newImage(1), createReq("t", 1, 1, withID(id), config("retention.ms", kmsg.StringPtr("5"))))
	img = apply(img, &meta.CreateMirror{Name: "m", ID: [16]byte{1}}, mirrorNameRecord("t", "m", meta.MirrorActive))
	sync := func(set map[string]string, remove ...string) {
		t.Helper()
		recs, err := syncTopicConfigs(img, "m", id, set, remove)
		if err != nil {
			t.Fatal(err)
		}
		img = apply(img, recs...)
	}
	cfg := func() map[string]string { return img.Config(meta.ResourceTopic, "t") }
	sync(map[string]string{"segment.bytes": "1000", "retention.ms": "5"})
	if cfg()["segment.bytes"] != "1000" || len(img.MirrorSetConfigs([16]byte{1}, id)) != 1 {
		t.Errorf("config %v, noted %v", cfg(), img.MirrorSetConfigs([16]byte{1}, id))
	}
	sync(nil, "segment.bytes", "retention.ms")
	if _, ok := cfg()["segment.bytes"]; ok || cfg()["retention.ms"] != "5" {
		t.Errorf("config %v: what the mirror set must be gone, what the owner set must stay", cfg())
	}
	if n := len(img.MirrorSetConfigs([16]byte{1}, id)); n != 0 {
		t.Errorf("%d keys are still noted", n)
	}
	if _, err := syncTopicConfigs(img, "m", id, map[string]string{"foo": "1"}, nil); code(err) != "INVALID_CONFIG" {
		t.Errorf("unknown key: %v", err)
	}
	img = apply(img, mirrorNameRecord("t", "m", meta.MirrorStopped))
	if _, err := syncTopicConfigs(img, "m", id, map[string]string{"segment.bytes": "9999"}, nil); code(err) != "INVALID_MIRROR_STATE" {
		t.Errorf("stopped topic: %v", err)
	}
}
