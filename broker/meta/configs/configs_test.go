package configs

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
)

func TestDefaultsPassTheirOwnChecks(t *testing.T) {
	for _, table := range []*Table{Topic, Broker, Mirror, Group} {
		for _, name := range table.Names() {
			d := table.Lookup(name)
			if d.Doc == "" {
				t.Errorf("%s key %s has no description", table.kind, name)
			}
			if !d.NoDefault && !d.check.ok(d.Default) {
				t.Errorf("%s key %s: the default %q is not %s", table.kind, name, d.Default, d.check.allowed)
			}
		}
	}
	for _, name := range Topic.Names() {
		for _, s := range Topic.Lookup(name).Synonyms {
			b := Broker.Lookup(s.Name)
			if b == nil {
				t.Fatalf("topic key %s has the unknown synonym %s", name, s.Name)
			}
			if s.Factor == 1 && !b.NoDefault && len(Topic.Lookup(name).Synonyms) == 1 && b.Default != Topic.Lookup(name).Default {
				t.Errorf("topic key %s and broker key %s have different defaults", name, s.Name)
			}
		}
	}
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		table      *Table
		key, value string
		want       string // part of the error, "" for none
	}{
		{Topic, "retention.ms", "-1", ""},
		{Topic, "retention.ms", "-2", "Invalid value -2 for configuration retention.ms: it must be a whole number of at least -1"},
		{Topic, "retention.ms", "x", "retention.ms"},
		{Topic, "cleanup.policy", "compact,delete", ""},
		{Topic, "cleanup.policy", "compact,remove", "a list of delete, compact"},
		{Topic, "cleanup.policy", "", ""},
		{Topic, "retention.bytes", "-2", ""},
		{Topic, "segment.bytes", "3000000000", "at most 2147483647"},
		{Topic, "min.cleanable.dirty.ratio", "1.1", "from 0 to 1"},
		{Topic, "compression.gzip.level", "-1", ""},
		{Topic, "compression.gzip.level", "0", "from 1 to 9 or -1"},
		{Topic, "retention.sm", "1", "the nearest known one is retention.ms"},
		{Topic, "zzzzzzzzzzzzzzzzzzzz", "1", "Unknown topic config name: zzzzzzzzzzzzzzzzzzzz"},
		{Topic, "mirror.name", "m", "Unknown topic config name"},
		{Topic, "mirror.replication.throttled.replicas", "0:1,2:3", ""},
		{Topic, "mirror.replication.throttled.replicas", "*", ""},
		{Topic, "mirror.replication.throttled.replicas", "0-1", "PARTITION:BROKER"},
		{Topic, "leader.replication.throttled.replicas", "0:1,,1:1,", ""}, // as Kafka 4.3 does
		{Topic, "leader.replication.throttled.replicas", "none", "Invalid value none for configuration leader.replication.throttled.replicas: it must be empty, * or a list of PARTITION:BROKER"},
		{Topic, "follower.replication.throttled.replicas", "0:1,*", "PARTITION:BROKER"},
		{Topic, "follower.replication.throttled.replicas", "0:1:1", "PARTITION:BROKER"},
		{Broker, "log.cleaner.io.max.bytes.per.second", "0.5", ""},
		{Broker, "log.cleaner.io.max.bytes.per.second", "1.7976931348623157E308", ""},
		{Broker, "log.cleaner.io.max.bytes.per.second", "0", "above 0"},
		{Broker, "log.cleaner.io.max.bytes.per.second", "-1", "above 0"},
		{Broker, "log.cleaner.io.max.bytes.per.second", "NaN", "above 0"},
		{Broker, "log.cleaner.io.max.bytes.per.second", "Infinity", "finite"},
		{Broker, "process.roles", "controller, broker", ""},
		{Broker, "process.roles", "controller", "its own controller"},
		{Broker, "process.roles", "broker", "its own controller"},
		{Broker, "process.roles", "", "its own controller"},
		{Broker, "leader.replication.throttled.rate", "0", ""},
		{Broker, "leader.replication.throttled.rate", "-1", "Invalid value -1 for configuration leader.replication.throttled.rate: it must be a whole number of at least 0"},
		{Broker, "follower.replication.throttled.rate", "fast", "follower.replication.throttled.rate"},
		{Topic, "preallocate", "yes", "true or false"},
		{Broker, "log.retention.hours", "12", ""},
		{Broker, "log.retention.hour", "12", "log.retention.hours"},
		{Broker, "num.network.threads", "3", ""},
		{Broker, "authorizer.class.name", "x", "authorizer"},
		{Broker, "ssl.keystore.location", "x", "TLS"},
		{Broker, "sasl.enabled.mechanisms", "PLAIN", "SASL"},
		{Mirror, "bootstrap.servers", "a:9092,[::1]:1", ""},
		{Mirror, "bootstrap.servers", "a", "HOST:PORT"},
		{Mirror, "bootstrap.servers", "a:99999", "HOST:PORT"},
		{Mirror, "bootstrap.server", "a:1", "bootstrap.servers"},
		{Mirror, "mirror.topics.include", "a(", "RE2"},
		{Mirror, "security.protocol", "PLAINTEXT", ""},
		{Mirror, "security.protocol", "SASL_SSL", "PLAINTEXT only"},
		{Mirror, "security.protocol", "TELNET", "it must be PLAINTEXT"},
		{Mirror, "sasl.jaas.config", "secret", "sasl."},
		{Mirror, "ssl.keystore.key", "secret", "ssl."},
		{Mirror, "mirror.on.gap", "stop", "continue, fail"},
	} {
		err := c.table.Check(c.key, c.value)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s=%s: %v, want %q", c.key, c.value, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error shows the secret: %v", c.key, err)
		}
		if err != nil && !strings.Contains(err.Error(), c.key) {
			t.Errorf("the error does not name %s: %v", c.key, err)
		}
	}
	if err := Mirror.CheckAll(map[string]string{}); err == nil || !strings.Contains(err.Error(), "bootstrap.servers") {
		t.Errorf("a mirror without bootstrap servers: %v", err)
	}
	var v *ValueError
	if err := Topic.CheckAll(map[string]string{"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5", "mirror.name": "x"}); !errors.As(err, &v) || v.Key != "min.compaction.lag.ms" {
		t.Errorf("contradicting lags: %v", err)
	}
}

func TestEffectiveTopic(t *testing.T) {
	b := BrokerConfigs{
		Dynamic:        map[string]string{"log.segment.bytes": "1000"},
		DynamicDefault: map[string]string{"log.segment.bytes": "2000", "log.retention.ms": "5"},
		Static:         map[string]string{"log.retention.hours": "2", "log.roll.hours": "3", "min.insync.replicas": "2"},
	}
	entries := TopicEntries(map[string]string{"cleanup.policy": "compact", "mirror.name": "m"}, b)
	get := func(name string) Entry {
		i := slices.IndexFunc(entries, func(e Entry) bool { return e.Def.Name == name })
		if i < 0 {
			t.Fatalf("no entry %s", name)
		}
		return entries[i]
	}
	for _, c := range []struct {
		name, value string
		source      Source
		synonyms    int
	}{
		{"cleanup.policy", "compact", SourceDynamicTopic, 2},
		{"segment.bytes", "1000", SourceDynamicBroker, 3},
		{"retention.ms", "5", SourceDynamicDefaultBroker, 2},
		{"segment.ms", "10800000", SourceStaticBroker, 1},
		{"min.insync.replicas", "2", SourceStaticBroker, 2},
		{"flush.ms", maxLong, SourceDefault, 0},
		{"preallocate", "false", SourceDefault, 1},
	} {
		e := get(c.name)
		if *e.Value != c.value || e.Source != c.source || len(e.Synonyms) != c.synonyms {
			t.Errorf("%s: %s from %d with %d synonyms, want %+v", c.name, *e.Value, e.Source, len(e.Synonyms), c)
		}
	}
	if slices.ContainsFunc(entries, func(e Entry) bool { return e.Def.Hidden }) {
		t.Error("a hidden key is shown")
	}
	values := TopicValues(map[string]string{"mirror.name": "m"}, b)
	if values["mirror.name"] != "m" || Int64(values, "segment.ms") != 10800000 {
		t.Errorf("values %v", values)
	}
	// Every whole-number key has a value that can be read.
	for _, e := range TopicEntries(nil, BrokerConfigs{}) {
		switch e.Def.Type {
		case Int, Long, Short:
			Int64(map[string]string{"x": *e.Value}, "x")
		case Double:
			Float(map[string]string{"x": *e.Value}, "x")
		}
	}
}

func TestScale(t *testing.T) {
	for _, c := range []struct {
		in     string
		factor int64
		want   string
	}{{"2", 3600000, "7200000"}, {"-1", 60000, "-1"}, {"9223372036854775", 3600000, "9223372036854775807"}} {
		if got := scale(c.in, c.factor); got != c.want {
			t.Errorf("%s times %d is %s, want %s", c.in, c.factor, got, c.want)
		}
	}
	if math.MaxInt64 != 9223372036854775807 || maxLong != "9223372036854775807" {
		t.Error("maxLong is not the largest long")
	}
}

func TestBrokerEntries(t *testing.T) {
	b := BrokerConfigs{Static: map[string]string{"num.network.threads": "7", "node.id": "4"}}
	entries := BrokerEntries(b)
	has := func(n string) bool {
		return slices.ContainsFunc(entries, func(e Entry) bool { return e.Def.Name == n })
	}
	if !has("num.network.threads") || has("num.io.threads") || !has("node.id") || !has("mirror.fetch.memory.bytes") {
		t.Error("a set unused key is missing, or one that is not set is listed")
	}
	if v, ok := BrokerValue(b, "node.id"); !ok || v != "4" {
		t.Errorf("node.id %q %v", v, ok)
	}
	if _, ok := BrokerValue(b, "broker.rack"); ok {
		t.Error("broker.rack has a value")
	}
}

func TestReplicas(t *testing.T) {
	if !Replicas("0:1, 2:3").Contains(2, 3) || Replicas("0:1,2:3").Contains(2, 1) || !Replicas("*").Contains(9, 9) || Replicas("").Contains(0, 0) || Replicas("0:1,none").Contains(0, 1) {
		t.Error("throttled replicas are read wrongly")
	}
}
