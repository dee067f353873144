package configs

import (
	"math"
	"strconv"
	"strings"
)

// Source says where a value comes from; the numbers are those of DescribeConfigs.
type Source int8

// The sources.
const (
	SourceDynamicTopic         Source = 1
	SourceDynamicBroker        Source = 2
	SourceDynamicDefaultBroker Source = 3
	SourceStaticBroker         Source = 4
	SourceDefault              Source = 5
	SourceGroup                Source = 8
)

// Value is a value and where it comes from.
type Value struct {
	Name   string // the key that has it
	Value  *string
	Source Source
}

// Entry is the effective value of a key.
type Entry struct {
	Def   *Def
	Value *string // nil: none
	// Source of Value.
	Source Source
	// Synonyms are all values that are set, in order of precedence, the effective one first.
	Synonyms []Value
}

// BrokerConfigs are the three levels of one broker's configuration.
type BrokerConfigs struct {
	Dynamic        map[string]string // of this broker
	DynamicDefault map[string]string // of all brokers
	Static         map[string]string // the properties file
}

// TopicEntries are the effective configs of a topic with the given own configs,
// hidden keys left out, sorted by name.
func TopicEntries(topic map[string]string, b BrokerConfigs) []Entry {
	entries := make([]Entry, 0, len(Topic.names))
	for _, name := range Topic.names {
		entries = append(entries, topicEntry(Topic.defs[name], topic, b))
	}
	return entries
}

func topicEntry(d *Def, topic map[string]string, b BrokerConfigs) Entry {
	e := Entry{Def: d}
	var effective *string
	add := func(name, value string, source Source, factor int64) {
		v := value
		e.Synonyms = append(e.Synonyms, Value{name, &v, source})
		if effective == nil {
			scaled := scale(value, factor)
			effective, e.Source = &scaled, source
		}
	}
	if v, ok := topic[d.Name]; ok {
		add(d.Name, v, SourceDynamicTopic, 1)
	}
	for _, s := range d.Synonyms {
		for _, level := range []struct {
			set    map[string]string
			source Source
		}{{b.Dynamic, SourceDynamicBroker}, {b.DynamicDefault, SourceDynamicDefaultBroker}, {b.Static, SourceStaticBroker}} {
			if v, ok := level.set[s.Name]; ok {
				add(s.Name, v, level.source, s.Factor)
			}
		}
	}
	if len(d.Synonyms) > 0 {
		// As Kafka does, the default is listed under the first synonym if that has one.
		if first := Broker.defs[d.Synonyms[0].Name]; first != nil && !first.NoDefault {
			v := first.Default
			e.Synonyms = append(e.Synonyms, Value{first.Name, &v, SourceDefault})
		}
	}
	if effective == nil {
		v := d.Default
		effective, e.Source = &v, SourceDefault
	}
	e.Value = effective
	return e
}

// scale converts a synonym's unit to the topic key's; negative stays -1.
func scale(value string, factor int64) string {
	if factor == 1 {
		return value
	}
	n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
	switch {
	case err != nil:
		return value
	case n < 0:
		return "-1"
	case n > math.MaxInt64/factor:
		return strconv.FormatInt(math.MaxInt64, 10)
	}
	return strconv.FormatInt(n*factor, 10)
}

// TopicValues are the effective values of all topic keys, hidden ones included if set.
func TopicValues(topic map[string]string, b BrokerConfigs) map[string]string {
	values := make(map[string]string, len(Topic.names)+2)
	for _, e := range TopicEntries(topic, b) {
		values[e.Def.Name] = *e.Value
	}
	for k, v := range topic {
		if d := Topic.defs[k]; d != nil && d.Hidden {
			values[k] = v
		}
	}
	return values
}

// BrokerEntries are the effective configs of a broker, sorted by name. Unused
// keys are listed only if they are set.
func BrokerEntries(b BrokerConfigs) []Entry {
	var entries []Entry
	for _, name := range Broker.names {
		d := Broker.defs[name]
		e := levels(d, []level{{b.Dynamic, SourceDynamicBroker}, {b.DynamicDefault, SourceDynamicDefaultBroker}, {b.Static, SourceStaticBroker}})
		if d.Unused && len(e.Synonyms) == 0 {
			continue
		}
		entries = append(entries, e)
	}
	return entries
}

// BrokerValue is the effective value of a broker key; ok is false when it has none.
func BrokerValue(b BrokerConfigs, key string) (value string, ok bool) {
	d := Broker.defs[key]
	if d == nil {
		return "", false
	}
	e := levels(d, []level{{b.Dynamic, SourceDynamicBroker}, {b.DynamicDefault, SourceDynamicDefaultBroker}, {b.Static, SourceStaticBroker}})
	if e.Value == nil {
		return "", false
	}
	return *e.Value, true
}

// DynamicDefaultEntries are the configs of the resource "all brokers": only what is set.
func DynamicDefaultEntries(set map[string]string) []Entry {
	return setEntries(Broker, set, SourceDynamicDefaultBroker)
}

// MirrorEntries are the configs of a mirror, sorted by name. The source of what is
// set is reported as DYNAMIC_TOPIC_CONFIG: the protocol has no number for it and
// clients show that one as "dynamic".
func MirrorEntries(set map[string]string) []Entry { return allEntries(Mirror, set, SourceDynamicTopic) }

// GroupEntries are the configs of a group.
func GroupEntries(set map[string]string) []Entry { return allEntries(Group, set, SourceGroup) }

type level struct {
	set    map[string]string
	source Source
}

func levels(d *Def, from []level) Entry {
	e := Entry{Def: d, Source: SourceDefault}
	for _, l := range from {
		if v, ok := l.set[d.Name]; ok {
			e.Synonyms = append(e.Synonyms, Value{d.Name, &v, l.source})
		}
	}
	if !d.NoDefault {
		v := d.Default
		e.Synonyms = append(e.Synonyms, Value{d.Name, &v, SourceDefault})
	}
	if len(e.Synonyms) > 0 {
		e.Value, e.Source = e.Synonyms[0].Value, e.Synonyms[0].Source
	}
	return e
}

func allEntries(t *Table, set map[string]string, source Source) []Entry {
	entries := make([]Entry, 0, len(t.names))
	for _, name := range t.names {
		entries = append(entries, levels(t.defs[name], []level{{set, source}}))
	}
	return entries
}

func setEntries(t *Table, set map[string]string, source Source) []Entry {
	var entries []Entry
	for _, name := range t.names {
		if _, ok := set[name]; ok {
			entries = append(entries, levels(t.defs[name], []level{{set, source}}))
		}
	}
	return entries
}
